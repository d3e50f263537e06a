"""Plans: what is cut from a chain, what replaces it, and how a plan rewrites a request.

Keeps law 3 (stable): a plan holds the literal bytes of everything it puts into a view, so
``apply(plan, messages)`` is the same on every worker and after every restart.
:mod:`proxy.core.planning.planner` decides on plans.

Positions index the messages of a chain, that is, of a request without its head.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import assert_never

import msgspec

from proxy.core.persistent import Sizes

Span = tuple[int, int]
"""The start and the end (exclusive) of a gap, as positions."""
_start, _end, _position = attrgetter("start"), attrgetter("end"), attrgetter("position")


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Messages ``start`` to ``end`` (exclusive) of a chain."""

    start: int
    end: int

    @property
    def span(self) -> Span:
        return self.start, self.end

    @property
    def count(self) -> int:
        return self.end - self.start


class Anchor(Run, frozen=True, array_like=True):
    """A summary of some messages; the next summary is built on it."""

    text: str
    by_code: bool = False
    """Whether code wrote the summary; it stays until a model has written one."""
    generation: int = 0
    """Length of the chain of summaries it was made from; 0 if it was made from the original messages."""

    def contains(self, other: "Anchor") -> bool:
        """Whether this summary covers all messages of ``other`` and at least one more."""
        return self.start <= other.start and other.end <= self.end and other.count < self.count


class Gap(Run, frozen=True, array_like=True):
    """A run of cut messages, and the note that replaces it."""

    note: bytes = b""
    """The note as a complete JSON message; empty if the budget had no room for one."""
    tokens: int = 0
    anchors: tuple[Anchor, ...] = ()
    """The summaries in the note, in order; their spans do not overlap."""
    quotes: tuple[str, ...] = ()
    """User requests that were already answered, as the note quotes them."""
    ledger: str = ""
    """The ledger part of the note; it repeats nothing of the ledgers in earlier notes."""

    @property
    def is_summarised(self) -> bool:
        """Whether a single summary, written by a model, covers the whole gap."""
        return [anchor.span for anchor in self.anchors if not anchor.by_code] == [self.span]


class Replacement(msgspec.Struct, frozen=True, array_like=True):
    """A message that is sent clipped, or replaced by a placeholder."""

    position: int
    raw: bytes
    tokens: int
    why: str = ""
    """Why a tool result or picture was cleared (`replacements.py`); empty if a message was clipped."""


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """All edits in force: gaps in order without overlap, and replacements outside the gaps."""

    gaps: tuple[Gap, ...] = ()
    replacements: tuple[Replacement, ...] = ()

    @property
    def depth(self) -> int:
        """Number of leading messages of the chain up to and including the plan's last edit."""
        last_gap = self.gaps[-1].end if self.gaps else 0
        last_replacement = self.replacements[-1].position + 1 if self.replacements else 0
        return max(last_gap, last_replacement)

    @property
    def cut(self) -> int:
        return sum(gap.count for gap in self.gaps)

    @property
    def edited(self) -> set[int]:
        """Positions of the messages that are cut, clipped or cleared."""
        cut = {place for gap in self.gaps for place in range(gap.start, gap.end)}
        return cut | {edit.position for edit in self.replacements}

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(gap.span for gap in self.gaps)

    @property
    def ledger(self) -> str:
        """The ledgers of all notes, in order."""
        return "\n".join(gap.ledger for gap in self.gaps if gap.ledger)

    @property
    def anchors(self) -> list[Anchor]:
        return [anchor for gap in self.gaps for anchor in gap.anchors]

    def anchors_within(self, start: int, end: int) -> list[Anchor]:
        """The summaries of the gaps between two positions, in order."""
        anchors = (anchor for gap in self.gaps_within(start, end) for anchor in gap.anchors)
        return [anchor for anchor in anchors if start <= anchor.start < end]

    def gaps_within(self, start: int, end: int) -> Sequence[Gap]:
        """The gaps that overlap the range from ``start`` to ``end`` (exclusive), in order."""
        first = bisect_right(self.gaps, start, key=_end)
        return self.gaps[first : bisect_left(self.gaps, end, first, key=_start)]

    def covers(self, position: int) -> bool:
        return bool(self.gaps_within(position, position + 1))

    def shows(self, position: int) -> bool:
        """Whether the view contains the message at ``position`` unedited."""
        return not self.covers(position) and self.edit_at(position) is None

    def uncut(self, length: int) -> Iterator[range]:
        """Yield the runs of messages that are not cut, for a chain of ``length`` messages."""
        after = 0
        for gap in self.gaps:
            yield range(after, gap.start)
            after = gap.end
        yield range(after, length)

    @property
    def note_places(self) -> set[int]:
        absent, places = 0, set[int]()
        for gap in self.gaps:
            if gap.note:
                places.add(gap.start - absent)
            absent += gap.count - bool(gap.note)
        return places

    def edit_at(self, position: int) -> Replacement | None:
        """Return the replacement of the message at ``position``; None if it is not clipped or cleared."""
        found = bisect_left(self.replacements, position, key=_position)
        is_found = found < len(self.replacements) and self.replacements[found].position == position
        return self.replacements[found] if is_found else None


EMPTY = Plan()


def runs_of(places: Iterable[int]) -> Iterator[range]:
    """Split ascending positions into runs of consecutive ones."""
    for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        found = [place for _, place in run]
        yield range(found[0], found[-1] + 1)


class Verdict(StrEnum):
    """The result of an :class:`Account`."""

    PAYS = "pays"
    """The epoch saves more than it costs."""
    COLD = "cold"
    """The epoch costs nothing: the provider's prompt cache holds nothing that it would invalidate."""
    WAITS = "waits"
    """The epoch costs more than it saves, so it is postponed."""
    DUE = "due"
    """The epoch begins whatever it costs; cost was not a condition."""
    LATE = "late"
    """The epoch only replaces notices with summaries that arrived late."""
    REFUSED = "refused"
    """The epoch only leaves out signed reasoning that the provider refused."""


class Verb(StrEnum):
    """Who began an epoch: the policy (``NONE``), or a person through a verb of the admin API."""

    NONE = ""
    COMPACT = "compact"
    RESTORE = "restore"


class Account(msgspec.Struct, frozen=True, array_like=True):
    """What an epoch costs and saves, as known when it was decided (`economics/economy.py`)."""

    verdict: Verdict
    idle: float | None = None
    """Seconds since the lane's last answer."""
    ttl: float = 0.0
    """Seconds for which the provider keeps a prefix."""
    cached: float = 1.0
    """Price of a cached token relative to a fresh one."""
    written: float = 1.0
    """Price of a token written to the cache relative to a fresh one."""
    calls: float = 0.0
    """Expected number of future calls that profit from the saving."""
    freed: int = 0
    """Counted tokens that each of these calls no longer sends."""
    tail: int = 0
    """Counted tokens that the provider had cached and must read again."""
    summaries: int = 0
    """Cost of the summaries that are still to be written, in fresh tokens."""

    @property
    def cuts_nothing(self) -> bool:
        """Whether the epoch was begun for another purpose than making the view smaller."""
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
        """The account as a sentence; empty if cost was no condition and the epoch pays anyway."""
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
        less = f"{self.calls:.1f} requests to come with {self.freed} tokens less, at {self.cached:.2f}"
        anew = f"{self.tail} tokens read anew, at {self.written - self.cached:.2f}"
        summaries = f"; {self.summaries} for summaries" if self.summaries else ""
        sums = f"{self.saving:.0f} saved, {self.cost:.0f} spent, in fresh tokens"
        return f"{sums} ({less}; {anew}{summaries})"


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a lane's plan, as stored and shown; ``plan`` is the complete plan after it.

    It can be in force for chains whose message number ``depth`` (from 1) has the chain hash ``reach``.
    """

    id: str
    parent: str
    """The id of the epoch it builds on; empty for a lane's first epoch."""
    number: int
    """1 for the first epoch of a line of epochs, then counted up."""
    lane: str
    reach: bytes
    depth: int
    calm_below: int
    """A request of fewer counted tokens than this is forwarded whole, whatever the plan says."""
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
    """The budget that the epoch was planned for, in tokens as the model counts them."""
    ratio: float = 1.0
    """The model's tokens per counted token, as known when the epoch began."""
    begun_at: bytes = b""
    """Chain hash of the last message of the request at which the epoch began."""
    alternates: bool = False
    """Whether notes are merged into neighbouring messages, for a model that wants alternating roles."""
    asked: Verb = Verb.NONE
    """The verb by which a person asked for the epoch."""
    account: Account | None = None
    """Costs and savings on which the decision rested, beside usage; None if a person asked for it."""
    plan: Plan = EMPTY
    without_reasoning: tuple[int, ...] = ()
    """Positions of messages of the view that are sent without their signed reasoning (law 9)."""

    @property
    def cuts_nothing(self) -> bool:
        """Whether the epoch only added late summaries, or only left out reasoning that was refused."""
        return self.account is not None and self.account.cuts_nothing

    def length_at_start(self, hashes: Sequence[bytes]) -> int:
        """Number of messages that the chain had when the epoch began; ``depth`` if it has changed since."""
        try:
            return hashes.index(self.begun_at, max(self.depth - 1, 0)) + 1
        except ValueError:
            return self.depth

    @property
    def removed_count(self) -> int:
        """Number of messages that the epoch removed from the view, net of its notes."""
        return self.original_count - self.final_count

    @property
    def removed_tokens(self) -> int:
        return self.original_tokens - self.final_tokens


def apply(plan: Plan, messages: Sequence[bytes]) -> list[bytes]:
    """Return the view: ``messages`` (of a request, without its head) with the plan's edits applied."""
    # Messages keep their original bytes: serialising them again misses the provider's prompt cache even
    # if the content is equal: https://github.com/headroomlabs-ai/headroom/issues/1042
    edited = messages
    if replaced := {each.position: each.raw for each in plan.replacements}:
        edited = [replaced.get(position, raw) for position, raw in enumerate(messages)]
    view: list[bytes] = []
    position = 0
    for gap in plan.gaps:
        view += edited[position : gap.start]
        if gap.note:
            view.append(gap.note)
        position = gap.end
    return [*view, *edited[position:]]


def joined_spans(pieces: Iterable[Span], standing: Container[Span] = ()) -> list[Span]:
    """Return the maximal runs of these pieces, in order; nothing is joined to those that are ``standing``."""
    spans: list[Span] = []
    for start, end in sorted(pieces):
        if spans and start <= spans[-1][1] and spans[-1] not in standing:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def view_tokens(plan: Plan, tokens: Sizes) -> int:
    """Counted tokens of ``apply(plan, …)`` for messages of these sizes."""
    total = tokens.total
    for gap in plan.gaps:
        total += gap.tokens - tokens.between(gap.start, gap.end)
    for replacement in plan.replacements:
        total += replacement.tokens - tokens[replacement.position]
    return total


def first_difference(before: Plan, after: Plan) -> int | None:
    """Return the first position at which the views of two plans differ; None if they are equal."""
    notes = {(gap.span, gap.note) for gap in before.gaps} ^ {(gap.span, gap.note) for gap in after.gaps}
    edits = {*before.replacements} ^ {*after.replacements}
    places = [start for (start, _), _ in notes] + [edit.position for edit in edits]
    return min(places, default=None)
