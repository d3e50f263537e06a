"""The running summary of exchanges that were rolled up: what code tells of them, until a model has.

It tells each exchange as its request and its answer, long answers condensed, below what it told before; once
that is too long it is compressed as a whole. A model is asked where something would be lost by that; what
code can do stands until it has answered, and where it fails: truncation. All sizes are bytes of UTF-8.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from proxy.core.planning.situation import Situation
from proxy.core.text.words import head_of, shares, size, tail_of

_BREAK = "\n"


@dataclass(frozen=True)
class RunningSummary:
    """What code tells of a gap."""

    text: str
    is_whole: bool
    """Whether each request and each answer stands in it to the last word."""
    room: int
    """Bytes that it may have: those of one running summary, but for what the notes of other gaps tell."""

    @classmethod
    def of(cls, situation: Situation, start: int, end: int) -> Self:
        """The earlier summaries of messages ``start`` up to ``end``, and below them the other exchanges."""
        rules, anchors = situation.policy.strategy, situation.plan.anchors
        elsewhere = sum(size(each.text) for each in anchors if not start <= each.start < end)
        room = max(rules.summary_max - elsewhere, 0)
        earlier = _BREAK.join(each.text for each in situation.plan.anchors_within(start, end))
        exchanges, is_whole = list[str](), True
        for request, answer in _exchanges(situation, start, end):
            is_long = size(answer) > rules.answer_max
            is_whole = is_whole and not is_long
            condensed = head_of(answer, rules.answer_to) if is_long else answer
            parts = (f"[user] {request}" if request else "", f"[assistant] {condensed}" if condensed else "")
            exchanges.append(_BREAK.join(filter(None, parts)))
        text = _BREAK.join(filter(None, [earlier, *exchanges]))
        if size(text) <= room:
            return cls(text, is_whole, room)
        most = room * rules.summary_to // rules.summary_max
        return cls(_compressed(earlier, exchanges, most), is_whole=False, room=room)

    def has_room_for(self, summary: str) -> bool:
        """Whether a model's summary is no longer than it may be."""
        return size(summary) <= self.room


def _exchanges(situation: Situation, start: int, end: int) -> Iterator[tuple[str, str]]:
    """Requests and their final answers, of what no summary is about."""
    messages, begun = situation.chain.messages, situation.chain.begun
    anchors = situation.plan.anchors_within(start, end)
    summarised = {place for each in anchors for place in range(each.start, each.end)}
    request, answer = list[str](), ""
    for place in range(start, end):
        if place in summarised or not situation.classes.may_be_summarised(place):
            continue
        if (request or answer) and begun[bisect_left(begun, place) : bisect_right(begun, place)]:
            yield _BREAK.join(request), answer
            request, answer = [], ""
        if messages[place].role == "user":
            request.append(situation.content(place).text.strip())
        elif messages[place].is_final:
            answer = situation.content(place).text.strip()
    if request or answer:
        yield _BREAK.join(request), answer


def _compressed(earlier: str, exchanges: Sequence[str], most: int) -> str:
    """All of it in so many bytes: the older half yields first, and each exchange keeps its beginning."""
    older = min(size(earlier), most // 2) if exchanges else most
    parts = [tail_of(earlier, older)] if earlier else []
    breaks = (len(parts) + len(exchanges)) * len(_BREAK)
    given = shares([size(each) for each in exchanges], max(most - sum(map(size, parts)) - breaks, 0))
    parts += [head_of(each, share) for each, share in zip(exchanges, given, strict=True)]
    return _BREAK.join(filter(None, parts))
