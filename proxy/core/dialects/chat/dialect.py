"""Chat Completions as a dialect: how its messages are read, and written where they are our own."""

from collections.abc import Collection, Sequence
from typing import cast

from proxy.core.dialects.chat.messages import Content
from proxy.core.dialects.dialect import Dialect
from proxy.core.formats.json import as_mapping, dumps, loads
from proxy.core.summaries.prompt import Ask


class ChatCompletions:
    """How the messages of ``POST /v1/chat/completions`` are written."""

    read = staticmethod(Content.of)

    def may_hold_pictures(self, raw: bytes) -> bool:
        """Told from its bytes, of which the name of a part may be escaped."""
        return b"image_url" in raw or b"\\u" in raw

    def note(self, text: str, role: str) -> bytes:
        """A text of our own as a message."""
        return dumps({"role": role, "content": text})

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        """A call as a message of the assistant's that says nothing else."""
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return dumps({"role": "assistant", "content": None, "tool_calls": [call]})

    def result(self, call_id: str, text: str) -> bytes:
        """What came of it."""
        return dumps({"role": "tool", "tool_call_id": call_id, "content": text})

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        """What a note would set side by side becomes one message.

        A note is a user message, and so may be its neighbours. Such a run goes out as one user message whose
        parts are the run's own, untouched. What the client itself sent side by side stays as it is, unless a
        note joins it. The same holds for what a caller has handed in. Its tool results end with a word of the
        assistant's where the user speaks next: models that insist know no user who answers a tool.
        """
        merged, holds_note = list(prelude), bool(prelude)
        if view and prelude and Content.of(prelude[-1]).role == "tool" and _is_user(view[0]):
            merged.append(_WELL)
        for place, raw in enumerate(view):
            is_note = place in notes
            if merged and (is_note or holds_note) and _is_user(merged[-1]) and _is_user(raw):
                merged[-1] = _joined(merged[-1], raw)
                holds_note = True
            else:
                merged.append(raw)
                holds_note = is_note
        return merged


CHAT: Dialect = ChatCompletions()
_SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "summary",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"summary": {"type": "string"}},
            "required": ["summary"],
            "additionalProperties": False,
        },
    },
}
_WELL = dumps({"role": "assistant", "content": "OK."})


def _is_user(raw: bytes) -> bool:
    return Content.of(raw).role == "user"


def _joined(first: bytes, second: bytes) -> bytes:
    """The second message with the parts of the first before its own."""
    members = dict(as_mapping(loads(second)))
    members["content"] = [*_parts(as_mapping(loads(first)).get("content")), *_parts(members.get("content"))]
    return dumps(members)


def _parts(content: object) -> list[object]:
    if isinstance(content, list):
        return cast("list[object]", content)
    return [{"type": "text", "text": content}] if content else []


def question(ask: Ask, model: str, *, plain: bool) -> bytes:
    """The body of a request of our own; ``plain`` leaves out schema and temperature, which some refuse."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "system", "content": ask.task}, {"role": "user", "content": ask.text}],
    }
    if plain:
        return dumps({**body, "max_completion_tokens": ask.max_tokens})
    body |= {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
    return dumps({**body, "response_format": _SCHEMA} if ask.is_structured else body)
