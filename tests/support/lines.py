"""A toy dialect: a message is a line, a body is several lines. A dialect needs nothing more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from proxy.core.dialects.dialect import Body, Content, Dialect
from proxy.core.formats.json import dumps, loads
from proxy.core.persistent import PersistentList

ROLES = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}


class Line(Content):
    """A message: ``["u", "text"]``, with calls as ``{id: [tool, arguments]}`` or results as ``{id: text}``.

    A line may bring several results, with or without something that is said beside them.
    """

    def __init__(self, who: str, said: str, more: Mapping[str, Any] | None = None) -> None:
        self.who, self.said, self.more = who, said, more or {}
        self.role, self.parts = ROLES[who], [{"text": said}]
        if who == "a":
            self.calls = [(call, *made) for call, made in self.more.items()]
        elif more:
            self.result_of = tuple(more)
            self.parts = [{"text": text} for text in (*more.values(), *filter(None, (said,)))]

    def with_texts(self, texts: Sequence[str]) -> Line:
        results = dict(zip(self.result_of, texts, strict=False))
        return Line(self.who, "".join(texts[len(results) :]), results or self.more)

    def with_text(self, text: str) -> Line:
        return Line(self.who, text, self.more)

    def pieces(self) -> Sequence[Line]:
        if not self.result_of:
            return (self,)
        results = [Line("t", "", {call: text}) for call, text in self.more.items()]
        return [*results, Line(self.who, self.said)] if self.said else results

    def with_results(self, texts: Sequence[str]) -> Line:
        return self.with_texts([*texts, self.said])

    def written(self) -> bytes:
        return dumps([self.who, self.said, self.more] if self.more else [self.who, self.said])


class Lines:
    """The part of the dialect that planning and sessions need: messages."""

    name = "lines"

    def read(self, raw: bytes) -> Line:
        return Line(*loads(raw))

    def may_hold_pictures(self, raw: bytes) -> bool:
        return False

    def holds_reasoning(self, raw: bytes) -> bool:
        return False

    def holds_signed_reasoning(self, raw: bytes) -> bool:
        return False

    def sent_back(self, answer: bytes) -> bytes:
        return answer

    def without_reasoning(self, raw: bytes) -> bytes:
        return raw

    def note(self, text: str, role: str) -> bytes:
        return Line(role[0], text).written()

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        return Line("a", "", {call_id: [name, arguments]}).written()

    def result(self, call_id: str, text: str) -> bytes:
        return Line("t", "", {call_id: text}).written()

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        return [*prelude, *view]


@dataclass(frozen=True)
class LinesBody:
    """A request: the model's name, then one line per message."""

    model: str
    messages: PersistentList[bytes]
    members: Collection[str] = ()
    person: str = ""
    output_limit: int | None = None
    is_streamed: bool = False
    has_cache_key: bool = True
    has_provider_additions: bool = False

    @property
    def raw(self) -> bytes:
        return self.with_messages(self.messages)

    def head_members(self) -> list[bytes]:
        return []

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        return b"\n".join([self.model.encode(), *messages])

    def prefix(self) -> None:
        """Return None: a body is always read from its start."""


class SpokenLines(Lines):
    """The whole dialect, including requests and answers."""

    path = "/lines"

    def read_body(self, raw: bytes, max_messages: int) -> Body:
        model, *messages = raw.split(b"\n", max_messages)
        return cast("Body", LinesBody(model.decode(), PersistentList([*messages])))


LINES = cast("Dialect", SpokenLines())
