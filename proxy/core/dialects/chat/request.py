"""Requests of Chat Completions read, and written anew as bytes.

JSON is scanned once by msgspec, which keeps every value as a slice of the original bytes; lone surrogate
escapes, which it refuses and the API accepts, are read all the same. Only what must be read is validated.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.dialects.answers import Ask
from proxy.core.dialects.chat.body import (
    BOM,
    OPENING,
    Body,
    Members,
    decode_elements,
    decode_members,
    masked,
    member_spans,
)
from proxy.core.formats.json import as_mapping, dumps, elements, loads, members, string, text_or_empty
from proxy.errors import (
    EmptyArray,
    InvalidEncoding,
    InvalidJSON,
    InvalidType,
    JSONTooDeep,
    MissingParameter,
    RequestError,
    TooManyMessages,
)

_MODEL_FIRST = re.compile(rb'\s*{\s*"model"\s*:\s*"([ !#-[\]-~]+)"')
"""Where most clients write it; in ASCII, without escapes."""
_BETWEEN = re.compile(rb"[ \t\r\n,\[]*")
_OFFSET = re.compile(r"\(byte (\d+)\)")
_ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""What the API refuses in a request without tools."""
_OF_THE_PROMPT = (
    *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    *("prompt_cache_key", "prompt_cache_retention", "cache_control", "cache_prompt", "id_slot"),
    *("reasoning_effort", "reasoning", "thinking", "enable_thinking", "verbosity", "chat_template_kwargs"),
    *("service_tier", "provider"),
)
"""What decides how a prompt begins, and where its provider, or a local server, looks for what it has kept."""
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


class _Named(msgspec.Struct):
    model: Any = None


_decode_named = msgspec.json.Decoder(_Named).decode


def model_of(raw: bytes) -> str:
    """The model that a request's body names, read before the rest; empty where it is no text, or no body."""
    first = _MODEL_FIRST.match(raw)
    if first is not None:
        return first[1].decode()
    try:
        model = _decode_named(raw.removeprefix(BOM)).model
    except (msgspec.DecodeError, RecursionError):
        try:
            model = read_body(raw, len(raw)).get("model")
        except RequestError:  # whoever reads the rest says what is wrong with it
            return ""
    return text_or_empty(model)


def asking_for_usage(raw: bytes) -> bytes:
    """A streamed request's body that also asks for the usage of its answer, every other byte as it was."""
    try:
        found: Members = decode_members(raw.removeprefix(BOM))
    except msgspec.DecodeError:  # lone surrogate escapes: this request has been read before
        found = read_body(raw, len(raw)).members
    options = found.get("stream_options")
    if options is None:
        start = raw.index(b"{") + 1
        return raw[:start] + b'"stream_options":{"include_usage":true},' + raw[start:]
    spans = member_spans(raw, found)
    if spans is None:
        return raw
    start, end = spans["stream_options"]
    wanted = {**as_mapping(loads(bytes(options))), "include_usage": True}
    return raw[:start] + dumps(wanted) + raw[end:]


def with_cache_key(raw: bytes, key: str) -> bytes:
    """A request's body that also names the provider's cache, every other byte as it was.

    ``key`` is plain ASCII; a body that has a ``prompt_cache_key`` already must not be given another.
    """
    start = raw.index(b"{") + 1
    rest = memoryview(raw)[start:]
    return b"".join((raw[:start], b'"prompt_cache_key":"', key.encode("ascii"), b'",', rest))


def followed_by(raw: bytes, messages: Sequence[bytes]) -> bytes:
    """A request that goes on with these messages, every other byte as it was."""
    return read_body(raw, len(raw)).followed_by(messages) if messages else raw


def without_tools(raw: bytes, is_meant: Callable[[str], bool]) -> bytes:
    """A request without these tools; without anything about tools, where none is left."""
    body = read_body(raw, len(raw))
    tools = elements(body.slice("tools")) or []
    functions = [members((members(tool) or {}).get("function", b"null")) or {} for tool in tools]
    names = [string(function.get("name")) or "" for function in functions]
    left = [bytes(tool) for tool, name in zip(tools, names, strict=True) if not is_meant(name)]
    if len(left) == len(tools):
        return raw
    if left:
        return body.with_member("tools", b"[" + b",".join(left) + b"]")
    for name in _ABOUT_TOOLS:
        if name in body.members:
            body = body.without(name)
    return body.raw


def read_body(raw: bytes, max_messages: int) -> Body:
    """Split a request body.

    Raises InvalidEncoding, InvalidJSON (with the offset in bytes), JSONTooDeep, InvalidType,
    MissingParameter, EmptyArray or TooManyMessages.
    """
    if b"\x00" in raw[:4]:
        raise InvalidEncoding("The request body is not UTF-8.")
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidEncoding(f"The request body is not UTF-8 (byte {error.start}).") from error
    text = raw.removeprefix(BOM)
    try:
        members = decode_members(text)
        messages = _split_messages(members, max_messages)
    except msgspec.ValidationError as error:
        raise InvalidType("The request body must be a JSON object.") from error
    except msgspec.DecodeError as error:
        if b"\\u" not in raw:
            raise _invalid_json(raw, error) from error
    except RecursionError as error:
        raise JSONTooDeep("The request body is nested too deeply.") from error
    else:
        return Body(raw, members, _checked([bytes(message) for message in messages]))
    return _read_with_surrogates(raw, max_messages)


def _split_messages(members: Mapping[str, msgspec.Raw], max_messages: int) -> list[msgspec.Raw]:
    if "messages" not in members:
        raise MissingParameter("Missing required parameter: 'messages'.", param="messages")
    try:
        messages = decode_elements(members["messages"])
    except msgspec.ValidationError as error:
        raise InvalidType(
            "Invalid type for 'messages': expected an array of objects.", param="messages"
        ) from error
    if not messages:
        raise EmptyArray("Invalid 'messages': empty array.", param="messages")
    if len(messages) > max_messages:
        raise TooManyMessages(f"Too many messages: {len(messages)}, limit {max_messages}.", param="messages")
    return messages


def _checked(messages: list[bytes]) -> list[bytes]:
    """The messages, if each is an object. Raises InvalidType."""
    for index, message in enumerate(messages):
        if message[0] != OPENING:
            name = f"messages[{index}]"
            raise InvalidType(f"Invalid type for '{name}': expected an object.", param=name)
    return messages


def _read_with_surrogates(raw: bytes, max_messages: int) -> Body:
    """Split a body that msgspec refuses for lone surrogate escapes, which the API accepts.

    The scan runs over a copy in which each surrogate escape is another escape of the same length, so that
    every offset found in the copy holds in the original.
    """
    scanned = masked(raw)
    text = scanned.removeprefix(BOM)
    try:
        members = decode_members(text)
        messages = _split_messages(members, max_messages)
    except msgspec.DecodeError as error:
        raise _invalid_json(raw, error) from error
    except RecursionError as error:
        raise JSONTooDeep("The request body is nested too deeply.") from error
    spans = member_spans(scanned, members)
    if spans is None:  # a name is written twice: read by value, of which the last counts
        values: dict[str, Any] = dict(loads(raw.removeprefix(BOM)))
        printed = {name: dumps(value) for name, value in values.items()}
        return Body(raw, printed, _checked([dumps(each) for each in values["messages"]]))
    originals = {name: raw[start:end] for name, (start, end) in spans.items()}
    elements = _element_spans(scanned, spans["messages"][0], messages)
    return Body(raw, originals, _checked([raw[start:end] for start, end in elements]))


def _invalid_json(raw: bytes, error: msgspec.DecodeError) -> InvalidJSON:
    found = _OFFSET.search(str(error))
    offset = int(found[1]) + (len(BOM) if raw.startswith(BOM) else 0) if found else len(raw)
    return InvalidJSON(f"The request body is not valid JSON (byte {offset}).", offset=offset)


def _element_spans(text: bytes, start: int, elements: Sequence[msgspec.Raw]) -> Iterable[tuple[int, int]]:
    position = start
    for element in elements:
        found = _BETWEEN.match(text, position)
        position = found.end() if found else position
        yield position, (position := position + memoryview(element).nbytes)


def question(ask: Ask, model: str, *, plain: bool) -> bytes:
    """The body of a request of our own; ``plain`` leaves out schema and temperature, which some refuse."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "system", "content": ask.task}, {"role": "user", "content": ask.text}],
    }
    body |= _limits(ask, plain=plain)
    return dumps({**body, "response_format": _SCHEMA} if ask.is_structured and not plain else body)


def question_after(raw: bytes, ask: Ask, *, plain: bool) -> bytes:
    """A request of our own that goes on from another's messages; ``plain`` as in :func:`question`.

    Of its members, those of the prompt go along as they are. A format for the answer would change how the
    prompt begins, so that none is asked for.
    """
    read = read_body(raw, len(raw))
    message = dumps({"role": "user", "content": f"{ask.task}\n\n{ask.text}"})
    values = {name: bytes(read.members[name]) for name in _OF_THE_PROMPT if name in read.members}
    values["messages"] = b"[%b]" % b",".join((*read.messages, message))
    values |= {name: dumps(value) for name, value in _limits(ask, plain=plain).items()}
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in values.items())


def _limits(ask: Ask, *, plain: bool) -> dict[str, object]:
    if plain:
        return {"max_completion_tokens": ask.max_tokens}
    return {"max_tokens": ask.max_tokens, "temperature": ask.temperature}
