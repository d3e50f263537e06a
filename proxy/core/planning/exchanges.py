"""The strategy ``exchanges``: a window of a number of exchanges, which rolls by several at a time.

A running summary replaces the exchanges that roll out: the request and the answer of each, in order. Long
answers are condensed in it, and once the whole is too long it is rewritten. A model does both; code provides
a substitute until the model has answered, and if the model fails. All sizes are bytes of UTF-8.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import exchanges_of, request_points
from proxy.core.lazy import lazy
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Anchor, Span, joined_spans
from proxy.core.planning.situation import CRITICAL, PINNED, Situation
from proxy.core.planning.strategy import ByCount
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Strategy as Rules
from proxy.core.text.cutting import head_of, shares, size, tail_of


class Exchanges(ByCount):
    """A rolling window: above ``strategy.exchanges`` exchanges, cut all but the newest ``roll_to``.

    With ``strategy.condense_active`` notes replace the long answers of the remaining exchanges as well.
    """

    records = True

    def acts_now(self, situation: Situation) -> bool:
        return bool(_rolled(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        return _rolled(situation)

    def condensed(self, situation: Situation) -> Sequence[int]:
        """Long answers of remaining exchanges, without pinned ones and those a note would hardly shorten."""
        rules, rolled = situation.policy.strategy, set(_rolled(situation))
        if not (rules.condense_active and rolled):
            return ()
        least = max(rules.answer_max, rules.answer_to + _AROUND)
        return [
            index
            for index in situation.view_units
            if index not in rolled
            and situation.protection[index] < CRITICAL
            and situation.chain.messages[place := situation.units[index].start].is_final
            and situation.classes.may_be_summarised(place)
            and size(situation.content(place).text.strip()) > least
        ]

    def ahead(self, situation: Situation) -> Situation | None:
        """If the window is full, the situation with both limits lowered by one; else None."""
        rules = situation.policy.strategy
        if rules.roll_to < 2 or _count(situation) < rules.exchanges:
            return None
        soon = {"exchanges": rules.exchanges - 1, "roll_to": rules.roll_to - 1}
        policy = situation.policy.model_copy(update={"strategy": rules.model_copy(update=soon)})
        return replace(situation, policy=policy)

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """The lengths of the chain at requests that brought one exchange too many."""
        rules, standing = policy.strategy, 0
        points = request_points(chain.messages)
        found: set[int] = set()
        for position in chain.exchange_starts:
            standing += 1
            if standing > rules.exchanges:
                found.add(points[bisect_right(points, position)])
                standing = rules.roll_to
        return found

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Whether the summary that code makes would abridge an exchange that no note covers yet.

        A model is not asked for fewer than ``_LEAST_ASKED`` bytes, nor only to shorten an earlier note.
        """
        running = RunningSummary.of(situation, start, end)
        return bool(running.exchanges) and running.most >= _LEAST_ASKED and not running.is_whole

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """The model's summary, if it has room; else the record that code makes."""
        running = RunningSummary.of(situation, start, end)
        return summary if summary and size(summary) <= running.room else running.text({}) or None


_AROUND = 300
"""Approximate bytes of a note beside the answer that it replaces."""


def _count(situation: Situation) -> int:
    """Count the exchanges of the view, including those with pinned units; quick."""
    begun = situation.chain.exchange_starts
    gone = (bisect_left(begun, gap.end) - bisect_left(begun, gap.start) for gap in situation.plan.gaps)
    return len(begun) - sum(gone)


def _rolled(situation: Situation) -> list[int]:
    """Units of the exchanges that roll out of the window, without pinned and critical ones."""
    rules = situation.policy.strategy
    if _count(situation) <= rules.exchanges:
        return []
    protection = situation.protection
    movable = (index for index in situation.view_units if protection[index] not in (CRITICAL, PINNED))
    standing = exchanges_of(situation.chain.exchange_starts, situation.units, movable)
    if len(standing) <= rules.exchanges:
        return []
    old = standing[: -rules.roll_to]
    return [index for exchange in old for index in exchange if protection[index] < CRITICAL]


# --- the running summary ---


_BREAK = "\n"
_USER, _ASSISTANT = "[user] ", "[assistant] "
_LEAST = 40
"""Minimal bytes per exchange: with fewer for each, the oldest exchanges are left out."""
_LEAST_ASKED = 100
"""Minimal bytes of a summary for which a model is asked: hardly a sentence fits into fewer."""


class Rolled(NamedTuple):
    """The request and the final answer of an exchange that no summary covers yet."""

    request: str
    answer: str


@dataclass(frozen=True)
class RunningSummary:
    """The contents of a gap's running summary."""

    earlier: str
    """Earlier summaries of the gap's oldest messages, joined."""
    count: int
    exchanges: Sequence[Rolled]
    rules: Rules
    room: int
    """Bytes that it may have: its part of those that the notes of all gaps have together."""

    @classmethod
    def of(cls, situation: Situation, start: int, end: int) -> Self:
        """Return the earlier summaries of messages ``start`` to ``end`` and the exchanges not covered."""
        begun, before, condensed = situation.chain.exchange_starts, list[Anchor](), dict[int, str]()
        for each in situation.plan.anchors_within(start, end):
            if _is_answer(begun, each.start, each.end):  # condensed where it stood
                condensed[each.start] = each.text.removeprefix(_ASSISTANT)
            else:
                before.append(each)
        return cls(
            _BREAK.join(each.text for each in before),
            sum(each.count for each in before),
            tuple(_exchanges(situation, start, end, before, condensed)),
            situation.policy.strategy,
            _room(situation, (start, end)),
        )

    @property
    def long_answers(self) -> list[str]:
        """The distinct answers that are to be condensed; none if not even one would have room then."""
        if self.room < self.rules.answer_to:
            return []
        return list(dict.fromkeys(each.answer for each in self.exchanges if self._is_long(each.answer)))

    @property
    def is_whole(self) -> bool:
        """Whether it contains each request and answer in full, so that no model need write anything."""
        return not self.long_answers and self.fits({})

    @property
    def most(self) -> int:
        return self.room * self.rules.summary_to // self.rules.summary_max

    def fits(self, condensed: Mapping[str, str]) -> bool:
        """Whether it fits its room unabridged; ``condensed`` maps long answers to what a model wrote."""
        return size(self._whole(condensed)) <= self.room

    def text(self, condensed: Mapping[str, str]) -> str:
        """The summary made by code, within its room; long answers without a condensed form lose their end."""
        whole = self._whole(condensed)
        if size(whole) <= self.room:
            return whole
        # Each exchange keeps its beginning, earlier ones included; a model's earlier text loses its own, and
        # gets at most half of the bytes.
        (written, before), lines = self._earlier_parts, self._lines(condensed)
        older = [tail_of(written, self.most // 2 if before or lines else self.most)]
        left = self.most - size(older[0]) - bool(written)
        parts = [*before, *lines][-max(left // _LEAST, 1) :]
        given = shares([size(each) for each in parts], max(left - (len(parts) - 1) * len(_BREAK), 0))
        cut = (head_of(each, share) for each, share in zip(parts, given, strict=True))
        return _BREAK.join(filter(None, [*older, *cut]))

    def transcript(self, condensed: Mapping[str, str], most: int) -> list[tuple[str, str]]:
        """Roles and texts from which it is rewritten, in ``most`` bytes; a model's own text has no role."""
        written, before = self._earlier_parts
        texts = [("", written)]
        for each in before:
            request, _, answer = each.removeprefix(_USER).partition(_BREAK + _ASSISTANT)
            texts += [("user", request), ("assistant", answer)]
        for each in self.exchanges:
            texts += [("user", each.request), ("assistant", self._condensed(each.answer, condensed))]
        texts = [(role, text) for role, text in texts if text]
        given = shares([size(text) for _, text in texts], most)
        return [(role, head_of(text, share)) for (role, text), share in zip(texts, given, strict=True)]

    def _is_long(self, answer: str) -> bool:
        return size(answer) > self.rules.answer_max

    def _condensed(self, answer: str, condensed: Mapping[str, str]) -> str:
        if not self._is_long(answer):
            return answer
        return condensed.get(answer) or head_of(answer, self.rules.answer_to)

    def _lines(self, condensed: Mapping[str, str]) -> list[str]:
        found: list[str] = []
        for request, answer in self.exchanges:
            shorter = self._condensed(answer, condensed)
            parts = (request and _USER + request, shorter and _ASSISTANT + shorter)
            found.append(_BREAK.join(filter(None, parts)))
        return found

    def _whole(self, condensed: Mapping[str, str]) -> str:
        return _BREAK.join(filter(None, [self.earlier, *self._lines(condensed)]))

    @lazy
    def _earlier_parts(self) -> tuple[str, list[str]]:
        """The model's text in the earlier summary, and the exchanges after it."""
        written, *exchanges = (_BREAK + self.earlier).split(_BREAK + _USER)
        return written.strip(), [_USER + each for each in exchanges]


def _room(situation: Situation, span: Span) -> int:
    """Bytes that the text of a gap may have; the note of a condensed answer has room of its own."""
    if _is_answer(situation.chain.exchange_starts, *span):
        return situation.policy.strategy.summary_max
    rooms = situation.rooms
    if span not in rooms:
        # The gaps of the plan, joined with those of the exchanges that roll out now.
        rolled = [(unit.start, unit.end) for unit in map(situation.units.__getitem__, _rolled(situation))]
        spans: Sequence[Span] = situation.plan.spans
        if rolled:
            spans = joined_spans([*spans, *rolled])
        if span in spans:
            rooms.update(_rooms(situation, spans))
        else:  # something else than the count of exchanges decides as well
            apart = [each for each in spans if each[1] <= span[0] or span[1] <= each[0]]
            rooms[span] = _rooms(situation, [*apart, span])[span]
    return rooms[span]


def _rooms(situation: Situation, gaps: Sequence[Span]) -> dict[Span, int]:
    """Divide the bytes of one running summary among gaps by their exchanges.

    Notes that are in force keep what they have if the others then still get their share.
    """
    begun, most = situation.chain.exchange_starts, situation.policy.strategy.summary_max
    spans = [each for each in gaps if not _is_answer(begun, *each)]
    counts = {each: max(bisect_left(begun, each[1]) - bisect_left(begun, each[0]), 1) for each in spans}
    told = {gap.span: sum(size(anchor.text) for anchor in gap.anchors) for gap in situation.plan.gaps}
    kept = {each: told[each] for each in spans if told.get(each)}
    left, total = most - sum(kept.values()), sum(counts.values())
    growing = {each: counts[each] for each in spans if each not in kept}
    if left * total < most * sum(growing.values()):
        return {each: most * count // total for each, count in counts.items()}
    growing = growing or counts
    by_count = sum(growing.values())
    return {each: kept.get(each, 0) + left * growing.get(each, 0) // by_count for each in spans}


def _exchanges(
    situation: Situation, start: int, end: int, anchors: Sequence[Anchor], condensed: Mapping[int, str]
) -> Iterator[Rolled]:
    """Yield requests and their final answers, without messages that ``anchors`` cover."""
    messages, begun = situation.chain.messages, situation.chain.exchange_starts
    starts, ends = [start, *(each.end for each in anchors)], [*(each.start for each in anchors), end]
    request, answer = list[str](), ""
    for place in (place for run in map(range, starts, ends) for place in run):
        if not situation.classes.may_be_summarised(place):
            continue
        if (request or answer) and _begins(begun, place):
            yield Rolled(_BREAK.join(request), answer)
            request, answer = [], ""
        if messages[place].role == "user":
            request.append(situation.content(place).text.strip())
        elif messages[place].is_final:
            answer = condensed.get(place) or situation.content(place).text.strip()
    if request or answer:
        yield Rolled(_BREAK.join(request), answer)


def _begins(begun: Sequence[int], place: int) -> bool:
    return bisect_left(begun, place) < bisect_right(begun, place)


def _is_answer(begun: Sequence[int], start: int, end: int) -> bool:
    """Whether a gap is a single message within an exchange: an answer whose request stays."""
    return end - start == 1 and not _begins(begun, start)
