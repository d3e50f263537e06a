"""Exchanges: a request and everything up to the next one. Requests in a row are one."""

from collections.abc import Sequence

from proxy.core.messages import HEAD_ROLES, Message
from proxy.core.units import Unit


def beginnings(messages: Sequence[Message]) -> list[int]:
    """Positions of the user messages that begin an exchange."""
    found: list[int] = []
    before = ""
    for position, message in enumerate(messages):
        if message.role == "user" and before != "user":
            found.append(position)
        if message.role not in HEAD_ROLES:
            before = message.role
    return found


def exchanges_of(messages: Sequence[Message], units: Sequence[Unit]) -> list[list[int]]:
    """Indexes of units by exchange, in order; what stands before the first request belongs to the first."""
    begun = set(beginnings(messages))
    found: list[list[int]] = []
    has_request = False
    for index, unit in enumerate(units):
        begins = not begun.isdisjoint(range(unit.start, unit.end))
        if not found or (begins and has_request):
            found.append([])
        has_request = has_request or begins
        found[-1].append(index)
    return found
