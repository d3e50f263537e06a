"""A body that begins with the bytes of one before it, read after these alone.

Clients send their whole conversation again with each turn, and what is new stands near the end. Who knows
that the first bytes are those of a body that was read (by a hash of them) need not read them again: serves
law 8 (a turn costs what it brings).
"""

import msgspec

from proxy.core.body import BOM, Body, Spans, decode_elements, decode_members, member_spans
from proxy.core.growing import Grown

_OBJECT = ord("{")


class Beginning(msgspec.Struct, frozen=True):
    """What a body began with, up to its last message."""

    opening: bytes
    """Its bytes up to the first message."""
    end: int
    """How many bytes there are up to the end of the last one."""
    messages: Grown[bytes]


def beginning_of(body: Body) -> Beginning | None:
    """The beginning of a body; None of one that cannot be told from what follows it."""
    if body.spans is None or body.raw.startswith(BOM):
        return None
    start, end = body.spans["messages"]
    return Beginning(body.raw[: start + 1], body.raw.rfind(b"}", start, end) + 1, body.messages)


def continued(before: Beginning, raw: bytes, max_messages: int) -> Body | None:
    """The body whose first ``before.end`` bytes are known to be the same.

    None where it must be read as a whole, if only to say what is wrong with it.
    """
    rest = raw[before.end :].lstrip(b" \t\r\n")
    has_more = rest.startswith(b",")
    if not has_more and not rest.startswith(b"]"):
        return None
    short = before.opening + (rest[1:] if has_more else rest)
    try:
        rest.decode()
        members = decode_members(short)
        new = decode_elements(members["messages"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    spans = member_spans(short, members)
    is_same = spans is not None and spans["messages"][0] + 1 == len(before.opening)
    if spans is None or not is_same or bool(new) != has_more:
        return None
    is_too_long = len(before.messages) + len(new) > max_messages
    if is_too_long or any(memoryview(each)[0] != _OBJECT for each in new):
        return None
    messages = before.messages.followed_by([bytes(each) for each in new])
    spans = _moved(spans, len(before.opening) - 1, len(raw) - len(short))
    start, end = spans["messages"]
    return Body(raw, {**members, "messages": memoryview(raw)[start:end]}, messages, spans)


def _moved(spans: Spans, after: int, by: int) -> Spans:
    """Where members stand once there are more bytes ``after`` a place."""
    return {
        name: (start + by if start > after else start, end + by if end > after else end)
        for name, (start, end) in spans.items()
    }
