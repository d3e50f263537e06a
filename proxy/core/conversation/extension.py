"""The body's own member `unabridged`: what a client tells the proxy, and the upstream never sees.

Keeps law 1 (transparent): the member is spliced out and every other byte stays; a body without it is not
touched. Its members are ours alone, so one that we do not know is a mistake of the client's, who is told.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from proxy.core.conversation.injection import Injection, read_injection
from proxy.core.dialects.wire import Body
from proxy.core.formats.json import as_mapping
from proxy.errors import InvalidType, InvalidValue, UnknownParameter

MEMBER = "unabridged"
_KNOWN = ("pin", "inject")
_NAME = 40
"""Characters of an unknown member's name that are told."""


class Extension(msgspec.Struct, frozen=True):
    """What the member says."""

    sent: int
    """Messages of the request that it came with."""
    pins: Sequence[int] = ()
    """Indexes of messages of that request."""
    inject: Injection | None = None
    """What the caller hands in."""

    def pins_from_end(self, head: int) -> tuple[int, ...]:
        """The pins as places before the end of the chain that the request's messages end: 1 is the last.

        ``head`` is how many of the request's messages are leading system messages: those always go.
        """
        return tuple(self.sent - index for index in self.pins if index >= head)


ABSENT = Extension(0)
"""What nobody has sent."""


def take_extension(body: Body) -> tuple[Body, Extension]:
    """The body as it is forwarded, and what was in the member.

    Raises InvalidType, InvalidValue, MissingParameter or UnknownParameter, each naming the parameter.
    """
    if MEMBER not in body.members:
        return body, ABSENT
    sent = len(body.messages)
    value = body.get(MEMBER)
    if not isinstance(value, Mapping):
        raise _wrong_type("", "an object")
    members = as_mapping(cast("object", value))
    unknown = next((name for name in members if name not in _KNOWN), None)
    if unknown is not None:
        name = f"{MEMBER}.{unknown[:_NAME]}".encode("ascii", "backslashreplace").decode()
        raise UnknownParameter(f"Unknown parameter: '{name}'.", param=name)
    pinned = members.get("pin", [])
    indexes = cast("list[object]", pinned) if isinstance(pinned, list) else [None]
    pins = [index for index in indexes if isinstance(index, int) and not isinstance(index, bool)]
    if len(pins) < len(indexes):
        raise _wrong_type(".pin", "an array of indexes of messages")
    if not all(0 <= index < sent for index in pins):
        name = f"{MEMBER}.pin"
        raise InvalidValue(f"Invalid '{name}': the messages of this request are 0 to {sent - 1}.", param=name)
    inject = read_injection(members.get("inject", {}), f"{MEMBER}.inject")
    return body.without(MEMBER), Extension(sent, pins, inject)


def _wrong_type(member: str, expected: str) -> InvalidType:
    name = MEMBER + member
    return InvalidType(f"Invalid type for '{name}': expected {expected}.", param=name)
