"""Plans: what is cut from a chain, what stands in the gaps, and how a request is rewritten by it.

Keeps law 3 (stable): a plan is data that holds the literal bytes of everything it puts into a view, so
``apply(plan, messages)`` is the same on every worker and after every restart. Deciding on a plan is the
business of :mod:`proxy.core.planning.planner`.

Positions count the messages of a chain, that is of a request without its head.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import assert_never

import msgspec

from proxy.core.persistent import Sizes

Span = tuple[int, int]
"""Where a gap starts, and where it ends."""
_start, _end, _position = attrgetter("start"), attrgetter("end"), attrgetter("position")


class Anchor(msgspec.Struct, frozen=True, array_like=True):
    """A summary of messages ``start`` up to and without ``end``; the next summary is anchored to it."""

    start: int
    end: int
    text: str
    by_code: bool = False
    """Whether code wrote it: it stands until a model has."""
    generation: int = 0
    """Summaries that it was made from, one upon the other; 0 where it was made from the originals alone."""

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def count(self) -> int:
        return self.end - self.start

    def contains(self, other: "Anchor") -> bool:
        """Whether it is about the messages of another, and about more."""
        return self.start <= other.start and other.end <= self.end and other.count < self.count


class Gap(msgspec.Struct, frozen=True, array_like=True):
    """A run of cut messages, ``start`` up to and without ``end``, and the note that stands in its place."""

    start: int
    end: int
    note: bytes = b""
    """The note as a whole JSON message."""
    tokens: int = 0
    anchors: tuple[Anchor, ...] = ()
    """The summaries in the note, in order and apart from each other."""
    quotes: tuple[str, ...] = ()
    """Handled requests that the note quotes."""
    ledger: str = ""
    """The part of the note that is the ledger; empty in all notes but the last."""

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def is_summarised(self) -> bool:
        """Whether one summary, by a model, is about the whole gap."""
        return [anchor.span for anchor in self.anchors if not anchor.by_code] == [self.span]

    @property
    def count(self) -> int:
        return self.end - self.start


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """A message that goes out clipped, or cleared to a placeholder."""

    position: int
    raw: bytes
    tokens: int
    why: str = ""
    """Why a tool result was cleared (`clearing.py`); empty where a message was clipped."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """All edits in force: gaps in order and apart from each other, replacements outside of them."""

    gaps: tuple[Gap, ...] = ()
    replacements: tuple[Replacement, ...] = ()

    @property
    def depth(self) -> int:
        """How many messages of the chain the plan reaches over."""
        last_gap = self.gaps[-1].end if self.gaps else 0
        last_replacement = self.replacements[-1].position + 1 if self.replacements else 0
        return max(last_gap, last_replacement)

    @property
    def cut(self) -> int:
        return sum(gap.count for gap in self.gaps)

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(gap.span for gap in self.gaps)

    @property
    def anchors(self) -> list[Anchor]:
        return [anchor for gap in self.gaps for anchor in gap.anchors]

    def anchors_within(self, start: int, end: int) -> list[Anchor]:
        """The summaries of what is cut between two places, in order."""
        anchors = (anchor for gap in self.gaps_within(start, end) for anchor in gap.anchors)
        return [anchor for anchor in anchors if start <= anchor.start < end]

    def gaps_within(self, start: int, end: int) -> Sequence[Gap]:
        """The gaps of which anything lies between two places, in order."""
        first = bisect_right(self.gaps, start, key=_end)
        return self.gaps[first : bisect_left(self.gaps, end, first, key=_start)]

    def covers(self, position: int) -> bool:
        return bool(self.gaps_within(position, position + 1))

    def shows(self, position: int) -> bool:
        """Whether the message at ``position`` stands in the view as it came."""
        return not self.covers(position) and self.edit_at(position) is None

    def uncut(self, length: int) -> Iterator[range]:
        """The runs of messages that are not cut, of a chain of ``length``."""
        after = 0
        for gap in self.gaps:
            yield range(after, gap.start)
            after = gap.end
        yield range(after, length)

    @property
    def note_places(self) -> set[int]:
        absent, places = 0, set[int]()
        for number, gap in enumerate(self.gaps):
            places.add(gap.start - absent + number)
            absent += gap.count
        return places

    def edit_at(self, position: int) -> Replacement | None:
        """What goes out in the place of the message at ``position``, where that is clipped or cleared."""
        found = bisect_left(self.replacements, position, key=_position)
        is_found = found < len(self.replacements) and self.replacements[found].position == position
        return self.replacements[found] if is_found else None


EMPTY = Plan()


def runs_of(places: Iterable[int]) -> Iterator[range]:
    """Ascending places, split into runs of those that follow each other."""
    for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        found = [place for _, place in run]
        yield range(found[0], found[-1] + 1)


class Verdict(StrEnum):
    """What an account comes to."""

    PAYS = "pays"
    """The epoch saves more than it costs."""
    COLD = "cold"
    """It costs nothing: the provider keeps nothing that it could change."""
    WAITS = "waits"
    """It costs more than it saves."""
    DUE = "due"
    """Nobody asked."""
    LATE = "late"
    """It only puts late summaries in the place of notices."""
    REFUSED = "refused"
    """It only leaves out signed reasoning that the provider refused."""


class Verb(StrEnum):
    """Who began an epoch: the policy, or a person by a verb of the admin API."""

    NONE = ""
    COMPACT = "compact"
    RESTORE = "restore"


class Account(msgspec.Struct, frozen=True, array_like=True):
    """What an epoch costs and saves, as it was known when it was decided on (`economics/economy.py`)."""

    verdict: Verdict
    idle: float | None = None
    """Seconds since the lane was last answered."""
    ttl: float = 0.0
    """Seconds for which the provider keeps a prefix."""
    cached: float = 1.0
    """Price of a cached token, over a fresh one."""
    written: float = 1.0
    """Price of a token that is written to the cache, over a fresh one."""
    calls: float = 0.0
    """Calls to come for which the saving counts."""
    freed: int = 0
    """Counted tokens that each of them sends less."""
    tail: int = 0
    """Counted tokens that the provider has kept and has to read anew."""
    summaries: int = 0
    """What its summaries cost that are still to be written, in fresh tokens."""

    @property
    def cuts_nothing(self) -> bool:
        """Whether it is of an epoch that was begun for something else than to make the view smaller."""
        return self.verdict in (Verdict.LATE, Verdict.REFUSED)

    @property
    def saving(self) -> float:
        """In fresh tokens."""
        return self.calls * self.cached * self.freed

    @property
    def cost(self) -> float:
        """In fresh tokens."""
        return (self.written - self.cached) * self.tail + self.summaries

    @property
    def text(self) -> str:
        """For people; empty where money had no say, and no objection."""
        match self.verdict:
            case Verdict.DUE:
                return f"costs more than it saves: {self._sums}" if self.cost > self.saving else ""
            case Verdict.COLD:
                idle = "" if self.idle is None else f", idle {self.idle:.0f} s"
                return f"the provider's cache is cold{idle}"
            case Verdict.LATE:
                return "late summaries take the place of notices"
            case Verdict.REFUSED:
                return "the provider refused signed reasoning of before"
            case Verdict.PAYS | Verdict.WAITS:
                return f"{self.verdict}: {self._sums}"
            case _:
                assert_never(self.verdict)

    @property
    def _sums(self) -> str:
        sums = f"{self.calls:.1f} calls with {self.freed} tokens less at {self.cached:.2f}"
        cost = f"{self.tail} tokens read anew at {self.written - self.cached:.2f}"
        cost += f" and {self.summaries} for summaries" if self.summaries else ""
        return f"{sums} against {cost} ({self.saving:.0f} to {self.cost:.0f})"


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a lane's plan, as it is stored and shown; ``plan`` is the whole plan from then on.

    In force for every chain whose message number ``depth`` has the chain hash ``reach``.
    """

    id: str
    parent: str
    """The id of the epoch that it was built upon; empty for a lane's first."""
    number: int
    """1 for the first epoch of a line of epochs."""
    lane: str
    reach: bytes
    depth: int
    calm_below: int
    """Counted tokens of the whole request below which it is forwarded whole, whatever the plan says."""
    at: float
    """Seconds since 1970, UTC."""
    stage: str
    reason: str
    original_count: int
    original_tokens: int
    final_count: int
    final_tokens: int
    emergency_mode: bool = False
    budget: int = 0
    """Tokens, as the model counts them, that the epoch was planned for."""
    ratio: float = 1.0
    """Tokens of the model over counted tokens, as known when the epoch began."""
    begun_at: bytes = b""
    """Chain hash of the last message of the request at which it began."""
    alternates: bool = False
    """Whether its notes go out within their neighbours, for a model that wants alternating roles."""
    asked: Verb = Verb.NONE
    """The verb by which a person asked for it."""
    account: Account | None = None
    """What it was decided by, beside its usage; None where a person asked for it."""
    plan: Plan = EMPTY
    without_reasoning: tuple[int, ...] = ()
    """Positions of messages of the view that go out without their signed reasoning (law 9)."""

    @property
    def cuts_nothing(self) -> bool:
        """Whether it only brought late summaries, or left out reasoning that was refused."""
        return self.account is not None and self.account.cuts_nothing

    def length_at_start(self, hashes: Sequence[bytes]) -> int:
        """Messages that a chain had when the epoch began, so far as it still is that chain."""
        try:
            return hashes.index(self.begun_at, max(self.depth - 1, 0)) + 1
        except ValueError:
            return self.depth

    @property
    def removed_count(self) -> int:
        """Messages of the view that the epoch took out, net of its notes."""
        return self.original_count - self.final_count

    @property
    def removed_tokens(self) -> int:
        """Tokens that the epoch took out of the view, net of its notes."""
        return self.original_tokens - self.final_tokens


def apply(plan: Plan, messages: Sequence[bytes]) -> list[bytes]:
    """The view: ``messages`` (a request's, without its head) with the plan's edits made."""
    # Bytes as they came: to write messages anew loses a provider's cache, though they say the same:
    # https://github.com/headroomlabs-ai/headroom/issues/1042
    edited = messages
    if replaced := {each.position: each.raw for each in plan.replacements}:
        edited = [replaced.get(position, raw) for position, raw in enumerate(messages)]
    view: list[bytes] = []
    position = 0
    for gap in plan.gaps:
        view += [*edited[position : gap.start], gap.note]
        position = gap.end
    return [*view, *edited[position:]]


def view_tokens(plan: Plan, tokens: Sizes) -> int:
    """Counted tokens of ``apply(plan, …)`` for messages of these sizes."""
    total = tokens.total
    for gap in plan.gaps:
        total += gap.tokens - tokens.between(gap.start, gap.end)
    for replacement in plan.replacements:
        total += replacement.tokens - tokens[replacement.position]
    return total


def first_difference(before: Plan, after: Plan) -> int | None:
    """Where the messages of the views of two plans begin to differ; None where they do not."""
    notes = {(gap.span, gap.note) for gap in before.gaps} ^ {(gap.span, gap.note) for gap in after.gaps}
    edits = {*before.replacements} ^ {*after.replacements}
    places = [start for (start, _), _ in notes] + [edit.position for edit in edits]
    return min(places, default=None)
