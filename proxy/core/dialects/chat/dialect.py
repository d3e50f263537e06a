"""Chat Completions as a dialect: its messages, requests and answers, read and written."""

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from proxy.core.dialects.answers import Ask
from proxy.core.dialects.chat.answer_editor import CompletionEditor
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.chat.completion import StreamCollector, read_completion, stored_answer
from proxy.core.dialects.chat.messages import (
    Content,
    holds_reasoning,
    holds_signed_reasoning,
    sent_back,
    without_reasoning,
)
from proxy.core.dialects.chat.refusals import read_refusal
from proxy.core.dialects.chat.stream_editor import StreamEditor
from proxy.core.dialects.chat.stream_filters import FinalEvent, UsageRemover
from proxy.core.dialects.dialect import Dialect
from proxy.core.formats.json import (
    as_mapping,
    dumps,
    elements,
    loads,
    members,
    object_of,
    string,
    text_or_empty,
)
from proxy.core.formats.splice import JSONObject, element_slices
from proxy.errors import RequestError

_MODEL_FIRST = re.compile(rb'\s*{\s*"model"\s*:\s*"([ !#-[\]-~]+)"')
"""The model, where most clients write it: as the first member, in ASCII, without escapes."""
_ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""Members that the API refuses in a request without tools."""
_OF_THE_PROMPT = (
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    *("prompt_cache_key", "prompt_cache_retention", "cache_control", "cache_prompt", "id_slot"),
    *("reasoning_effort", "reasoning", "thinking", "enable_thinking", "verbosity", "chat_template_kwargs"),
    *("service_tier", "provider"),
)
"""Members that decide how a prompt begins, and where the provider or a local server looks for its cache."""
_OF_THE_CLIENT = ("stream", "stream_options", "store", "metadata", "user", "safety_identifier")
"""Members about how the answer is delivered, who asks, and what the provider stores."""
_SUMMARY: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}},
    "required": ["summary"],
    "additionalProperties": False,
}
_SUMMARY_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "summary", "strict": True, "schema": _SUMMARY},
}


class _Named(msgspec.Struct):
    model: Any = None


_NAMED = msgspec.json.Decoder(_Named)


class ChatCompletions:
    """The dialect of ``POST /v1/chat/completions``."""

    name = "chat"
    path = "/chat/completions"

    read = staticmethod(Content.of)
    holds_reasoning = staticmethod(holds_reasoning)
    holds_signed_reasoning = staticmethod(holds_signed_reasoning)
    without_reasoning = staticmethod(without_reasoning)
    sent_back = staticmethod(sent_back)
    read_body = staticmethod(read_body)
    refusal = staticmethod(read_refusal)
    read_answer = staticmethod(read_completion)
    answer_stream = StreamCollector
    stream_editor = StreamEditor
    answer_editor = CompletionEditor
    usage_remover = UsageRemover
    final_event = FinalEvent
    stored_answer = staticmethod(stored_answer)

    def may_hold_pictures(self, raw: bytes) -> bool:
        """Check the raw bytes; an escape may hide the name of a picture part, so it counts as one."""
        return b"image_url" in raw or b"\\u" in raw

    # --- messages of our own ---

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
        """Join each note that is a user message with neighbouring user messages.

        Such a run becomes one user message with the parts of all, unchanged. Adjacent user messages of the
        client's own stay separate, unless a note joins them. The same holds for the prelude, which a caller
        handed in. Where a note follows a tool result, or a user message the results at the prelude's end, a
        short assistant message goes between them: models that insist on alternation accept no user message
        after a tool result.
        """
        merged, holds_note = list(prelude), bool(prelude)
        if len(prelude) > 1 and _is_user(prelude[0]) and _is_user(prelude[1]):
            merged[:2] = [_joined(prelude[0], prelude[1])]
        for place, raw in enumerate(view):
            is_note, is_after_prelude = place in notes, not place and bool(prelude)
            if (is_note or is_after_prelude) and merged and _is_user(raw):
                last = element_slices(b"[%b]" % merged[-1])[-1]  # of several joined by commas
                if Content.of(last).role in ("tool", "function"):
                    merged.append(_WELL)
            if merged and (is_note or holds_note) and _is_user(merged[-1]) and _is_user(raw):
                merged[-1] = _joined(merged[-1], raw)
                holds_note = True
            else:
                merged.append(raw)
                holds_note = is_note
        return merged

    # --- requests ---

    def model_of(self, raw: bytes) -> str:
        first = _MODEL_FIRST.match(raw)
        if first is not None:
            return first[1].decode()
        try:
            return text_or_empty(_NAMED.decode(raw.removeprefix(BOM_UTF8)).model)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            try:
                return read_body(raw, len(raw)).model
            except RequestError:  # reading the whole body reports what is wrong with it
                return ""

    def repeated(self, raw: bytes) -> bytes:
        return JSONObject.read(raw).changed(dict.fromkeys(_OF_THE_CLIENT)).raw

    def streamed(self, raw: bytes) -> bytes:
        return self.asking_for_usage(JSONObject.read(raw).changed({"stream": b"true"}).raw)

    def asking_for_usage(self, raw: bytes) -> bytes:
        written = JSONObject.read(raw)
        if written.spans is None:
            return raw
        options = as_mapping(loads(bytes(written.members.get("stream_options", b"{}"))))
        return written.changed({"stream_options": dumps({**options, "include_usage": True})}).raw

    def with_cache_key(self, raw: bytes, key: str) -> bytes:
        start = raw.index(b"{") + 1
        return b'%b"prompt_cache_key":"%b",%b' % (raw[:start], key.encode("ascii"), memoryview(raw)[start:])

    def followed_by(self, raw: bytes, messages: Sequence[bytes]) -> bytes:
        return read_body(raw, len(raw)).followed_by(messages) if messages else raw

    def without_members(self, raw: bytes, names: Collection[str]) -> bytes:
        hints = [b'"%b"' % name.encode() for name in names]
        if not any(hint in raw for hint in hints):
            return raw
        read, changes = read_body(raw, len(raw)), dict.fromkeys(names)
        left = [
            JSONObject.read(each).changed(changes).raw if any(hint in each for hint in hints) else each
            for each in read.messages
        ]
        return raw if left == [*read.messages] else read.with_messages(left)

    def without_tools(self, raw: bytes, is_meant: Callable[[str], bool]) -> bytes:
        written = JSONObject.read(raw)
        tools = elements(bytes(written.members.get("tools", b""))) or []
        functions = [members((members(tool) or {}).get("function", b"null")) or {} for tool in tools]
        names = [string(function.get("name")) or "" for function in functions]
        left = [bytes(tool) for tool, name in zip(tools, names, strict=True) if not is_meant(name)]
        if len(left) == len(tools):
            return raw
        if left:
            return written.changed({"tools": b"[%b]" % b",".join(left)}).raw
        return written.changed(dict.fromkeys(_ABOUT_TOOLS)).raw

    def question(self, ask: Ask, model: str, *, minimal: bool) -> bytes:
        messages = [{"role": "system", "content": ask.task}, {"role": "user", "content": ask.text}]
        body: dict[str, object] = {"model": model, "messages": messages, **_limits(ask, minimal=minimal)}
        return dumps(
            {**body, "response_format": _SUMMARY_FORMAT} if ask.is_structured and not minimal else body
        )

    def question_after(self, raw: bytes, ask: Ask, *, minimal: bool) -> bytes:
        """Keep only the members that shape the prompt, unchanged.

        No response format is requested: it would change how the prompt begins.
        """
        read = read_body(raw, len(raw))
        message = dumps({"role": "user", "content": f"{ask.task}\n\n{ask.text}"})
        values = {name: bytes(read.members[name]) for name in _OF_THE_PROMPT if name in read.members}
        values["messages"] = b"[%b]" % b",".join((*read.messages, message))
        values |= {name: dumps(value) for name, value in _limits(ask, minimal=minimal).items()}
        return object_of(values.items())

    def error_event(self, body: Mapping[str, Any]) -> bytes:
        """Write the error as the event's data, in the form of an error response's body."""
        return b"data: %b\n\n" % dumps(body)


CHAT: Dialect = ChatCompletions()
_WELL = dumps({"role": "assistant", "content": "OK."})


def _is_user(raw: bytes) -> bool:
    return Content.of(raw).role == "user"


def _joined(first: bytes, second: bytes) -> bytes:
    """Return the second message, with the parts of the first put before its own."""
    members = dict(as_mapping(loads(second)))
    members["content"] = [*_parts(as_mapping(loads(first)).get("content")), *_parts(members.get("content"))]
    return dumps(members)


def _parts(content: object) -> list[object]:
    if isinstance(content, list):
        return cast("list[object]", content)
    return [{"type": "text", "text": content}] if content else []


def _limits(ask: Ask, *, minimal: bool) -> dict[str, object]:
    if minimal:
        return {"max_completion_tokens": ask.max_tokens}
    return {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
