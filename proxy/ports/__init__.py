"""The ports: protocols for everything outside the engine (stores, token counter, search, upstream, clock).

The adapters in :mod:`proxy.adapters` implement them; each port has one contract test suite that runs against
all its adapters. Other packages import the names of the ports from here.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false

from proxy.ports.bill_store import BatchId, BillStore
from proxy.ports.memory_store import Changes, MemoryStore, ScopeSnapshot
from proxy.ports.services import (
    ChangedResponse,
    Clock,
    Header,
    Passage,
    Policies,
    Search,
    TokenCounter,
    Upstream,
    UpstreamResponse,
    coding_of,
    header_of,
    is_stream,
)
from proxy.ports.session_store import (
    COMPACTOR,
    NAMED,
    SUFFIXES,
    UNRECORDED,
    Listed,
    Lookup,
    LookupResult,
    Mark,
    MessageStore,
    PlaceState,
    QueueStore,
    Recorded,
    SessionAdmin,
    SessionKey,
    SessionStore,
    Stored,
    SummaryStore,
    TurnStore,
    UnreadableRecord,
)
