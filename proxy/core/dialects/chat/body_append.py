"""A body that begins with the bytes of one before it, read after these alone.

Clients send their whole conversation again with each turn, and what is new stands near the end. Who knows
that the first bytes are those of a body that was read (by a hash of them) need not read them again: serves
law 8 (a turn costs what it brings).
"""

import msgspec

from proxy.core.dialects.chat.body import (
    BOM,
    Body,
    Members,
    Spans,
    decode_elements,
    decode_members,
    member_spans,
)
from proxy.core.persistent import Grown

_OBJECT = ord("{")
_SPACE = b" \t\r\n"


_Read = tuple[list[msgspec.Raw], Members, Spans]
"""New messages, all members, and where these stand."""


class Beginning(msgspec.Struct, frozen=True):
    """What a body began with, up to its last message, and what else there was."""

    opening: bytes
    """Its bytes up to the first message."""
    end: int
    """How many bytes there are up to the end of the last one."""
    messages: Grown[bytes]
    tail: bytes
    """Its bytes after that."""
    members: dict[str, bytes]
    """Its members, but that nothing stands for the messages."""
    spans: Spans


def beginning_of(body: Body) -> Beginning | None:
    """The beginning of a body; None of one that cannot be told from what follows it."""
    spans, raw = body.spans, body.raw
    if spans is None or raw.startswith(BOM):
        return None
    start, end = spans["messages"]
    last = raw.rfind(b"}", start, end) + 1
    members = {name: b"" if name == "messages" else bytes(value) for name, value in body.members.items()}
    return Beginning(raw[: start + 1], last, body.messages, raw[last:], members, spans)


def continued(before: Beginning, raw: bytes, max_messages: int) -> Body | None:
    """The body whose first ``before.end`` bytes are known to be the same.

    None where it must be read as a whole, if only to say what is wrong with it.
    """
    ends_alike = raw.endswith(before.tail) and len(raw) >= before.end + len(before.tail)
    try:
        read = _messages_after(before, raw) if ends_alike else _all_after(before, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    if read is None:
        return None
    new, members, spans = read
    is_too_long = len(before.messages) + len(new) > max_messages
    if is_too_long or any(memoryview(each)[0] != _OBJECT for each in new):
        return None
    messages = before.messages.followed_by([bytes(each) for each in new])
    start, end = spans["messages"]
    return Body(raw, {**members, "messages": memoryview(raw)[start:end]}, messages, spans)


def _messages_after(before: Beginning, raw: bytes) -> _Read | None:
    """What is new in a body that ends as the one before: messages, if anything."""
    told = raw[before.end : len(raw) - len(before.tail)].strip(_SPACE)
    told.decode()
    new = decode_elements(b"[" + told[1:] + b"]")
    if told and not (new and told.startswith(b",")):
        return None
    grown_by = len(raw) - before.end - len(before.tail)
    return new, before.members, _moved(before.spans, len(before.opening) - 1, grown_by)


def _all_after(before: Beginning, raw: bytes) -> _Read | None:
    """Everything after the messages before."""
    rest = raw[before.end :].lstrip(_SPACE)
    has_more = rest.startswith(b",")
    if not has_more and not rest.startswith(b"]"):
        return None
    short = before.opening + (rest[1:] if has_more else rest)
    rest.decode()
    members = decode_members(short)
    new = decode_elements(members["messages"])
    spans = member_spans(short, members)
    is_same = spans is not None and spans["messages"][0] + 1 == len(before.opening)
    if spans is None or not is_same or bool(new) != has_more:
        return None
    return new, members, _moved(spans, len(before.opening) - 1, len(raw) - len(short))


def _moved(spans: Spans, after: int, by: int) -> Spans:
    """Where members stand once there are more bytes ``after`` a place."""
    return {
        name: (start + by if start > after else start, end + by if end > after else end)
        for name, (start, end) in spans.items()
    }
