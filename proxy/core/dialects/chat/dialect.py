"""Chat Completions as a dialect: its messages, requests and answers, read and written."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from proxy.core.dialects.chat.answer_editor import AnswerEditor
from proxy.core.dialects.chat.completion import (
    TRUNCATED_EVENT,
    StreamCollector,
    read_completion,
    stored_answer,
)
from proxy.core.dialects.chat.messages import (
    Content,
    holds_reasoning,
    holds_signed_reasoning,
    without_reasoning,
)
from proxy.core.dialects.chat.refusals import read_refusal
from proxy.core.dialects.chat.request import (
    asking_for_usage,
    followed_by,
    model_of,
    question,
    question_after,
    read_body,
    with_cache_key,
    without_tools,
)
from proxy.core.dialects.chat.stream_editor import StreamEditor
from proxy.core.dialects.chat.stream_filters import FinalEvent, UsageRemover
from proxy.core.dialects.wire import WireFormat
from proxy.core.formats.json import as_mapping, dumps, loads


class ChatCompletions:
    """How ``POST /v1/chat/completions`` is spoken."""

    # --- a conversation ---

    name = "chat"
    read = staticmethod(Content.of)

    holds_reasoning = staticmethod(holds_reasoning)
    holds_signed_reasoning = staticmethod(holds_signed_reasoning)
    without_reasoning = staticmethod(without_reasoning)

    def may_hold_pictures(self, raw: bytes) -> bool:
        """Told from its bytes, of which the name of a part may be escaped."""
        return b"image_url" in raw or b"\\u" in raw

    def note(self, text: str, role: str) -> bytes:
        return dumps({"role": role, "content": text})

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return dumps({"role": "assistant", "content": None, "tool_calls": [call]})

    def result(self, call_id: str, text: str) -> bytes:
        return dumps({"role": "tool", "tool_call_id": call_id, "content": text})

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        """What a note would set side by side becomes one message.

        A note that is a user message may have such neighbours. Such a run goes out as one user message whose
        parts are the run's own, untouched. What the client itself sent side by side stays as it is, unless a
        note joins it. The same holds for what a caller has handed in. Its tool results end with a word of the
        assistant's where the user speaks next: models that insist know no user who answers a tool.
        """
        merged, holds_note = list(prelude), bool(prelude)
        if len(prelude) > 1 and _is_user(prelude[0]) and _is_user(prelude[1]):
            merged[:2] = [_joined(prelude[0], prelude[1])]
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

    # --- requests ---

    path = "/chat/completions"
    model_of = staticmethod(model_of)
    read_body = staticmethod(read_body)
    question = staticmethod(question)
    question_after = staticmethod(question_after)
    asking_for_usage = staticmethod(asking_for_usage)
    with_cache_key = staticmethod(with_cache_key)
    followed_by = staticmethod(followed_by)
    without_tools = staticmethod(without_tools)

    # --- answers ---

    truncated_event = TRUNCATED_EVENT
    refusal = staticmethod(read_refusal)
    read_answer = staticmethod(read_completion)
    answer_stream = StreamCollector
    stream_editor = StreamEditor
    answer_editor = AnswerEditor
    usage_remover = UsageRemover
    final_event = FinalEvent
    stored_answer = staticmethod(stored_answer)

    def error_event(self, body: Mapping[str, Any]) -> bytes:
        """The error as data, such as an answer in one piece has it."""
        return b"data: %b\n\n" % dumps(body)


CHAT: WireFormat = ChatCompletions()
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
