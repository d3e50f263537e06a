"""What the admin API answers of memories, and of what a session stands at: the models are the contract."""

from __future__ import annotations

from proxy.core.memory.records import Archived, Event, Scope, ScopeKind
from proxy.engine.admin.memories import ItemDetails, ScopeDetails, State
from proxy.http.admin.schemas import Hash, Shape, Time, time


class SourceTold(Shape):
    """Where an item comes from."""

    session: str
    """The id of its session."""
    messages: list[Hash]
    role: str
    name: str
    """Who said it; empty where neither the message nor the request named anybody."""
    at: Time
    passage: str
    """What was said, of at most 2,000 bytes."""


class ArchivedTold(Shape):
    """What stays of an item that was put away."""

    id: str
    original_content: str
    """What the item said, and the passage that it came from."""
    compressed_summary: str
    compression_method: str
    """`model`; `text` where the item's sentence stands without its passage; `none` where all of it stays."""
    compressed_at: Time
    original_size_bytes: int
    compressed_size_bytes: int
    compression_ratio: float
    """The share that was saved."""
    final_importance_score: float
    archive_reason: str
    retention_until: Time | None
    """When it is deleted; null: never."""


class ItemTold(Shape):
    """Something that is remembered."""

    id: str
    """Opaque; it leads to its scope."""
    scope: str
    scope_kind: str
    scope_name: str
    """As clients name it; empty for a thread."""
    state: State
    """Only what is `remembered` is told to anybody."""
    text: str
    kind: str
    trust: str
    """Whose word it is: the `user`'s, or the `assistant`'s alone."""
    standing: bool
    """Whether it stays true, and does not fade."""
    importance_score: float
    access_count: int
    created_at: Time
    last_accessed_at: Time
    decay_applied_at: Time
    superseded_by: str | None
    """The id of the item that says otherwise since."""
    source: SourceTold
    archived: ArchivedTold | None


class ScopeTold(Shape):
    """A memory: whose it is, and what a model wrote of the whole."""

    id: str
    """Opaque; it includes the tenant."""
    kind: str
    name: str
    workspace: str
    """The name of the workspace that a channel lies in."""
    items: int
    archived: int
    long: str
    short: str
    updated: Time | None
    """When the texts were written; null where there are none."""


class SaidTold(Shape):
    """What somebody said in a session of a memory."""

    at: Time
    name: str
    trust: str
    """Whose word it is: the `user`'s, or the `assistant`'s."""
    text: str


class MemoryTold(Shape):
    """Scopes, items of them, and what was said in their sessions."""

    scopes: list[ScopeTold]
    items: list[ItemTold]
    said: list[SaidTold]
    """Of what is asked, with what was said before and after it, the best first; empty without a query."""


class EventTold(Shape):
    """A line of an item's log."""

    event: str
    at: Time
    before: float | None
    """Its score; null where it had none."""
    after: float | None
    details: str


class LogTold(Shape):
    """What became of an item, oldest first."""

    id: str
    events: list[EventTold]


class Forgotten(Shape):
    """Something that is remembered no more."""

    id: str
    """Of the item or the scope; empty for a session, a person and a client's own memory."""
    items: int
    """How many items that were, archived ones among them."""
    forgotten: bool
    """False where there was nothing."""


class Maintained(Shape):
    """What a run has done."""

    scopes: int
    """Of which it is over, of those that there are."""
    of: int
    rescored: int
    archived: int
    deleted: int
    """From the archive, because their time was over."""
    threads: int
    """Conversations that were read."""
    failed: int
    """Scopes with a fault."""


class OwnMemory(Shape):
    """What is remembered under a name of the client's own."""

    kind: str
    """`person`, `channel` or `workspace`."""
    name: str
    long: str
    short: str
    items: list[ItemTold]


class CachedFunction(Shape):
    """A call whose result is fresh."""

    name: str
    arguments: str
    remaining_exchanges: int
    cache_exchanges: int
    """That it has after each use."""


class Received(Shape):
    """A message that the model gets."""

    role: str
    text: str
    """Its text, then the calls that it makes."""


class StateTold(Shape):
    """What a session stands at: what the log tells of each request at debug level."""

    session: str
    """Its name."""
    exchanges: int
    summary_bytes: int
    """Of the summaries that stand in the view."""
    llm_compressions: int
    functions: list[CachedFunction]
    messages: list[Received]
    lines: str
    """The same in the lines of the log."""


# --- made of what the engine knows ---


def named(of: Scope, name: str) -> str:
    """The name of a scope for people: mostly a header has it in UTF-8, of which Latin-1 was read."""
    if of.kind is ScopeKind.PERSON:
        return name  # out of a body
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


def item(entry: ItemDetails) -> ItemTold:
    """An item, wherever it is kept."""
    kept, record = entry.item, entry.archived
    newer = f"{entry.scope.kind}.{entry.scope.tag}.{kept.superseded_by}" if kept.superseded_by else None
    return ItemTold(
        id=entry.id,
        scope=f"{entry.about.tenant}.{entry.scope.kind}.{entry.scope.tag}",
        scope_kind=entry.scope.kind.value,
        scope_name=named(entry.scope, entry.about.name),
        state=entry.state,
        text=entry.text,
        kind=kept.kind.value,
        trust=kept.trust.value,
        standing=kept.is_standing,
        importance_score=kept.importance_score,
        access_count=kept.access_count,
        created_at=time(kept.created_at),
        last_accessed_at=time(kept.last_accessed_at),
        decay_applied_at=time(kept.decay_applied_at),
        superseded_by=newer,
        source=SourceTold.model_validate(kept.source),
        archived=record and _archived(record),
    )


def _archived(record: Archived) -> ArchivedTold:
    return ArchivedTold.model_validate(record)


def scope(kept: ScopeDetails) -> ScopeTold:
    """A scope, and how much there is in it."""
    texts = kept.copy.texts
    return ScopeTold(
        id=kept.id,
        kind=kept.scope.kind.value,
        name=named(kept.scope, kept.about.name),
        workspace=named(kept.scope, kept.about.workspace_name),
        items=len(kept.copy.items),
        archived=len(kept.archive),
        long=texts.long,
        short=texts.short,
        updated=time(texts.updated) if texts.updated else None,
    )


def event(line: Event) -> EventTold:
    """A line of a log."""
    return EventTold(
        event=line.kind.value, at=time(line.at), before=line.before, after=line.after, details=line.details
    )
