"""What is known of a message wherever it came from: its role, what identifies it, its calls.

A :class:`Message` holds no content, so a process can remember it for as long as it likes; content is read
from the raw slice again in the rare moment that an epoch is planned.
"""

from collections.abc import Sequence

import msgspec

HEAD_ROLES = frozenset({"system", "developer"})
"""Roles are those of policies; a dialect reads each message that it knows as one of these."""
TOOL_ROLES = frozenset({"tool", "function"})


class Message(msgspec.Struct, frozen=True, gc=False):
    """What must be known of a message to place it in a chain and a unit."""

    role: str
    identity: bytes
    """SHA-256 over what SDKs keep of a message (:mod:`proxy.core.conversation.identity`)."""
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    answers: str | None = None
    """Id of the tool call that it answers."""

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange: an answer without tool calls."""
        return self.role == "assistant" and not self.calls


def head_length(roles: Sequence[str]) -> int:
    """How many leading messages are system or developer messages: the part of the head that is messages."""
    for index, role in enumerate(roles):
        if role not in HEAD_ROLES:
            return index
    return len(roles)
