"""A request body of Chat Completions: its members as raw slices, its messages spliced, all else untouched.

Keeps law 1 (transparent): nothing here re-serialises what the client wrote. Every value is a slice of the
original bytes; big integers, odd spacing and unknown members pass as they are.

A body that begins with the bytes of one before it is read after these alone: clients send their whole
conversation again with each turn, and what is new stands near the end. Who knows that the first bytes are
the same (by a hash of them) need not read them again: serves law 8 (a turn costs what it brings).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty, writable
from proxy.core.persistent import Grown, grown

decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
OPENING = ord("{")
BOM = b"\xef\xbb\xbf"
_MEMBER_NAME = re.compile(rb'[ \t\r\n{,]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_ESCAPE = re.compile(rb"\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)
_SPACE = b" \t\r\n"
_MEMBER_BYTES = 512
"""What a member is reckoned at that is held twice."""
_HEAD_MEMBERS = ("tools", "functions", "response_format")
_OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")
_LEFT_TO_THE_MODEL = (None, "auto", "required")
_NO_CALL_NEEDED = (None, "auto", "none")

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
        raw = self.members.get(name)
        return None if raw is None else loads(bytes(raw))

    def slice(self, name: str) -> bytes:
        """The bytes of a top-level member's value; empty where it is absent."""
        return bytes(self.members.get(name, b""))

    @property
    def model(self) -> str:
        raw = bytes(self.members.get("model", b"null"))
        return text_or_empty(loads(writable(raw) if b"\\u" in raw else raw))

    @property
    def person(self) -> str:
        return text_or_empty(self.get("safety_identifier")) or text_or_empty(self.get("user"))

    @property
    def is_streamed(self) -> bool:
        return self.get("stream") is True

    @property
    def wants_usage(self) -> bool:
        return bool(as_mapping(self.get("stream_options")).get("include_usage"))

    @property
    def wants_several(self) -> bool:
        several = self.get("n")
        return isinstance(several, int) and several > 1

    @property
    def names_cache(self) -> bool:
        return "prompt_cache_key" in self.members

    @property
    def output_limit(self) -> int | None:
        for value in [self.get(name) for name in _OUTPUT_LIMITS if name in self.members]:
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    @property
    def has_tools(self) -> bool:
        return bool(self.get("tools"))

    @property
    def may_hide_calls(self) -> bool:
        return self.get("n") in (None, 1) and self.get("tool_choice") in _LEFT_TO_THE_MODEL

    @property
    def leaves_answer_open(self) -> bool:
        choices = (self.get("tool_choice"), self.get("function_call"))
        return "response_format" not in self.members and all(each in _NO_CALL_NEEDED for each in choices)

    def head_members(self) -> list[bytes]:
        return [self.slice(name) for name in _HEAD_MEMBERS if name in self.members]

    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        joined = b",".join(messages)
        if self.spans is None:
            return self.with_member("messages", b"[%b]" % joined)
        start, end = self.spans["messages"]
        return b"".join((self.raw[:start], b"[", joined, b"]", self.raw[end:]))

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
            start = self.raw.index(b'"')
            end = self.raw.index(b'"', end)
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
        function = {"name": name, "description": description, "parameters": parameters}
        return dumps({"type": "function", "function": function})

    def may_offer(self, name: str) -> bool:
        """Not where the client lets no tool be called, names the one that is, or speaks of `functions`."""
        if not self.may_hide_calls:
            return False
        if any(self.get(each) is not None for each in ("functions", "function_call")):
            return False
        tools = self.get("tools")
        if not isinstance(tools, list):
            return tools is None
        listed = map(as_mapping, cast("list[object]", tools))
        bodies = [as_mapping(tool.get("function") or tool.get("custom")) for tool in listed]
        return name not in {text_or_empty(body.get("name")) for body in bodies}

    def beginning(self) -> "Beginning | None":
        spans, raw = self.spans, self.raw
        if spans is None or raw.startswith(BOM):
            return None
        start, end = spans["messages"]
        last = raw.rfind(b"}", start, end) + 1
        members = {name: b"" if name == "messages" else bytes(value) for name, value in self.members.items()}
        return Beginning(raw[: start + 1], last, self.messages, raw[last:], members, spans)


class Beginning(msgspec.Struct, frozen=True):
    """What a body began with, up to its last message, and what else there was."""

    opening: bytes
    """Its bytes up to the first message."""
    end: int
    messages: Grown[bytes]
    tail: bytes
    """Its bytes after that."""
    members: dict[str, bytes]
    """Its members, but that nothing stands for the messages."""
    spans: Spans

    @property
    def weight(self) -> int:
        return len(self.opening) + len(self.tail) + _MEMBER_BYTES * len(self.members)

    def continued(self, raw: bytes, max_messages: int) -> Body | None:
        ends_alike = raw.endswith(self.tail) and len(raw) >= self.end + len(self.tail)
        try:
            read = self._messages_after(raw) if ends_alike else self._all_after(raw)
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
        return Body(raw, {**members, "messages": memoryview(raw)[start:end]}, messages, spans)

    def _messages_after(self, raw: bytes) -> tuple[list[msgspec.Raw], Members, Spans, int] | None:
        """What is new in a body that ends as the one before, which is messages, and how many bytes."""
        added = raw[self.end : len(raw) - len(self.tail)].strip(_SPACE)
        added.decode()
        new = decode_elements(b"[" + added[1:] + b"]")
        if added and not (new and added.startswith(b",")):
            return None
        return new, self.members, self.spans, len(raw) - self.end - len(self.tail)

    def _all_after(self, raw: bytes) -> tuple[list[msgspec.Raw], Members, Spans, int] | None:
        """Everything after the messages before."""
        rest = raw[self.end :].lstrip(_SPACE)
        has_more = rest.startswith(b",")
        if not has_more and not rest.startswith(b"]"):
            return None
        short = self.opening + (rest[1:] if has_more else rest)
        rest.decode()
        members = decode_members(short)
        new = decode_elements(members["messages"])
        spans = member_spans(short, members)
        is_same = spans is not None and spans["messages"][0] + 1 == len(self.opening)
        if spans is None or not is_same or bool(new) != has_more:
            return None
        return new, members, spans, len(raw) - len(short)


def masked(text: bytes) -> bytes:
    """JSON with another escape of the same length for each escape of a surrogate, which msgspec may refuse.

    Every offset found in it holds in the original.
    """
    if b"\\u" not in text:
        return text
    return _ESCAPE.sub(lambda match: b"\\ufffd" if len(match[0]) > 2 else match[0], text)


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


def _rejoined(members: Members) -> bytes:
    """The body of a client that wrote a name twice, each name once, the last value as every parser has it."""
    pairs = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in members.items())
    return b"{" + b",".join(pairs) + b"}"
