"""What a request asks for, read from its bytes before anything is looked up."""

import hashlib
from collections.abc import Sequence

import msgspec

from proxy.core.injection import Injection
from proxy.core.policy import Policy
from proxy.engine.bodies import ReadBody
from proxy.engine.envelope import Envelope
from proxy.engine.exchange import Appended
from proxy.engine.history import History


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read."""

    arrived: float
    """Monotonic seconds."""
    envelope: Envelope
    policy: Policy
    read: ReadBody
    history: History
    lane: str
    """Requests of one lane share their plans: the same model under the same rules."""
    pins: Sequence[int]
    """Messages that the client pins, by their place before the end: 1 is the last."""
    inject: Injection | None
    """What it hands in for its session."""
    appended: Appended | None
    """Of a turn that was sent without its history."""

    @property
    def needs_store(self) -> bool:
        """Whether it is not answered while the store is away."""
        return self.appended is not None or self.policy.store.on_fault == "closed"

    @property
    def pinned(self) -> frozenset[bytes]:
        """Chain hashes of the messages that the client pins."""
        return frozenset(self.history.hashes[-place] for place in self.pins)


def lane_of(model: str, policy: Policy, budget: int | None) -> str:
    """The lane of a request that allows itself so many tokens."""
    said = f"{model}\0{policy.name}\0{budget or ''}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]
