"""Units: messages that are kept or cut together, so that no tool call is separated from its results (law 2).

A unit is an assistant message with tool calls and all of its results, else one message. A result belongs to
the nearest preceding assistant message that made a call with its id, since ids repeat in practice. One
message may carry the results of several calls. A malformed sequence (a result without a call, or a call
without its result in mid-history) is one unit up to the next user message or answer, so that it is either
sent unchanged or not at all. Not further: an agent that lost one result may go on for hours without a user.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from proxy.core.conversation.messages import HEAD_ROLES, Message


class Unit(msgspec.Struct, frozen=True, gc=False):
    """The messages of a chain from ``start`` up to but not including ``end``."""

    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


def units_of(messages: Sequence[Message], offset: int = 0) -> list[Unit]:
    """The units of messages, in order and without gaps; ``offset`` is the first message's position."""
    bound = list(range(1, len(messages) + 1))
    for start, end in _bound_spans([*messages]):
        bound[start] = max(bound[start], end)
    units: list[Unit] = []
    position = 0
    while position < len(messages):
        start, end = position, bound[position]
        while position + 1 < end:  # extend the unit to the end of each span that begins in it
            position += 1
            end = max(end, bound[position])
        units.append(Unit(offset + start, offset + end))
        position = end
    return units


def _bound_spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Spans of messages that may not be separated; they can overlap."""
    callers: dict[str, int] = {}
    unanswered: dict[int, set[str]] = {}
    odd: list[tuple[int, int]] = []
    """Malformed spans: the start, and the message after which the next that asks or answers ends the span."""
    for position, message in enumerate(messages):
        if message.calls:
            callers.update(dict.fromkeys(message.calls, position))
            unanswered[position] = set(message.calls)
        elif message.is_result:
            for call in message.result_of or ("",):
                caller = callers.get(call)
                if caller is None:
                    odd.append((max(position - 1, 0), position))
                else:
                    unanswered[caller].discard(call)
                    yield caller, position + 1
    odd += ((position, position) for position, missing in unanswered.items() if missing)
    if odd:
        ends = [len(messages)] * len(messages)
        for position in range(len(messages) - 2, -1, -1):
            following = position + 1
            is_end = messages[following].role in ("user", "assistant")
            ends[position] = following if is_end else ends[following]
        yield from ((start, ends[position]) for start, position in odd)


def joined(units: Sequence[Unit], places: Collection[int]) -> list[Unit]:
    """Join each unit that begins at one of ``places`` to the unit before it."""
    found: list[Unit] = []
    for unit in units:
        if unit.start in places and found:
            found[-1] = Unit(found[-1].start, unit.end)
        else:
            found.append(unit)
    return found


def open_from(messages: Sequence[Message], units: Sequence[Unit]) -> int:
    """Index of the first unit that the model still has to answer.

    It is the last unit, or the one before if the last is a prefill: an assistant message without calls.
    """
    if not units:
        return 0
    last = len(units) - 1
    message = messages[units[last].start]
    return max(last - 1, 0) if message.is_final else last  # a prefill


def request_points(messages: Sequence[Message]) -> list[int]:
    """Lengths of the prefixes that were sent as requests: up to each assistant message, and the whole."""
    points = [
        position for position, message in enumerate(messages) if message.role == "assistant" and position
    ]
    return [*points, len(messages)]


# --- exchanges: a user's message and everything up to the next one; user messages in a row are one ---


_start: Callable[[Unit], int] = attrgetter("start")


def exchange_starts(messages: Sequence[Message]) -> list[int]:
    """Positions of the user messages that begin an exchange."""
    found: list[int] = []
    before = ""
    for position, message in enumerate(messages):
        if message.role == "user" and before != "user" and not message.result_of:
            found.append(position)
        if message.role not in HEAD_ROLES:
            before = message.role
    return found


def exchanges_of(begun: Sequence[int], units: Sequence[Unit], wanted: Iterable[int]) -> list[list[int]]:
    """Group the ``wanted`` indexes of units by exchange, in order.

    ``begun`` holds the positions where exchanges begin; units before the first belong to the first exchange.
    """
    first = bisect_left(begun, units[bisect_right(units, begun[0], key=_start) - 1].end) if begun else 0
    numbered = groupby(wanted, key=lambda index: max(bisect_left(begun, units[index].end), first))
    return [[*members] for _, members in numbered]
