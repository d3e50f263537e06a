"""Decides for each tool call of an upstream's answer whether the client gets it or the proxy answers it.

Several answers of the upstream become one: each but the last loses its tool calls, which the proxy has
answered, and their texts are joined as if they were one answer's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from msgspec import Raw

from proxy.core.dialects.answers import HiddenCallRules, ToolCall, Usage
from proxy.core.dialects.chat.completion import FAILED, SHARED, has_odd_choices, reported_error
from proxy.core.dialects.chat.delta import NESTED, NULL, Deltas, Merger, PartialCall, PartialMessage, add
from proxy.core.dialects.chat.usage import summed, usage_of
from proxy.core.formats.json import dumps, elements, members, object_of

_ARGUMENTS = ("arguments", "input")
_SAYS_NOTHING = (b'""', b"null")
_CUT_SHORT = frozenset(
    {b'"length"', b'"max_tokens"', b'"content_filter"', b'"error"', b'"insufficient_system_resource"'}
)
"""Finish reasons after which calls may be incomplete; upstreams have many words for the other reasons."""

Element = tuple[dict[str, Raw], PartialCall]
"""An element of a delta's ``tool_calls``, and the call that it belongs to."""


class _Fate(Enum):
    UNNAMED = auto()
    ANSWERABLE = auto()
    """The proxy will answer it, if it can."""
    CLIENT = auto()
    HIDDEN = auto()
    """The proxy has answered it."""
    DROPPED = auto()
    """Nobody answers it: the tool is the proxy's own, and no further request may be made to the upstream."""


_UNSEEN = (_Fate.HIDDEN, _Fate.DROPPED)


class Calls:
    """The tool calls of one answer while they arrive, delta by delta.

    A name may come in pieces: it is complete when the arguments or the next call begin, or the answer ends.
    ``may_ask`` is false if no further request may be made: then no call is held back, and calls of the
    proxy's own tools are dropped.
    """

    def __init__(self, rules: HiddenCallRules, *, may_ask: bool) -> None:
        self._rules = rules
        self._may_ask = may_ask
        self._fates: list[_Fate] = []
        """The fate of each call, by its place."""
        self._settled = 0
        self.message = PartialMessage()
        """The message that makes the calls, as the upstream wrote it."""

    @property
    def has_answerable(self) -> bool:
        """Whether there is a call that the proxy may answer."""
        return _Fate.ANSWERABLE in self._fates

    @property
    def shows_any(self) -> bool:
        """Whether the client sees any call."""
        return _Fate.CLIENT in self._fates

    def take(self, raw: Raw) -> list[Element]:
        """Take the ``tool_calls`` of one delta."""
        taken = self.message.add_calls(raw)
        for delta, call in taken:
            if call.place == len(self._fates):
                self.name_all()
                self._fates.append(_Fate.UNNAMED)
            inner = (members(delta[part]) or {} for part in NESTED if part in delta)
            values = [each[name] for each in inner for name in _ARGUMENTS if name in each]
            if any(bytes(value) not in _SAYS_NOTHING for value in values):  # its arguments have begun
                self._name(call.place)
        return taken

    def name_all(self) -> None:
        """Take note that all names are complete, and decide on the calls."""
        for place in range(self._settled, len(self._fates)):
            self._name(place)

    def _name(self, place: int) -> None:
        if self._fates[place] is _Fate.UNNAMED:
            tool = self.message.calls[place].name
            is_own = self._rules.is_own_tool(tool)
            if self._may_ask and (is_own or self._rules.may_answer(tool)):
                self._fates[place] = _Fate.ANSWERABLE
            else:
                self._fates[place] = _Fate.DROPPED if is_own else _Fate.CLIENT
            self._advance()

    def _advance(self) -> None:
        open_fates = (_Fate.UNNAMED, _Fate.ANSWERABLE)
        while self._settled < len(self._fates) and self._fates[self._settled] not in open_fates:
            self._settled += 1

    def are_settled(self, elements: Sequence[Element]) -> bool:
        """Whether the fates of these elements' calls, and of all calls before them, are decided."""
        return all(call.place < self._settled for _, call in elements)

    def answerable(self) -> list[ToolCall]:
        """The calls that the proxy may answer."""
        return self._those(_Fate.ANSWERABLE)

    def for_client(self) -> list[ToolCall]:
        """The calls that the client sees."""
        return self._those(_Fate.CLIENT)

    def _those(self, fate: _Fate) -> list[ToolCall]:
        calls = [call for call in self.message.calls if self._fates[call.place] is fate]
        for call in calls:
            if not call.id:  # a result needs an id to name its call
                call.add({"id": Raw(dumps(f"call_{call.place}"))})
        return [ToolCall(call.place, call.id or "", call.name, call.arguments) for call in calls]

    def settle(self, hidden: Collection[ToolCall] = ()) -> None:
        """Decide on all calls that are still open.

        Those in ``hidden`` are hidden, other calls of the proxy's own tools dropped, and the client gets the
        rest.
        """
        self._may_ask = False
        self.name_all()
        places = {call.place for call in hidden}
        for place, fate in enumerate(self._fates):
            if fate is _Fate.ANSWERABLE and place in places:
                self._fates[place] = _Fate.HIDDEN
            elif fate is _Fate.ANSWERABLE:
                is_own = self._rules.is_own_tool(self.message.calls[place].name)
                self._fates[place] = _Fate.DROPPED if is_own else _Fate.CLIENT
        self._advance()

    def client_deltas(self, elements: Sequence[Element]) -> list[dict[str, Raw]]:
        """Return these elements as the client gets them: hidden calls are left out, the rest renumbered."""
        shown: list[dict[str, Raw]] = []
        for delta, call in elements:
            before = self._fates[: call.place]
            if self._fates[call.place] in _UNSEEN:
                continue
            if any(fate in _UNSEEN for fate in before):
                shown.append({**delta, "index": Raw(b"%d" % before.count(_Fate.CLIENT))})
            else:
                shown.append(delta)
        return shown

    def message_without(self, calls: Collection[ToolCall]) -> bytes:
        """Return the message as the upstream wrote it, without these calls and the dropped ones."""
        places = {call.place for call in calls}
        fates = enumerate(self._fates)
        places |= {place for place, fate in fates if fate is _Fate.DROPPED}
        return self.message.json(without=[self.message.calls[place] for place in places])


class Editor:
    """The common part of the implementations of :class:`~proxy.core.dialects.answers.AnswerEditor`."""

    def __init__(self, rules: HiddenCallRules) -> None:
        self._rules = rules
        self._shared: dict[str, bytes] = {}
        self._spent = b""
        self._visible = PartialMessage()
        self._is_first = True
        self.has_given_up = False
        self._begin(may_ask=True)

    def _begin(self, *, may_ask: bool) -> None:
        self._calls = Calls(self._rules, may_ask=may_ask)
        self._finish = self._usage = b""
        self.has_ended = self.is_over = False

    @property
    def visible(self) -> bytes:
        return self._visible.json()

    @property
    def earlier_usage(self) -> Usage:
        return usage_of(self._spent)

    @property
    def total_usage(self) -> Usage:
        return usage_of(summed(self._spent, self._usage))

    def answerable_calls(self) -> list[ToolCall]:
        """Empty where the round broke off, was cut short, or cannot be read."""
        is_whole = self.has_ended and not self.has_given_up and self._finish not in _CUT_SHORT
        return self._calls.answerable() if is_whole else []

    def client_calls(self) -> list[ToolCall]:
        return self._calls.for_client()

    def message(self, without: Collection[ToolCall] = ()) -> bytes:
        return self._calls.message_without(without)

    def go_on(self, *, may_ask: bool) -> None:
        self._spent = summed(self._spent, self._usage)
        self._is_first = False
        self._begin(may_ask=may_ask)


class CompletionEditor(Editor):
    """Edits answers that are not streamed as the stream's editor edits streams, with the same merging."""

    def __init__(self, rules: HiddenCallRules) -> None:
        super().__init__(rules)
        self._logprobs: Deltas = {}

    def feed(self, chunk: bytes) -> bytes:
        self._body = chunk
        self._top = members(chunk) or {}
        choices = elements(self._top.get("choices", NULL)) or []
        self._choice = (members(choices[0]) if len(choices) == 1 else None) or {}
        message = members(self._choice.get("message", NULL))
        self._others = {name: raw for name, raw in (message or {}).items() if name != "tool_calls"}
        self._calls.take((message or {}).get("tool_calls", NULL))
        self._calls.name_all()
        self._calls.message.add(self._others)
        self._visible.add(self._others)
        add(self._logprobs, members(self._choice.get("logprobs", NULL)) or {})
        self._usage = _unless_null(self._top.get("usage", NULL))
        finish = _unless_null(self._choice.get("finish_reason", NULL))
        self._finish = finish if reported_error(self._top) is None else FAILED
        if not self._shared:
            self._shared = {name: bytes(self._top[name]) for name in SHARED if name in self._top}
        self.has_given_up = message is None or has_odd_choices(self._top) or self._calls.message.is_odd
        self.has_ended = self.is_over = True
        return b""

    def rest(self) -> bytes:
        return b""

    def settle(self, hidden: Collection[ToolCall]) -> None:
        self._calls.settle(hidden)
        for call in self._calls.for_client():
            written, _ = self._calls.message.calls[call.place].written()
            self._visible.add({"tool_calls": Raw(b"[%b]" % written)})

    def end(self, comment: bytes = b"") -> bytes:
        """Return the upstream's own bytes where nothing is hidden; they have no place for a ``comment``.

        Otherwise the message joins all rounds, and has the other members of the last round's message.
        """
        if self._is_first and len(self._calls.for_client()) == len(self._calls.message.calls):
            return self._body
        message: dict[str, bytes | Raw] = {**(members(self.visible) or {})}
        message |= {name: raw for name, raw in self._others.items() if name not in message}
        choice = {**self._choice, "message": object_of(message.items())}
        if self._finish == b'"tool_calls"' and not self._calls.shows_any:
            choice["finish_reason"] = b'"stop"'
        if logprobs := Merger().merged(self._logprobs):
            choice["logprobs"] = object_of(logprobs.items())
        shared = {name: raw for name, raw in self._shared.items() if name in self._top}
        usage = summed(self._spent, self._usage)
        edited = {"choices": b"[" + object_of(choice.items()) + b"]"} | ({"usage": usage} if usage else {})
        return object_of({**self._top, **shared, **edited}.items())


def _unless_null(raw: Raw) -> bytes:
    return b"" if bytes(raw) == b"null" else bytes(raw)
