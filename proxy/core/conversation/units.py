"""Units: what is kept or cut together, so that no tool call is ever parted from its results (law 2).

A unit is an assistant message with tool calls and all of its results, else one message. Results belong to
the nearest preceding assistant message with that id, by position: ids repeat in real life, and one message
may bring the results of several calls. An odd sequence
(a result without a call, a call without its result in mid-history) is one unit up to the next user message,
so that it goes out as odd as it came in, or not at all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from operator import attrgetter

import msgspec

from proxy.core.conversation.messages import HEAD_ROLES, Message, last_user
from proxy.core.persistent import Incremental


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Messages ``start`` up to and without ``end`` of a chain."""

    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


def units_of(messages: Sequence[Message], offset: int = 0) -> list[Unit]:
    """The units of messages of which the first stands at place ``offset``, in order and without gaps."""
    bound = list(range(1, len(messages) + 1))
    for start, end in _bound_spans([*messages]):
        bound[start] = max(bound[start], end)
    units: list[Unit] = []
    position = 0
    while position < len(messages):
        start, end = position, bound[position]
        while position + 1 < end:  # to where each message of the unit is bound
            position += 1
            end = max(end, bound[position])
        units.append(Unit(offset + start, offset + end))
        position = end
    return units


def _bound_spans(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Spans of messages that may not be parted; they can overlap."""
    callers: dict[str, int] = {}
    unanswered: dict[int, set[str]] = {}
    odd: list[tuple[int, int]] = []
    """Where a span begins, and the message from which it reaches to the next user message."""
    for position, message in enumerate(messages):
        if message.calls:
            callers.update(dict.fromkeys(message.calls, position))
            unanswered[position] = set(message.calls)
        elif message.is_result:
            for call in message.answers or ("",):
                caller = callers.get(call)
                if caller is None:
                    odd.append((max(position - 1, 0), position))
                else:
                    unanswered[caller].discard(call)
                    yield caller, position + 1
    odd += ((position, position) for position, missing in unanswered.items() if missing)
    if odd:
        next_user = [len(messages)] * len(messages)
        for position in range(len(messages) - 2, -1, -1):
            following = position + 1
            is_next = messages[following].role == "user"
            next_user[position] = following if is_next else next_user[following]
        yield from ((start, next_user[position]) for start, position in odd)


def joined(units: Sequence[Unit], places: Collection[int]) -> list[Unit]:
    """The units, those that begin at one of these places joined to the one before."""
    found: list[Unit] = []
    for unit in units:
        found.append(Unit(found.pop().start, unit.end) if found and unit.start in places else unit)
    return found


def open_from(messages: Sequence[Message], units: Sequence[Unit]) -> int:
    """The first unit that the model is still to answer: the last, and what a trailing prefill hangs on."""
    if not units:
        return 0
    last = len(units) - 1
    message = messages[units[last].start]
    return max(last - 1, 0) if message.is_final else last  # a prefill


class OpenTurn(msgspec.Struct, frozen=True, dict=True):  # a dict for what is reckoned once
    """What a chain asks of the model, of which nothing may be cut or clipped."""

    messages: Sequence[Message]
    raws: Sequence[bytes] = ()
    """The same messages as they came; without them no units are kept."""
    found: Incremental[Unit] = msgspec.field(default_factory=Incremental[Unit])
    """Units of its first messages, and from now on those that were found here."""

    @cached_property
    def last_user(self) -> int | None:
        """Position of the last user message."""
        return last_user(self.messages)

    @cached_property
    def settled(self) -> int:
        """Messages, the oldest, of which any may be edited; found without a look at what was before."""
        user = self.last_user
        return user if user is not None and self.is_apart(user) else 0

    def is_apart(self, place: int) -> bool:
        """Whether every result from a message on answers a call from there on."""
        calls = set[str]()
        for message in self.messages[place:]:
            calls.update(message.calls)
            if message.is_result and not (message.answers and calls.issuperset(message.answers)):
                return False
        return True

    @cached_property
    def units(self) -> list[Unit]:
        """All units of the chain: those before the last stay, unless a call of theirs is answered later."""
        units = self.found.continued(
            self.raws, self.is_apart, lambda first: units_of(self.messages[first:], first)
        )
        if self.raws:
            self.found.keep(self.raws[: units[-1].start + 1], units, len(units) - 1)
        return units

    @property
    def open_from(self) -> int:
        """Where the open unit begins."""
        return self.units[open_from(self.messages, self.units)].start if self.units else 0

    def is_spared(self, gaps: Sequence[tuple[int, int]], clipped: Sequence[int]) -> bool:
        """Whether edits leave it whole."""
        cut_until = gaps[-1][1] if gaps else 0
        if cut_until <= self.settled and (not clipped or max(clipped) < self.settled):
            return True
        user = self.last_user
        if user is not None and (user in clipped or any(start <= user < end for start, end in gaps)):
            return False
        return cut_until <= self.open_from


def request_points(messages: Sequence[Message]) -> list[int]:
    """Lengths of the prefixes that were requests: before each assistant message, and the whole."""
    points = [
        position for position, message in enumerate(messages) if message.role == "assistant" and position
    ]
    return [*points, len(messages)]


# --- exchanges: a request and everything up to the next one. Requests in a row are one ---


_start: Callable[[Unit], int] = attrgetter("start")


def beginnings(messages: Sequence[Message]) -> list[int]:
    """Positions of the user messages that begin an exchange."""
    found: list[int] = []
    before = ""
    for position, message in enumerate(messages):
        if message.role == "user" and before != "user" and not message.answers:
            found.append(position)
        if message.role not in HEAD_ROLES:
            before = message.role
    return found


def exchanges_of(begun: Sequence[int], units: Sequence[Unit], wanted: Iterable[int]) -> list[list[int]]:
    """The ``wanted`` indexes of units by exchange, in order.

    ``begun`` is where exchanges begin; what stands before the first request belongs to the first.
    """
    first = bisect_left(begun, units[bisect_right(units, begun[0], key=_start) - 1].end) if begun else 0
    numbered = groupby(wanted, key=lambda index: max(bisect_left(begun, units[index].end), first))
    return [[*members] for _, members in numbered]
