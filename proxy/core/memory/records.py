"""The stored records of a memory: items, archived items, their logs, and the texts of a scope.

Times are seconds since 1970, UTC. Scores are between 0 and 1.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec


def day_of(at: float) -> str:
    """The day (UTC) of a time in seconds, in ISO 8601."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


class ScopeKind(StrEnum):
    """Whose memory it is: a thread's, a person's, a channel's, or a workspace's."""

    THREAD = "thread"
    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"


class Scope(NamedTuple):
    """One memory. Its ``tag`` (hex) is derived from the tenant and the names, so callers never share one."""

    kind: ScopeKind
    tag: str


class Kind(StrEnum):
    """What kind of statement an item is."""

    FACT = "fact"
    DECISION = "decision"
    PREFERENCE = "preference"


class Trust(StrEnum):
    """Who said what an item says; of several sources the least trusted one."""

    USER = "user"
    ASSISTANT = "assistant"


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an item comes from."""

    session: str
    """The session's id as operators see it."""
    messages: tuple[bytes, ...]
    """Chain hashes of the messages."""
    role: str
    name: str = ""
    """Who said it, as lines show the name, if the message or the request names them."""
    person: str = ""
    """The whole name. Empty in items of earlier versions."""
    at: float
    passage: str = ""
    """The original words, at most 2,000 bytes."""

    @property
    def speaker(self) -> str:
        """The name of who said it, as whole as it is known."""
        return self.person or self.name


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One remembered statement."""

    id: str
    text: str
    kind: Kind
    trust: Trust
    source: Source
    is_standing: bool = False
    """Whether it is about identity, health, or a standing rule or preference: such an item does not fade."""
    importance_score: float = 0.5
    access_count: int = 0
    """Number of sessions in which it was injected, recalled or said again."""
    last_accessed_at: float
    decay_applied_at: float
    created_at: float
    superseded_by: str = ""
    """Id of the newer item that contradicts it; a superseded item is kept, but no session is told of it."""
    used_by: bytes | tuple[bytes, ...] = b""
    """Concatenated digests of the sessions that used it last; each session counts once.

    Earlier releases wrote a tuple of digests, which takes six times the memory.
    """


class ArchiveReason(StrEnum):
    """Why an item was archived."""

    LOW_IMPORTANCE = "low_importance"
    CAPACITY_LIMIT = "capacity_limit"
    MANUAL = "manual"


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """An item in the archive: its compressed summary replaces it until it is restored or deleted."""

    id: str
    scope: str
    created_at: float
    original_memory_id: str
    original_content: str
    original_embedding: tuple[float, ...] | None = None
    """None if there is no embedding model."""
    compressed_summary: str
    compression_method: str
    """`model`; `text` if only the item's sentence is kept, without its passage; `none` if all is kept."""
    compressed_at: float
    original_size_bytes: int
    compressed_size_bytes: int
    compression_ratio: float
    """(original - compressed) / original."""
    final_importance_score: float
    archive_reason: ArchiveReason
    retention_until: float | None
    """None means for ever."""
    item: Item
    """The item itself, from which it is restored."""


class EventKind(StrEnum):
    """What can happen to an item."""

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
    """The score before the event; None if there was none."""
    after: float | None = None
    details: str = ""


def event_of(
    item: Item, kind: EventKind, at: float, *, after: float | None = None, details: str = ""
) -> Event:
    """Make an event with the item's present score as ``before``, which is None for its creation."""
    before = None if kind is EventKind.CREATE else item.importance_score
    return Event(kind=kind, item=item.id, at=at, before=before, after=after, details=details)


def add_event(log: list[Event], event: Event) -> None:
    """Append an event to a log; consecutive score updates become one, from the first to the last score."""
    if log and log[-1].kind is event.kind is EventKind.SCORE_UPDATE:
        log[-1] = msgspec.structs.replace(event, before=log[-1].before)
    else:
        log.append(event)


class Texts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The long-term and the short-term text of a scope, written by a model."""

    long: str = ""
    short: str = ""
    updated: float = 0.0
    read_up_to: float = 0.0
    """Time of the newest message that the texts take into account."""
    tip: bytes = b""
    """Of a thread: the :attr:`Thread.tip` up to which the long-term text takes in what was said.

    Of a workspace: a digest of its channels' texts that the long-term text takes in.
    """
    by_time: float | None = None
    """Of other scopes: what was said up to this time is not merged again, since it was by an earlier release.

    None in the records of that: it went by time, up to :attr:`read_up_to`.
    """

    @property
    def since(self) -> float:
        """The time after which something has to be said to be merged, where records have no tip."""
        return self.read_up_to if self.by_time is None else self.by_time


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a scope itself, apart from what it remembers."""

    tenant: str
    name: str = ""
    """The name that clients gave it, for listings."""
    workspace: str = ""
    """Tag of the workspace that a channel belongs to; ``workspace_name`` is its name."""
    workspace_name: str = ""
    former: str = ""
    """The tag that the scope had under the secret before; it is forgotten with the scope."""
    policy: str = ""
    """Name of the policy under which it was last written."""
    model: str = ""
    """The model of the scope's latest conversation, which the daily run asks."""
    runs: int = 0
    """Times that its threads were read since its texts were last written."""
    unmerged: Mapping[str, tuple[bytes, bytes]] = {}
    """What its texts have not taken in: by the ids of sessions, the :attr:`Thread.tip` before and after that
    was read."""
    since: float = 0.0
    """When the scope was created, or something of it was last forgotten on request: a run that began before
    that writes nothing."""


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a scope has recorded about one of its sessions."""

    updated: float
    """Time of its last turn."""
    tip: bytes = b""
    """Chain hashes, one after the other, of the last messages that were read for items, one of each branch.

    The newest branch comes first; records of earlier releases have that alone.
    """
    exchanges: int = 0
    """Number of exchanges up to that message."""
    texts: Texts = Texts()
