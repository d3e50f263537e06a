"""One request to be decided on: what it is, what it may cost, and what is known of its lane."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from proxy.core.budget import Budget
from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.plan import Epoch
from proxy.core.policy import Policy
from proxy.core.situation import Chain
from proxy.ports import SessionKey


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One request to be decided on."""

    tenant: str
    key: SessionKey
    lane: str
    model: str
    chain: Chain
    head_count: int
    """Messages of the head."""
    policy: Policy
    budget: Budget
    epochs: tuple[Epoch, ...] | None
    """The lane's epochs; None where the store cannot say and this process does not know."""
    saved: int
    """How many of them the store holds."""
    credentials: Sequence[tuple[bytes, bytes]]
    deadline: float
    """Monotonic seconds by which all waiting is over."""

    alternates: bool = False
    """Whether the model is known to want alternating roles."""
    conditions: Conditions = UNKNOWN
    tool: bytes = b""
    """The tool that we add where something is cut; empty where none may be offered."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned in its session."""

    @property
    def counted(self) -> int:
        """Counted tokens of the whole request."""
        return self.budget.head + self.chain.tokens.total
