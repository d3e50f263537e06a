"""What this process knows of messages, and of the beginning of a conversation that it has read before.

Keeps law 8 (O(new)): a turn goes on from what is known of the messages before it, and copies none of it.
"""

import msgspec

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import Message
from proxy.core.dialects.dialect import Dialect
from proxy.core.persistent import Grown, Sizes
from proxy.core.planning.chain import Chain

NAME = 256
"""Characters of a model's name by which it is remembered: clients choose names of any length."""


def nothing_of(dialect: Dialect) -> Chain:
    """The chain of no messages."""
    return Chain((), (), Sizes.of(()), (), dialect)


# Many are kept, and can be in no cycle: the collector need not visit them (gc=False).
class Known(msgspec.Struct, gc=False):
    """What this process knows of one message's bytes."""

    message: Message
    other: dict[str, int] | None
    """Tokens of its other parts (images, files, audio) by model; None where it has none."""
    text: int | None = None
    """Counted tokens of its text; None until it was counted."""

    def tokens(self, model: str) -> int:
        """Counted tokens of the message, framing included; it must have been counted."""
        other = self.other[model[:NAME]] if self.other else 0
        return MESSAGE_TOKENS + (self.text or 0) + other


class Placed(msgspec.Struct, frozen=True):
    """The first messages of a conversation on their chain, as they were counted."""

    root: bytes
    """h₀ of the chain."""
    head: tuple[bytes, ...]
    """The leading system and developer messages."""
    known_head: tuple[Known, ...]
    known: Grown[Known]
    """The messages of the chain."""
    hashes: Grown[bytes]
    exchanges: int
    """Final answers among them."""
    model: str
    """For which they were counted."""
    counted: Chain
    """Those of them that were."""

    @property
    def length(self) -> int:
        """How many of the body's messages they are."""
        return len(self.head) + len(self.known)

    @property
    def tip(self) -> bytes:
        """The chain hash after the last of them."""
        return self.hashes[-1] if self.hashes else self.root
