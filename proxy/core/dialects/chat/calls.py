"""What becomes of the tool calls in one answer of the upstream: the client's, or answered by the proxy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from msgspec import Raw

from proxy.core.dialects.answers import Rules, ToolCall
from proxy.core.dialects.chat.delta import NESTED, PartialCall, PartialMessage
from proxy.core.formats.json import dumps, members

_ARGUMENTS = ("arguments", "input")
_SAYS_NOTHING = (b'""', b"null")
_CUT_SHORT = frozenset(
    {b'"length"', b'"max_tokens"', b'"content_filter"', b'"error"', b'"insufficient_system_resource"'}
)
"""Reasons for an end after which calls may be half ones; upstreams have many words for the others."""

Element = tuple[dict[str, Raw], PartialCall]
"""What a delta says of a call, and that call."""


class _Fate(Enum):
    UNNAMED = auto()
    OURS = auto()
    """To be answered by the proxy, if it can."""
    SHOWN = auto()
    HIDDEN = auto()
    """Answered by the proxy."""
    DROPPED = auto()
    """Not answered by anybody: the tool is ours, and nothing more may be asked of the upstream."""


_UNSEEN = (_Fate.HIDDEN, _Fate.DROPPED)


class Calls:
    """The calls of one answer while they come in, delta by delta.

    A name may come in pieces: it is known when the arguments begin, or the next call, or the answer ends.
    ``may_ask`` is false where no further request is made: then nothing is held, and ours are dropped.
    """

    def __init__(self, rules: Rules, *, may_ask: bool) -> None:
        self._rules = rules
        self._may_ask = may_ask
        self._places: dict[PartialCall, int] = {}
        self._fates: list[_Fate] = []
        self._decided = 0
        self.message = PartialMessage()
        """The message that makes them, as the upstream says it."""

    @property
    def is_asking(self) -> bool:
        """Whether there is a call that the proxy may answer."""
        return _Fate.OURS in self._fates

    @property
    def shows_any(self) -> bool:
        """Whether the client sees a call."""
        return _Fate.SHOWN in self._fates

    def take(self, raw: Raw) -> list[Element]:
        """Take what one delta says of calls."""
        taken = self.message.add_calls(raw)
        for delta, call in taken:
            if call not in self._places:
                self.name_all()
                self._places[call] = len(self._fates)
                self._fates.append(_Fate.UNNAMED)
            inner = (members(delta[part]) or {} for part in NESTED if part in delta)
            values = [each[name] for each in inner for name in _ARGUMENTS if name in each]
            if any(bytes(value) not in _SAYS_NOTHING for value in values):  # its arguments have begun
                self._name(self._places[call])
        return taken

    def name_all(self) -> None:
        """All names are complete."""
        for place in range(self._decided, len(self._fates)):
            self._name(place)

    def _name(self, place: int) -> None:
        if self._fates[place] is _Fate.UNNAMED:
            tool = self.message.calls[place].name
            is_ours = self._rules.is_ours(tool)
            if self._may_ask and (is_ours or self._rules.holds(tool)):
                self._fates[place] = _Fate.OURS
            else:
                self._fates[place] = _Fate.DROPPED if is_ours else _Fate.SHOWN
            self._advance()

    def _advance(self) -> None:
        open_fates = (_Fate.UNNAMED, _Fate.OURS)
        while self._decided < len(self._fates) and self._fates[self._decided] not in open_fates:
            self._decided += 1

    def are_settled(self, elements: Sequence[Element]) -> bool:
        """Whether it is known how the client sees these: what becomes of them and of those before."""
        return all(self._places[call] < self._decided for _, call in elements)

    def requested(self, finish: bytes) -> list[ToolCall]:
        """The calls that the proxy may answer; none where the answer was cut short."""
        return [] if finish in _CUT_SHORT else self._those(_Fate.OURS)

    def shown(self) -> list[ToolCall]:
        """The calls that the client sees."""
        return self._those(_Fate.SHOWN)

    def _those(self, fate: _Fate) -> list[ToolCall]:
        places = [place for place, each in enumerate(self._fates) if each is fate]
        calls = [(place, self.message.calls[place]) for place in places]
        for place, call in calls:
            if not call.id:  # a result could not name it
                call.add({"id": Raw(dumps(f"call_{place}"))})
        return [ToolCall(place, call.id or "", call.name, call.arguments) for place, call in calls]

    def settle(self, hidden: Collection[ToolCall] = ()) -> None:
        """Nothing more is to be decided: all that was asked for is the client's, but for ours and these."""
        self._may_ask = False
        self.name_all()
        places = {call.place for call in hidden}
        for place, fate in enumerate(self._fates):
            if fate is _Fate.OURS and place in places:
                self._fates[place] = _Fate.HIDDEN
            elif fate is _Fate.OURS:
                is_ours = self._rules.is_ours(self.message.calls[place].name)
                self._fates[place] = _Fate.DROPPED if is_ours else _Fate.SHOWN
        self._advance()

    def seen(self, elements: Sequence[Element]) -> list[dict[str, Raw]]:
        """What the client is told of these: without the hidden ones, and numbered without them."""
        shown: list[dict[str, Raw]] = []
        for delta, call in elements:
            place = self._places[call]
            before = self._fates[:place]
            if self._fates[place] in _UNSEEN:
                continue
            if any(fate in _UNSEEN for fate in before):
                shown.append({**delta, "index": Raw(b"%d" % before.count(_Fate.SHOWN))})
            else:
                shown.append(delta)
        return shown

    def message_without(self, calls: Collection[ToolCall]) -> bytes:
        """The message as the upstream said it, but for these calls and those that were dropped."""
        places = {call.place for call in calls}
        fates = enumerate(self._fates)
        places |= {place for place, fate in fates if fate is _Fate.DROPPED}
        return self.message.json(without=[self.message.calls[place] for place in places])
