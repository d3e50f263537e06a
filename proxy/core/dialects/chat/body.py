"""One request body: its members as raw slices, and its messages spliced without touching anything else.

Keeps law 1 (transparent): nothing here re-serialises what the client wrote. JSON is scanned once by
msgspec, which keeps every value as a slice of the original bytes; big integers, lone surrogate escapes,
odd spacing and unknown members pass as they are. Only what must be read is validated.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty
from proxy.core.persistent import grown
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

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_OPENING = ord("{")
BOM = b"\xef\xbb\xbf"
_MEMBER_NAME = re.compile(rb'[ \t\r\n{,]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_MODEL_FIRST = re.compile(rb'\s*{\s*"model"\s*:\s*"([ !#-[\]-~]+)"')
"""Where most clients write it; in ASCII, without escapes."""
_BETWEEN = re.compile(rb"[ \t\r\n,\[]*")
_ESCAPE = re.compile(rb"\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)
_OFFSET = re.compile(r"\(byte (\d+)\)")


Members = Mapping[str, bytes | msgspec.Raw | memoryview]
"""Members by name, each as the bytes of its value."""
Spans = dict[str, tuple[int, int]]
"""Where the value of each member begins and ends."""


class Body:
    """A chat completion request as the client wrote it."""

    __slots__ = ("_spans", "members", "messages", "raw")

    def __init__(
        self, raw: bytes, members: Members, messages: Iterable[bytes], spans: Spans | None = None
    ) -> None:
        self.raw = raw
        self.members = members
        self.messages = grown(messages)
        """Each message's bytes, in order."""
        self._spans = spans

    @property
    def spans(self) -> Spans | None:
        """Where its members stand; None where a name occurs twice."""
        if self._spans is None:
            self._spans = member_spans(self.raw, self.members)
        return self._spans

    def get(self, name: str) -> Any:
        """The value of a top-level member, decoded leniently; None where it is absent."""
        raw = self.members.get(name)
        return None if raw is None else loads(bytes(raw))

    def slice(self, name: str) -> bytes:
        """The bytes of a top-level member's value; empty where it is absent."""
        return bytes(self.members.get(name, b""))

    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        """The body with other messages and every other byte as it was."""
        told = b",".join(messages)
        if self.spans is None:
            return self.with_member("messages", b"[%b]" % told)
        start, end = self.spans["messages"]
        return b"".join((self.raw[:start], b"[", told, b"]", self.raw[end:]))

    def with_member(self, name: str, value: bytes) -> bytes:
        """The body with another value of a top-level member that it has, and every other byte as it was."""
        if self.spans is None:
            return _rejoined({**self.members, name: value})
        start, end = self.spans[name]
        return b"".join((self.raw[:start], value, self.raw[end:]))

    def followed_by(self, messages: Sequence[bytes]) -> bytes:
        """The body with these messages after its own, and every other byte as it was."""
        if self.spans is None:
            return self.with_messages([*self.messages, *messages])
        end = self.spans["messages"][1] - 1
        return self.raw[:end] + b"," + b",".join(messages) + self.raw[end:]

    def without(self, name: str) -> "Body":
        """The body without a top-level member (never the only one) and every other byte as it was."""
        members = {each: value for each, value in self.members.items() if each != name}
        spans = self.spans
        if spans is None:
            raw = _rejoined(members)
            return Body(raw, members, self.messages)
        names, end = list(spans), spans[name][1]
        if name != names[0]:
            start = spans[names[names.index(name) - 1]][1]  # its comma goes with it
        else:
            start = _next_name(self.raw, self.raw.index(b"{") + 1)
            end = _next_name(self.raw, end)
        return Body(self.raw[:start] + self.raw[end:], members, self.messages)

    def with_tool(self, tool: bytes) -> "Body":
        """The body with one more tool after the client's, and every other byte as it was.

        ``tool`` is its JSON. The body's ``tools`` must be an array, null or absent.
        """
        tools = self.slice("tools")
        if tools.strip() in (b"", b"null"):
            array = b"[" + tool + b"]"
        else:
            before = tools[: tools.rindex(b"]")].rstrip()
            array = before + (b"" if before.endswith(b"[") else b",") + tool + tools[len(before) :]
        if "tools" in self.members:
            raw = self.with_member("tools", array)
            return Body(raw, {**self.members, "tools": array}, self.messages)
        start = self.raw.index(b"{") + 1
        raw = self.raw[:start] + b'"tools":' + array + b"," + self.raw[start:]
        return Body(raw, {"tools": array, **self.members}, self.messages)

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> bytes:
        """A tool of ours as a request writes it."""
        function = {"name": name, "description": description, "parameters": parameters}
        return dumps({"type": "function", "function": function})

    def may_offer(self, name: str) -> bool:
        """Whether it leaves to the model which tool it calls, if any, and has none of this name.

        Not where the client lets no tool be called or names the one that is, wants several answers, or speaks
        the older form of functions.
        """
        choice, several = self.get("tool_choice"), self.get("n")
        if choice not in (None, "auto", "required") or several not in (None, 1):
            return False
        if any(self.get(each) is not None for each in ("functions", "function_call")):
            return False
        tools = self.get("tools")
        if not isinstance(tools, list):
            return tools is None
        listed = map(as_mapping, cast("list[object]", tools))
        bodies = [as_mapping(tool.get("function") or tool.get("custom")) for tool in listed]
        return name not in {text_or_empty(body.get("name")) for body in bodies}


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
        members: Members = decode_members(raw.removeprefix(BOM))
    except msgspec.DecodeError:  # lone surrogate escapes: this request has been read before
        members = read_body(raw, len(raw)).members
    options = members.get("stream_options")
    if options is None:
        start = raw.index(b"{") + 1
        return raw[:start] + b'"stream_options":{"include_usage":true},' + raw[start:]
    spans = member_spans(raw, members)
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


def read_body(raw: bytes, max_messages: int) -> Body:
    """Split a request body.

    Raises InvalidEncoding, InvalidJSON (with the offset in bytes), JSONTooDeep, InvalidType,
    MissingParameter, EmptyArray or TooManyMessages.
    """
    _check_encoding(raw)
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


def _check_encoding(raw: bytes) -> None:
    if b"\x00" in raw[:4]:
        raise InvalidEncoding("The request body is not UTF-8.")
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidEncoding(f"The request body is not UTF-8 (byte {error.start}).") from error


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
        if message[0] != _OPENING:
            name = f"messages[{index}]"
            raise InvalidType(f"Invalid type for '{name}': expected an object.", param=name)
    return messages


def _read_with_surrogates(raw: bytes, max_messages: int) -> Body:
    """Split a body that msgspec refuses for lone surrogate escapes, which the API accepts.

    The scan runs over a copy in which each surrogate escape is another escape of the same length, so that
    every offset found in the copy holds in the original.
    """
    masked = _ESCAPE.sub(lambda match: b"\\ufffd" if len(match[0]) > 2 else match[0], raw)
    text = masked.removeprefix(BOM)
    try:
        members = decode_members(text)
        messages = _split_messages(members, max_messages)
    except msgspec.DecodeError as error:
        raise _invalid_json(raw, error) from error
    except RecursionError as error:
        raise JSONTooDeep("The request body is nested too deeply.") from error
    spans = member_spans(masked, members)
    if spans is None:  # a name is written twice: read by value, of which the last counts
        values: dict[str, Any] = dict(loads(raw.removeprefix(BOM)))
        printed = {name: dumps(value) for name, value in values.items()}
        return Body(raw, printed, _checked([dumps(each) for each in values["messages"]]))
    originals = {name: raw[start:end] for name, (start, end) in spans.items()}
    elements = _element_spans(masked, spans["messages"][0], messages)
    return Body(raw, originals, _checked([raw[start:end] for start, end in elements]))


def _invalid_json(raw: bytes, error: msgspec.DecodeError) -> InvalidJSON:
    found = _OFFSET.search(str(error))
    offset = int(found[1]) + (len(BOM) if raw.startswith(BOM) else 0) if found else len(raw)
    return InvalidJSON(f"The request body is not valid JSON (byte {offset}).", offset=offset)


def member_spans(text: bytes, members: Members) -> Spans | None:
    """Where each member's value stands; None where a name occurs twice, so that order says nothing."""
    spans = Spans()
    position = len(BOM) if text.startswith(BOM) else 0
    for name, value in members.items():
        found = _MEMBER_NAME.match(text, position)
        if found is None or loads(found[1]) != name:
            return None
        position = found.end() + memoryview(value).nbytes
        spans[name] = (found.end(), position)
    # A name that was passed over would stand here, or within what was taken for a value.
    return spans if text[position:].strip() == b"}" else None


def _next_name(text: bytes, position: int) -> int:
    return text.index(b'"', position)


def _element_spans(text: bytes, start: int, elements: Sequence[msgspec.Raw]) -> Iterable[tuple[int, int]]:
    position = start
    for element in elements:
        found = _BETWEEN.match(text, position)
        position = found.end() if found else position
        yield position, (position := position + memoryview(element).nbytes)


def _rejoined(members: Members) -> bytes:
    """The body of a client that wrote a name twice, each name once, the last value as every parser has it."""
    pairs = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in members.items())
    return b"{" + b",".join(pairs) + b"}"
