"""One request body: its members as raw slices, and its messages spliced without touching anything else.

Keeps law 1 (transparent): nothing here re-serialises what the client wrote. JSON is scanned once by
msgspec, which keeps every value as a slice of the original bytes; big integers, lone surrogate escapes,
odd spacing and unknown members pass as they are. Only what must be read is validated.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.growing import grown
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import as_mapping
from proxy.errors import (
    EmptyArray,
    InvalidEncoding,
    InvalidJSON,
    InvalidType,
    JSONTooDeep,
    MissingParameter,
    TooManyMessages,
)

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_OPENING = ord("{")
BOM = b"\xef\xbb\xbf"
_MEMBER_NAME = re.compile(rb'[ \t\r\n{,]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
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
        array = _with_element(self.slice("tools"), tool)
        if "tools" in self.members:
            raw = self.with_member("tools", array)
            return Body(raw, {**self.members, "tools": array}, self.messages)
        start = self.raw.index(b"{") + 1
        raw = self.raw[:start] + b'"tools":' + array + b"," + self.raw[start:]
        return Body(raw, {"tools": array, **self.members}, self.messages)


def _with_element(array: bytes, element: bytes) -> bytes:
    """A JSON array's bytes with one more element; null is an empty one."""
    if array.strip() in (b"", b"null"):
        return b"[" + element + b"]"
    end = array.rindex(b"]")
    before = array[:end].rstrip()
    comma = b"" if before.endswith(b"[") else b","
    return before + comma + element + array[len(before) :]


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
    if spans is None:
        return _reprinted(raw)
    originals = {name: raw[start:end] for name, (start, end) in spans.items()}
    elements = _element_spans(masked, spans["messages"][0], messages)
    return Body(raw, originals, _checked([raw[start:end] for start, end in elements]))


def _reprinted(raw: bytes) -> Body:
    """A body with lone surrogates and a name written twice: read by value, of which the last counts."""
    members: dict[str, Any] = dict(loads(raw.removeprefix(BOM)))
    messages: list[Any] = members["messages"]
    printed = {name: dumps(value) for name, value in members.items()}
    return Body(raw, printed, _checked([dumps(each) for each in messages]))


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
