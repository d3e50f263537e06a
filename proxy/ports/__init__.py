"""What the engine needs of the world: a store, a counter of tokens, an upstream, a clock.

Small protocols; the adapters that satisfy them stand in :mod:`proxy.adapters`, and one contract suite per
port runs over all of them. What others need is imported from here.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false

from proxy.ports.bill_store import BillStore, Group
from proxy.ports.memory_store import Changes, MemoryStore, ScopeSnapshot
from proxy.ports.services import Clock, Passage, Search, TokenCounter, Upstream, UpstreamResponse
from proxy.ports.session_store import (
    COMPACTOR,
    NAMED,
    Found,
    Listed,
    Lookup,
    Mark,
    MessageStore,
    QueueStore,
    Recorded,
    SessionAdmin,
    SessionKey,
    SessionStore,
    Standing,
    Stored,
    SummaryStore,
    TurnStore,
    UnreadableRecord,
)
