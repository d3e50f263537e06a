"""Roll the older exchanges into a running summary, by count, at any usage.

Past ``strategy.exchanges`` of them all but the newest ``roll_to`` go. The note tells each as its request and
its answer, long answers condensed, below what it told before; once that is too long it is compressed as a
whole. A model is asked where something would be lost by that; what code can do stands until it has answered,
and where it fails: truncation. All sizes are bytes of UTF-8.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import exchanges_of, request_points
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Anchor
from proxy.core.planning.situation import CRITICAL, PINNED, Situation
from proxy.core.planning.strategies.base import Strategy
from proxy.core.policy.policy import Policy
from proxy.core.text.words import head_of, shares, size, tail_of

_BREAK = "\n"
_APART = (CRITICAL, PINNED)


class Exchanges(Strategy):
    """A rolling window of exchanges."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When there are too many exchanges, and always where the budget is passed."""
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def acts_now(self, situation: Situation) -> bool:
        """When there are too many exchanges."""
        return bool(_rolled(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """The units of the exchanges that roll, oldest first."""
        return _rolled(situation)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before all of them have rolled."""
        return False

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """The requests at which there was one exchange too many."""
        rules, standing = policy.strategy, 0
        points = request_points(chain.messages)
        found: set[int] = set()
        for position in chain.begun:
            standing += 1
            if standing > rules.exchanges:
                found.add(points[bisect_right(points, position)])
                standing = rules.roll_to
        return found

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Where code would leave something out."""
        return not _Record.of(situation, start, end).is_whole

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """The model's summary, if it is no longer than it may be; else the record that code makes."""
        if summary and size(summary) <= _room(situation, start, end):
            return summary
        return _Record.of(situation, start, end).text or None


def _rolled(situation: Situation) -> list[int]:
    """Standing units of the exchanges that roll, pinned and later system messages apart."""
    rules, begun = situation.policy.strategy, situation.chain.begun
    gone = (bisect_left(begun, gap.end) - bisect_left(begun, gap.start) for gap in situation.plan.gaps)
    if len(begun) - sum(gone) <= rules.exchanges:
        return []
    protection = situation.protection
    movable = (index for index in situation.standing if protection[index] not in _APART)
    standing = exchanges_of(begun, situation.units, movable)
    if len(standing) <= rules.exchanges:
        return []
    old = standing[: -rules.roll_to]
    return [index for exchange in old for index in exchange if protection[index] < CRITICAL]


def _room(situation: Situation, start: int, end: int) -> int:
    """Bytes that a gap's text may have: what the running summary may have, but for what other gaps tell."""
    elsewhere = (anchor for anchor in situation.plan.anchors if not start <= anchor.start < end)
    told = sum(size(anchor.text) for anchor in elsewhere)
    return max(situation.policy.strategy.summary_max - told, 0)


@dataclass(frozen=True)
class _Record:
    """What code tells of a gap."""

    text: str
    is_whole: bool
    """Whether each request and each answer stands in it to the last word."""

    @classmethod
    def of(cls, situation: Situation, start: int, end: int) -> Self:
        """The running summary, and below it the exchanges that it does not tell of."""
        anchors = situation.plan.anchors_within(start, end)
        running = _BREAK.join(anchor.text for anchor in anchors)
        told = list(_told(situation, start, end, anchors))
        rules, room = situation.policy.strategy, _room(situation, start, end)
        condensed = [
            _line(request, head_of(answer, rules.answer_to) if size(answer) > rules.answer_max else answer)
            for request, answer in told
        ]
        is_whole = all(size(answer) <= rules.answer_max for _, answer in told)
        text = _BREAK.join(filter(None, [running, *condensed]))
        if size(text) <= room:
            return cls(text, is_whole)
        most = room * rules.summary_to // rules.summary_max
        return cls(_compressed(running, condensed, most), is_whole=False)


def _told(situation: Situation, start: int, end: int, anchors: Sequence[Anchor]) -> Iterator[tuple[str, str]]:
    """Requests and their final answers, of what no summary is about."""
    may_be_told, begun = situation.classes.may_be_summarised, situation.chain.begun
    messages = situation.chain.messages
    request, answer = list[str](), ""
    for place in filter(may_be_told, _untold(start, end, anchors)):
        if (request or answer) and begun[bisect_left(begun, place) : bisect_right(begun, place)]:
            yield _BREAK.join(request), answer
            request, answer = [], ""
        if messages[place].role == "user":
            request.append(situation.content(place).text.strip())
        elif messages[place].is_final:
            answer = situation.content(place).text.strip()
    if request or answer:
        yield _BREAK.join(request), answer


def _untold(start: int, end: int, anchors: Sequence[Anchor]) -> Iterator[int]:
    """Places of a gap of which no summary tells."""
    for anchor in anchors:
        yield from range(start, anchor.start)
        start = anchor.end
    yield from range(start, end)


def _line(request: str, answer: str) -> str:
    said = (f"[user] {request}" if request else "", f"[assistant] {answer}" if answer else "")
    return _BREAK.join(filter(None, said))


def _compressed(running: str, exchanges: Sequence[str], most: int) -> str:
    """All of it in so many bytes: the older half yields first, and each exchange keeps its beginning."""
    older = min(size(running), most // 2) if exchanges else most
    kept = [tail_of(running, older)] if running else []
    breaks = (len(kept) + len(exchanges)) * len(_BREAK)
    given = shares([size(each) for each in exchanges], max(most - sum(map(size, kept)) - breaks, 0))
    kept += [head_of(each, share) for each, share in zip(exchanges, given, strict=True)]
    return _BREAK.join(filter(None, kept))
