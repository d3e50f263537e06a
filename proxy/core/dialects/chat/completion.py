"""Reads answers, streamed or not, for the transcript, and writes them again from it.

Reads chat completions and their chunks as the OpenAI API reference describes them ("The chat completion
object", "The chat completion chunk object"). The client has been sent the bytes already, so nothing here
raises for what an upstream wrote: members of a wrong type count as absent, events that are not JSON are
skipped, and the answer says whether it is complete. An answer with any part of its message missing is not
complete; other unreadable members (usage, id, model) are only left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from proxy.core.dialects.answers import Answer, Reply
from proxy.core.dialects.chat.delta import NULL, ROLES, PartialMessage
from proxy.core.dialects.chat.usage import read_usage, reported_usage
from proxy.core.formats.json import (
    UNREADABLE,
    elements,
    integer,
    members,
    object_of,
    string,
    well_formed,
)
from proxy.core.formats.sse import EVENT_LIMIT, Decoder, Event

if TYPE_CHECKING:
    from collections.abc import Mapping

ANSWER_LIMIT = 64 * 1024 * 1024
"""Bytes of events with choices after which an answer is no longer collected."""

SHARED = ("id", "created", "model")
"""Members with the same value in all chunks of a stream, and in all rounds of an answer."""
_DONE = b"data: [DONE]\n\n"
_SAID = ("content", "tool_calls", "function_call", "refusal", "audio")
_NOTHING = (b"null", b'""', b"[]")
FAILED = b'"error"'
"""The finish reason of an answer that failed midway, as JSON."""
_CODES_OF_SUCCESS = (b"null", b'""', b"0", b'"0"', b"200", b'"200"')


class _Choice(msgspec.Struct, gc=False):
    index: int | None = 0
    delta: dict[str, Raw] | None = None
    message: Raw = NULL
    finish_reason: str | None = None
    usage: Raw = NULL


class _Completion(msgspec.Struct, gc=False):
    """The members that are read of a completion, or of a chunk of one."""

    choices: list[_Choice] | None = None
    usage: Raw = NULL
    timings: Raw = NULL
    x_groq: Raw = NULL
    id: str | None = None
    model: str | None = None


_COMPLETION = msgspec.json.Decoder(_Completion)


class StreamCollector:
    """Collects the answer from a stream's bytes as they pass through."""

    def __init__(self, *, limit: int = EVENT_LIMIT, answer_limit: int = ANSWER_LIMIT) -> None:
        self._decoder = Decoder(limit)
        self._room = answer_limit
        self._message = PartialMessage()
        self._finish: dict[int, str | None] = {}  # of every choice seen
        self._usage: tuple[bytes | Raw, Raw] = (NULL, NULL)  # with llama.cpp's timings
        self._error: bytes | None = None
        self._id: str | None = None
        self._model: str | None = None
        self._done = False
        self._unread = False  # the newest event could not be read
        self._hole = False  # a chunk could not be read: some of the answer is missing

    @property
    def overflowed(self) -> bool:
        return self._decoder.overflowed or self._room < 0

    @property
    def truncated(self) -> bool:
        """False also after an error event, which has told the client, and where collecting was given up."""
        if self._done or self._error is not None or self.overflowed:
            return False
        return not self._finish or None in self._finish.values()

    @property
    def separator(self) -> bytes:
        return b"\n\n" if self.truncated and self._decoder.is_within_event else b""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, split anywhere; bytes after `[DONE]` are ignored."""
        if self._done or self._room < 0:
            return
        for event in self._decoder.feed(chunk):
            fields, is_whole = _read(event.data)
            if fields is not None:
                self._hole = self._hole or not is_whole
                self._take(fields, event)
            elif event.data.startswith(b"[DONE]"):
                self._done, self._unread = True, False
                return
            else:  # no JSON object
                if event.name == "error":
                    said = event.data.decode("utf-8", "replace")
                    self._error = self._error or json.dumps({"message": said}).encode()
                self._unread = event.name == "message"
                self._hole = self._hole or (self._unread and event.data.lstrip().startswith(b"{"))

    def answer(self) -> Answer:
        seen = 0 in self._finish
        finish_reason = self._finish.get(0)
        ended = seen and (finish_reason is not None or self._done)
        message, is_odd = self._message.written()
        is_odd = is_odd or self._hole
        return Answer(
            message=well_formed(message) if seen else None,
            finish_reason=finish_reason,
            usage=read_usage(*self._usage),
            complete=ended and self._error is None and not (self._unread or is_odd or self.overflowed),
            is_malformed=is_odd,
            tool_calls=self._message.has_calls,
            choices=len(self._finish),
            error=self._error,
            id=self._id,
            model=self._model,
        )

    def _take(self, fields: _Completion, event: Event) -> None:
        self._unread = False
        error = _error_in(fields, event.data) or (event.data if event.name == "error" else None)
        if error is not None and self._error is None:
            self._error = well_formed(error)
        if not (self._id and self._model):
            self._id, self._model = self._id or fields.id, self._model or fields.model
        in_choice = next((each.usage for each in fields.choices or () if not each.index), NULL)
        if usage := reported_usage(fields.usage, in_choice, fields.x_groq):
            self._usage = usage, fields.timings
        if fields.choices:
            self._room -= len(event.data)
            if len(fields.choices) > 1 and len({each.index or 0 for each in fields.choices}) < len(
                fields.choices
            ):
                self._hole = True
            for choice in fields.choices:
                index = choice.index or 0
                if choice.finish_reason or index not in self._finish:
                    self._finish[index] = choice.finish_reason or None
                if index == 0 and choice.delta:
                    self._message.add(choice.delta)
                elif choice.delta is None and members(choice.message) is not None:
                    self._hole = True  # a message beside a delta is fine: some upstreams repeat it so far


def read_completion(body: bytes) -> Answer:
    """Read an answer that was not streamed. Its message is the upstream's own slice of the body.

    But it gets what requests need and it lacks: a role, and an empty content where it says nothing.
    """
    completion, is_whole = _read(body)
    if completion is None:
        return Answer()
    choices = completion.choices or []
    choice = next((each for each in choices if not each.index), _Choice())  # some upstreams do not number it
    fields, written = members(choice.message), bytes(choice.message)
    if fields is not None:
        lacking = dict[str, Raw]()
        if not string(fields.get("role")):  # requests need a role in each message
            lacking["role"] = Raw(b'"assistant"')
        is_null = bytes(fields.get("content", NULL)) == b"null"  # which the API refuses if nothing is said
        if is_null and all(bytes(fields.get(name, NULL)) in _NOTHING for name in _SAID):
            lacking["content"] = Raw(b'""')
        if lacking:
            written = object_of(({"role": NULL} | fields | lacking).items())
    written = well_formed(written)
    error = _error_in(completion, body)
    has_calls, is_odd = _checked(fields or {})
    is_odd = is_odd or not is_whole
    return Answer(
        message=written if fields is not None else None,
        finish_reason=choice.finish_reason or None,
        usage=read_usage(completion.usage, completion.timings),
        complete=fields is not None and error is None and not is_odd,
        is_malformed=is_odd,
        tool_calls=has_calls,
        choices=len(choices),
        error=None if error is None else well_formed(error),
        id=completion.id,
        model=completion.model,
    )


def _checked(message: Mapping[str, Raw]) -> tuple[bool, bool]:
    """Whether a whole message makes calls, and whether any part of it is invalid."""
    is_listed = bytes(message.get("content", NULL)).startswith(b"[")
    if is_listed or "tool_calls" in message or "function_call" in message:  # read like those of a stream
        partial = PartialMessage()
        partial.add(message)
        return partial.has_calls, partial.is_odd
    for name in ("content", "refusal", "role"):
        text = bytes(message.get(name, NULL))
        is_text = text in ROLES if name == "role" else text.startswith(b'"')
        if not is_text and text != b"null":
            return False, True
    return False, False


def _read(data: bytes) -> tuple[_Completion | None, bool]:
    """Read a completion or a chunk, and whether all its choices could be read; None if it is no object."""
    try:
        return _COMPLETION.decode(data), True
    except UNREADABLE:
        top = members(data)
    if top is None:
        return None, False
    choices = [members(raw) for raw in elements(top.get("choices", NULL)) or []]
    completion = _Completion(  # member by member, so that only those of a wrong type are lost
        choices=[
            _Choice(
                index=integer(choice.get("index")),
                delta=members(choice.get("delta", NULL)),
                message=choice.get("message", NULL),
                finish_reason=string(choice.get("finish_reason")),
                usage=choice.get("usage", NULL),
            )
            for choice in choices
            if choice is not None
        ],
        id=string(top.get("id")),
        model=string(top.get("model")),
        **{name: top[name] for name in ("usage", "timings", "x_groq") if name in top},
    )
    return completion, not has_odd_choices(top)


def has_odd_choices(top: Mapping[str, Raw]) -> bool:
    """Whether anything in the choices of a completion or a chunk has another type than the API's."""
    choices = elements(top.get("choices", NULL))
    if choices is None:
        return top.get("choices", NULL) != NULL
    for choice in map(members, choices):
        if choice is None:
            return True
        for name, read in (("index", integer), ("delta", members), ("finish_reason", string)):
            value = choice.get(name, NULL)
            if value != NULL and read(value) is None:
                return True
    return False


def reported_error(top: Mapping[str, Raw]) -> bytes | None:
    """The error that a completion or a chunk reports, as JSON; None where it reports none.

    It is a member beside the choices or, as OpenRouter has it, of a choice; or the finish reason alone tells
    of it. Some servers send an error that is no member of anything.
    """
    if top.get("error", NULL) != NULL:
        return bytes(top["error"])
    for choice in map(members, elements(top.get("choices", NULL)) or ()):
        if choice is None or integer(choice.get("index")):  # no other choice than the first is kept
            continue
        if choice.get("error", NULL) != NULL:
            return bytes(choice["error"])
        if bytes(choice.get("finish_reason", NULL)) == FAILED:
            return object_of(choice.items())
    is_answer = any(top.get(name, NULL) != NULL for name in ("choices", "usage"))
    tells = any(string(top.get(name)) for name in ("message", "error_msg"))
    codes = [bytes(top.get(name, NULL)) for name in ("code", "error_code")]
    is_error = not is_answer and tells and any(code not in _CODES_OF_SUCCESS for code in codes)
    return object_of(top.items()) if is_error else None


def _error_in(completion: _Completion, data: bytes) -> bytes | None:
    """The error that is reported; what has choices and no such word is not read a second time."""
    may_report = completion.choices is None or b'"error"' in data
    return reported_error(members(data) or {}) if may_report else None


def stored_answer(
    message: bytes, reply: Reply, *, name: str, created: float, stream: bool, with_usage: bool
) -> bytes:
    """Write a stored answer as a response body: a stream, with a last chunk ``with_usage``, or one object.

    The message is the one that was sent, with the same id, model and usage. Nothing else of the upstream's
    response was stored.
    """
    top: dict[str, Any] = {
        "id": reply.id or f"chatcmpl-{name}",
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": int(created),
        "model": reply.model,
    }
    usage: dict[str, Any] = {}
    if reply.usage is not None:
        prompt, completion = reply.usage.prompt_tokens or 0, reply.usage.completion_tokens or 0
        total, cached = prompt + completion, reply.usage.cached_tokens
        counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
        details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        usage = {"usage": {**counts, **details}}
    end = {"index": 0, "finish_reason": reply.finish_reason}
    if not stream:
        return msgspec.json.encode({**top, "choices": [{**end, "message": Raw(message)}], **usage})
    fields = members(message) or {}
    delta: dict[str, object] = {**fields}
    if calls := elements(fields.get("tool_calls", NULL)):  # in a delta each has an index
        delta["tool_calls"] = [
            {"index": number, **(members(call) or {})} for number, call in enumerate(calls)
        ]
    first = {"index": 0, "delta": delta, "finish_reason": None}
    last = {**end, "delta": dict[str, object]()}
    chunks: list[dict[str, Any]] = [{**top, "choices": [first]}, {**top, "choices": [last]}]
    if with_usage and usage:
        chunks.append({**top, "choices": [], **usage})
    return b"".join(b"data: %b\n\n" % msgspec.json.encode(chunk) for chunk in chunks) + _DONE
