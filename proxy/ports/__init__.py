"""What the engine needs of the world: a store, a counter of tokens, an upstream, a clock.

Small protocols; the adapters that satisfy them stand in :mod:`proxy.adapters`, and one contract suite per
port runs over all of them.
"""

from proxy.ports.services import Clock, Passage, Search, TokenCounter, Upstream, UpstreamResponse
from proxy.ports.session_store import (
    Found,
    Lookup,
    Recorded,
    SessionKey,
    SessionStore,
    Standing,
    Stored,
    Whole,
    Written,
)

__all__ = [
    "Clock",
    "Found",
    "Lookup",
    "Passage",
    "Recorded",
    "Search",
    "SessionKey",
    "SessionStore",
    "Standing",
    "Stored",
    "TokenCounter",
    "Upstream",
    "UpstreamResponse",
    "Whole",
    "Written",
]
