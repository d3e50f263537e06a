"""A request body of Chat Completions: members are raw slices, messages are spliced, the rest is untouched.

Keeps law 1 (transparent): nothing here re-serialises what the client wrote. Only what must be read is
validated; big integers, odd spacing and unknown members pass unchanged.

Clients send their whole conversation again with each turn, and the new part is near the end. So a body that
begins with the same bytes as an earlier one (the caller knows by a hash) is read only after those bytes. This
serves law 8 (a turn costs what it brings).
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import msgspec

from proxy.core.dialects import dialect
from proxy.core.formats.json import as_mapping, dumps, loads, members, string, writable
from proxy.core.formats.splice import (
    OPENING,
    JSONObject,
    Members,
    Spans,
    decode_elements,
    element_slices,
)
from proxy.core.persistent import PersistentList
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

_SPACE = b" \t\r\n"
_OFFSET = re.compile(r"\(byte (\d+)\)")
_MEMBER_BYTES = 512
"""Estimated bytes of memory for a member that is held twice."""
_PARAMETERS = (
    *("n", "tool_choice", "function_call", "max_completion_tokens", "max_tokens"),
    *("stream", "stream_options"),
)
"""Members that are read from every body, besides the model."""
_HEAD_MEMBERS = ("tools", "functions", "response_format")
_ADDING = frozenset({"plugins", "web_search_options", "search_parameters"})
"""Members by which OpenRouter, OpenAI and xAI put into a prompt what they find."""
_LEFT_TO_THE_MODEL = (None, "auto", "required")
_NO_CALL_NEEDED = (None, "auto", "none")


class Body(dialect.Body):
    """A chat completion request as the client wrote it."""

    def __init__(self, written: JSONObject, messages: PersistentList[bytes]) -> None:
        self.written = written
        self.raw = written.raw
        self.members = members = written.members
        self.messages = messages
        said = {name: self.get(name) for name in _PARAMETERS if name in members}.get
        several, choice = said("n"), said("tool_choice")
        self.model = _text_of(members, "model")
        self.person = _text_of(members, "safety_identifier") or _text_of(members, "user")
        self.is_streamed = said("stream") is True
        self.wants_usage = bool(as_mapping(said("stream_options")).get("include_usage"))
        self.wants_several = isinstance(several, int) and several > 1
        self.has_cache_key = "prompt_cache_key" in members
        self.has_provider_additions = not _ADDING.isdisjoint(members)
        limits = said("max_completion_tokens"), said("max_tokens")
        self.output_limit = next((each for each in limits if type(each) is int and each > 0), None)
        self.has_tools = bytes(members.get("tools", b"null")) not in (b"null", b"[]")
        self.may_hide_calls = several in (None, 1) and choice in _LEFT_TO_THE_MODEL
        self.demands_call = choice == "required"
        needs_no_call = choice in _NO_CALL_NEEDED and said("function_call") in _NO_CALL_NEEDED
        self.leaves_answer_open = "response_format" not in members and needs_no_call

    @property
    def has_format(self) -> bool:
        form = members(self.members.get("response_format", b"null")) or {}
        return string(form.get("type")) not in (None, "text")

    def get(self, name: str) -> Any:
        raw = self.members.get(name)
        try:
            return None if raw is None else loads(bytes(raw))
        except ValueError as error:  # to be read it may be less deep than to be skipped over
            raise JSONTooDeep from error

    def head_members(self) -> list[bytes]:
        return [bytes(self.members[name]) for name in _HEAD_MEMBERS if name in self.members]

    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        joined, spans = b",".join(messages), self.written.spans
        if spans is None:
            return self.written.changed({"messages": b"[%b]" % joined}).raw
        start, end = spans["messages"]
        return b"".join((self.raw[:start], b"[", joined, b"]", self.raw[end:]))

    def followed_by(self, messages: Sequence[bytes]) -> bytes:
        """Return the body with these messages after its own, whose bytes, white space included, stay."""
        own = bytes(self.members["messages"])
        return self.with_messages((own[1:-1], *messages))

    def changed(self, changes: Mapping[str, bytes | None]) -> "Body":
        """Return the body with members other than its messages changed: see :meth:`JSONObject.changed`."""
        return Body(self.written.changed(changes), self.messages)

    def without(self, name: str) -> "Body":
        return self.changed({name: None})

    def with_tool(self, tool: bytes) -> "Body":
        """``tools`` must be an array, null or absent."""
        tools = bytes(self.members.get("tools", b"null"))
        if tools == b"null":
            return self.changed({"tools": b"[%b]" % tool})
        before = tools[: tools.rindex(b"]")].rstrip()
        comma = b"" if before.endswith(b"[") else b","
        return self.changed({"tools": before + comma + tool + tools[len(before) :]})

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> bytes:
        """Empty also where no tool may be called, one is prescribed, or the legacy `functions` are used."""
        tools = self.get("tools")
        says_functions = self.get("functions") is not None or self.get("function_call") is not None
        if not self.may_hide_calls or says_functions or not isinstance(tools, list | None):
            return b""
        listed = map(as_mapping, cast("list[object]", tools or []))
        if name in {as_mapping(tool.get("function") or tool.get("custom")).get("name") for tool in listed}:
            return b""
        function = {"name": name, "description": description, "parameters": parameters}
        return dumps({"type": "function", "function": function})

    def prefix(self) -> "BodyPrefix | None":
        spans, raw = self.written.spans, self.raw
        if spans is None or raw.startswith(BOM_UTF8):
            return None
        start, end = spans["messages"]
        last = raw.rfind(b"}", start, end) + 1
        members = {name: b"" if name == "messages" else bytes(value) for name, value in self.members.items()}
        return BodyPrefix(raw[: start + 1], last, self.messages, raw[last:], members, spans)


def _text_of(members: Members, name: str) -> str:
    """Return a member's text with U+FFFD for lone surrogates, so that it can be stored; empty for others."""
    raw = bytes(members.get(name, b""))
    return loads(writable(raw)) if raw.startswith(b'"') else ""


class BodyPrefix(msgspec.Struct, frozen=True):
    """The leading part of a body, up to the end of its last message, and its other members."""

    opening: bytes
    """The body's bytes up to its first message."""
    end: int
    messages: PersistentList[bytes]
    tail: bytes
    """The body's bytes after its last message."""
    members: dict[str, bytes]
    """The body's members, with an empty value for the messages."""
    spans: Spans

    @property
    def weight(self) -> int:
        return len(self.opening) + len(self.tail) + _MEMBER_BYTES * len(self.members)

    def continued(self, raw: bytes, max_messages: int) -> Body | None:
        try:
            read = self._read_after(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            return None
        if read is None:
            return None
        new, members, spans, grown_by = read
        is_too_long = len(self.messages) + len(new) > max_messages
        if is_too_long or any(memoryview(each)[0] != OPENING for each in new):
            return None
        after = len(self.opening) - 1
        spans = {
            name: (start + grown_by if start > after else start, end + grown_by if end > after else end)
            for name, (start, end) in spans.items()
        }
        messages = self.messages.followed_by([bytes(each) for each in new])
        start, end = spans["messages"]
        members = {**members, "messages": memoryview(raw)[start:end]}
        return Body(JSONObject(raw, members, spans), messages)

    def _read_after(self, raw: bytes) -> tuple[list[msgspec.Raw], Members, Spans, int] | None:
        """Return the new messages, members and spans, and by how many bytes the body has grown."""
        if raw.endswith(self.tail) and len(raw) >= self.end + len(self.tail):  # only messages are new
            added = raw[self.end : len(raw) - len(self.tail)].strip(_SPACE)
            added.decode()
            new = decode_elements(b"[" + added[1:] + b"]")
            if added and not (new and added.startswith(b",")):
                return None
            return new, self.members, self.spans, len(raw) - self.end - len(self.tail)
        rest = raw[self.end :].lstrip(_SPACE)
        has_more = rest.startswith(b",")
        if not has_more and not rest.startswith(b"]"):
            return None
        rest.decode()
        short = JSONObject.read(self.opening + (rest[1:] if has_more else rest))
        new = decode_elements(short.members["messages"])
        spans = short.spans
        is_same = spans is not None and spans["messages"][0] + 1 == len(self.opening)
        if spans is None or not is_same or bool(new) != has_more:
            return None
        return new, short.members, spans, len(raw) - len(short.raw)


def read_body(raw: bytes, max_messages: int) -> Body:
    """Split a request body: see :meth:`proxy.core.dialects.dialect.Dialect.read_body`."""
    if b"\x00" in raw[:4]:
        raise InvalidEncoding("The request body is not UTF-8.")
    if not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise InvalidEncoding(f"The request body is not UTF-8 (byte {error.start}).") from error
    written: JSONObject | None = None
    try:
        written = JSONObject.read(raw)
        if "messages" not in written.members:
            raise MissingParameter("Missing required parameter: 'messages'.", param="messages")
        messages = element_slices(written.members["messages"])
    except msgspec.ValidationError as error:
        if written is None:
            raise InvalidType("The request body must be a JSON object.") from error
        expected = "Invalid type for 'messages': expected an array of objects."
        raise InvalidType(expected, param="messages") from error
    except msgspec.DecodeError as error:
        found = _OFFSET.search(str(error))
        offset = int(found[1]) + (len(BOM_UTF8) if raw.startswith(BOM_UTF8) else 0) if found else len(raw)
        raise InvalidJSON(f"The request body is not valid JSON (byte {offset}).", offset=offset) from error
    except RecursionError as error:
        raise JSONTooDeep from error
    if len(messages) > max_messages or {*map(itemgetter(0), messages)} != {OPENING}:
        raise _fault_of(messages, max_messages)
    return Body(written, PersistentList(messages))


def _fault_of(messages: Sequence[bytes], most: int) -> RequestError:
    """Return what is wrong with messages: there are none, or more than ``most``, or one is not an object."""
    if not messages:
        return EmptyArray("Invalid 'messages': empty array.", param="messages")
    if len(messages) > most:
        return TooManyMessages(f"Too many messages: {len(messages)}, limit {most}.", param="messages")
    name = f"messages[{next(index for index, each in enumerate(messages) if each[0] != OPENING)}]"
    return InvalidType(f"Invalid type for '{name}': expected an object.", param=name)
