"""What is kept of a memory: items with a life, what became of them, and the texts of a scope.

Times are seconds since 1970, UTC. Scores are between 0 and 1.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec


def day_of(at: float) -> str:
    """The day of a time (UTC), as ISO 8601 writes it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


class ScopeKind(StrEnum):
    """Whose memory it is: a thread's, a person's, a channel's, or a workspace's."""

    THREAD = "thread"
    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"


class Scope(NamedTuple):
    """One memory. Its ``tag`` (hex) is derived from the tenant and the names, so no other caller meets it."""

    kind: ScopeKind
    tag: str


class Kind(StrEnum):
    """What an item tells."""

    FACT = "fact"
    DECISION = "decision"
    PREFERENCE = "preference"


class Trust(StrEnum):
    """Who said what an item tells; of several sources the one that is trusted least."""

    USER = "user"
    ASSISTANT = "assistant"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an item comes from."""

    session: str
    """By what operators know it."""
    messages: tuple[bytes, ...]
    """Chain hashes."""
    role: str
    name: str = ""
    """Who said it, where the message or the request names them."""
    at: float
    passage: str = ""
    """What was said, of at most 2,000 bytes."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is remembered."""

    id: str
    text: str
    kind: Kind
    trust: Trust
    source: Source
    is_standing: bool = False
    """Identity, health, a standing rule or preference: what stays true does not fade."""
    importance_score: float = 0.5
    access_count: int = 0
    """Uses: in so many sessions it was injected or recalled, or said again."""
    last_accessed_at: float
    decay_applied_at: float
    created_at: float
    superseded_by: str = ""
    """Id of the item that says otherwise since; what is superseded is kept, and not told."""
    used_by: bytes | tuple[bytes, ...] = b""
    """Digests of the sessions that used it last, one after the other; each of them counts once.

    Releases before have written a tuple of them, which takes six times the memory.
    """


class ArchiveReason(StrEnum):
    """Why an item was archived."""

    LOW_IMPORTANCE = "low_importance"
    CAPACITY_LIMIT = "capacity_limit"
    MANUAL = "manual"


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """An item that was compressed and put away: its summary stands for it until it is restored or deleted."""

    id: str
    scope: str
    created_at: float
    original_memory_id: str
    original_content: str
    original_embedding: tuple[float, ...] | None = None
    """None where nothing embeds."""
    compressed_summary: str
    compression_method: str
    """`model`; `text` where the item's sentence stands without its passage; `none` where all of it stays."""
    compressed_at: float
    original_size_bytes: int
    compressed_size_bytes: int
    compression_ratio: float
    """(original - compressed) / original."""
    final_importance_score: float
    archive_reason: ArchiveReason
    retention_until: float | None
    """None: for ever."""
    item: Item
    """What is born again when it is restored."""


class EventKind(StrEnum):
    """What can become of an item."""

    CREATE = "create"
    USE = "use"
    SCORE_UPDATE = "score_update"
    COMPRESS = "compress"
    ARCHIVE = "archive"
    RESTORE = "restore"
    SUPERSEDE = "supersede"
    DELETE = "delete"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an item's log."""

    kind: EventKind
    item: str
    at: float
    before: float | None = None
    """Its score; None where it had none."""
    after: float | None = None
    details: str = ""


def event_of(
    item: Item, kind: EventKind, at: float, *, after: float | None = None, details: str = ""
) -> Event:
    """What becomes of an item; the score that it had stands in it, but for one that is only born by that."""
    before = None if kind is EventKind.CREATE else item.importance_score
    return Event(kind=kind, item=item.id, at=at, before=before, after=after, details=details)


def add_event(log: list[Event], event: Event) -> None:
    """Write a line into a log; score updates that follow each other are one, from first to last score."""
    if log and log[-1].kind is event.kind is EventKind.SCORE_UPDATE:
        log[-1] = msgspec.structs.replace(event, before=log[-1].before)
    else:
        log.append(event)


class Texts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The long-term and the short-term text of a scope, in the words of a model."""

    long: str = ""
    short: str = ""
    updated: float = 0.0
    read_up_to: float = 0.0
    """Of messages, those up to here are in the texts."""


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a scope beside what it remembers."""

    tenant: str
    name: str = ""
    """As clients named it; for the listing."""
    workspace: str = ""
    """Tag of the workspace that a channel lies in, and the next is its name."""
    workspace_name: str = ""
    policy: str = ""
    """Name of the policy under which it was last written."""
    model: str = ""
    """That of the conversation that was last in it, which is asked in the daily run."""
    runs: int = 0
    """Runs of its threads since its texts were last written."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session that a scope remembers of."""

    updated: float
    """When it last had a turn."""
    tip: bytes = b""
    """Chain hash up to which it has been read for items."""
    exchanges: int = 0
    """Exchanges by then."""
    texts: Texts = Texts()
