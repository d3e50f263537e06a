"""Answers in one piece, in some of which the proxy answers calls: several told as one.

Does to whole answers what :mod:`proxy.core.dialects.chat.stream_editor` does to streams, by the same merging.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Raw

from proxy.core.dialects.answers import Rules, ToolCall, Usage
from proxy.core.dialects.chat.calls import Calls
from proxy.core.dialects.chat.completion import SHARED, has_odd_choices, summed, usage_of
from proxy.core.dialects.chat.delta import NULL, Deltas, Merger, PartialMessage, add, object_of
from proxy.core.formats.json import elements, members


class AnswerEditor:
    """Puts answers to one request together; ``rules`` say which calls may be hidden."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._shared: dict[str, Raw] = {}
        self._spent = self._usage = b""
        self._rounds_message = PartialMessage()
        self._logprobs: Deltas = {}
        self._rounds = 0
        self._body = b""
        self._begin(may_ask=True)

    def _begin(self, *, may_ask: bool) -> None:
        self._calls = Calls(self._rules, may_ask=may_ask)
        self._top: dict[str, Raw] = {}
        self._choice: dict[str, Raw] = {}
        self._message: dict[str, Raw] = {}
        self._is_completion = True

    @property
    def has_given_up(self) -> bool:
        return not self._is_completion or self._calls.message.is_odd

    @property
    def visible(self) -> bytes:
        return self._rounds_message.json()

    @property
    def spent(self) -> Usage:
        return usage_of(self._spent)

    def feed(self, body: bytes) -> None:
        self._body = body
        self._top = members(body) or {}
        choices = elements(self._top.get("choices", NULL)) or []
        self._choice = (members(choices[0]) if len(choices) == 1 else None) or {}
        message = members(self._choice.get("message", NULL))
        self._is_completion = message is not None and not has_odd_choices(self._top)
        self._message = message or {}
        self._calls.take(self._message.get("tool_calls", NULL))
        self._calls.name_all()
        self._calls.message.add(self._without_calls())
        self._rounds_message.add(self._without_calls())
        add(self._logprobs, members(self._choice.get("logprobs", NULL)) or {})
        self._usage = summed(self._usage, _unless_null(self._top.get("usage", NULL)))
        self._shared = self._shared or {name: self._top[name] for name in SHARED if name in self._top}

    def requested(self) -> list[ToolCall]:
        finish = _unless_null(self._choice.get("finish_reason", NULL))
        return [] if self.has_given_up else self._calls.requested(finish)

    def shown(self) -> list[ToolCall]:
        return self._calls.shown()

    def message(self, without: Collection[ToolCall] = ()) -> bytes:
        return self._calls.message_without(without)

    def go_on(self, *, may_ask: bool) -> None:
        self._rounds += 1
        self._spent = self._usage
        self._begin(may_ask=may_ask)

    def settle(self, hidden: Collection[ToolCall]) -> None:
        self._calls.settle(hidden)
        for call in self._calls.shown():
            self._rounds_message.add(
                {"tool_calls": Raw(b"[" + self._calls.message.calls[call.place].written()[0] + b"]")}
            )

    @property
    def is_untouched(self) -> bool:
        return not self._rounds and len(self._calls.shown()) == len(self._calls.message.calls)

    def end(self) -> bytes:
        """The answer for the client: the upstream's own bytes where nothing is hidden.

        Its message has whatever the last round's says besides.
        """
        if self.is_untouched:
            return self._body
        shown_members = members(self.visible) or {}
        others = {name: raw for name, raw in self._without_calls().items() if name not in shown_members}
        choice = {**self._choice, "message": object_of({**shown_members, **others}.items())}
        if self._choice.get("finish_reason") == Raw(b'"tool_calls"') and not self._calls.shows_any:
            choice["finish_reason"] = b'"stop"'
        if logprobs := Merger().merged(self._logprobs):
            choice["logprobs"] = object_of(logprobs.items())
        top = {**self._top, **{name: raw for name, raw in self._shared.items() if name in self._top}}
        usage = {"usage": self._usage} if self._usage else {}
        return object_of({**top, "choices": b"[" + object_of(choice.items()) + b"]", **usage}.items())

    def _without_calls(self) -> dict[str, Raw]:
        return {name: raw for name, raw in self._message.items() if name != "tool_calls"}


def _unless_null(raw: Raw) -> bytes:
    return b"" if bytes(raw) == b"null" else bytes(raw)
