"""The response bodies of the admin API about memories."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from proxy.core.memory.records import Scope, ScopeKind
from proxy.engine.admin.memories import ItemDetails, ItemState, ScopeDetails, UnreadScope
from proxy.engine.intake.naming import readable
from proxy.http.admin.schemas import Hash, Shape, Time, time


class SourceReport(Shape):
    """The source of an item."""

    session: str
    """The id of the session in which it was said."""
    messages: list[Hash]
    role: str
    name: str = Field(validation_alias=AliasChoices("speaker", "name"))
    """Who said it; empty if neither the message nor the request named the speaker."""
    at: Time
    passage: str
    """The original words, at most 2,000 bytes."""


class ArchiveReport(Shape):
    """The archive record of an item."""

    id: str
    original_content: str
    """The item's sentence, and the passage that it came from."""
    compressed_summary: str
    compression_method: str
    """`model`; `text`: only the item's sentence is kept, without its passage; `none`: all is kept."""
    compressed_at: Time
    original_size_bytes: int
    compressed_size_bytes: int
    compression_ratio: float
    """The share of bytes that was saved."""
    final_importance_score: float
    archive_reason: str
    retention_until: Time | None
    """When the record is deleted; null means never."""


class ItemReport(Shape):
    """An item: one remembered statement."""

    id: str
    """Opaque; it includes the scope."""
    scope: str
    scope_kind: str
    scope_name: str
    """The scope's name as clients send it; empty for a thread."""
    state: ItemState
    """Only items in the state `remembered` are used in answers and briefings."""
    text: str
    kind: str
    trust: str
    """Who said it: the `user`, or only the `assistant`."""
    standing: bool
    """Whether it is about identity, health or a rule, so that its score does not decay."""
    importance_score: float
    access_count: int
    created_at: Time
    last_accessed_at: Time
    decay_applied_at: Time
    superseded_by: str | None
    """The id of the newer item that contradicts it."""
    source: SourceReport
    archived: ArchiveReport | None


class ScopeReport(Shape):
    """A scope: one memory, with the texts that a model has written about it."""

    id: str
    """Opaque; it includes the tenant."""
    kind: str
    name: str
    workspace: str
    """The name of the workspace that a channel belongs to."""
    items: int
    archived: int
    long: str
    short: str
    updated: Time | None
    """When the texts were written; null if there are none."""


class UnreadReport(Shape):
    """A scope that is left out because it cannot be read."""

    id: str
    """By this id it can be forgotten all the same."""
    kind: str
    reason: str
    """`unknown_secret`, `newer_release` or `damaged`, as in the listing of sessions."""


class UtteranceReport(Shape):
    """Something that was said in a session of a scope."""

    at: Time
    name: str
    trust: str
    """Who said it: the `user` or the `assistant`."""
    text: str


class MemoryReport(Shape):
    """Scopes, their items, and what was said in their sessions."""

    scopes: list[ScopeReport]
    items: list[ItemReport]
    said: list[UtteranceReport]
    """Matching lines of sessions, each with its neighbours, the best first; empty without a query."""
    left_out: list[UnreadReport]
    """Scopes that are missing here because they cannot be read."""
    enabled: bool
    """Whether any policy has memory enabled."""


class EventReport(Shape):
    """An event in an item's log."""

    event: str = Field(validation_alias=AliasChoices("event", "kind"))
    at: Time
    before: float | None
    """The score before the event; null if there was none."""
    after: float | None
    details: str


class LogReport(Shape):
    """The log of an item, oldest event first."""

    id: str
    events: list[EventReport]


class Forgotten(Shape):
    """The result of forgetting something."""

    id: str
    """The id of the item or scope; empty for a session, a person and a client's own memory."""
    items: int
    """Number of items that were forgotten, archived ones included."""
    forgotten: bool
    """False if there was nothing to forget."""
    unread: int = 0
    """Of a session or a person: how many scopes were left as they are, because they, or the workspace above
    them, cannot be read."""


class Maintained(Shape):
    """What a maintenance run has done."""

    scopes: int
    """Number of scopes that are finished, of the number in `of`."""
    of: int
    rescored: int
    archived: int
    deleted: int
    """Number of archive records whose retention was over."""
    threads: int
    """Number of conversations that were read."""
    failed: int
    """Number of scopes that failed."""


class OwnMemory(Shape):
    """What is remembered under one of the client's own names."""

    kind: str
    """`person`, `channel` or `workspace`."""
    name: str
    long: str
    short: str
    items: list[ItemReport]


# --- conversion from the engine's records ---


def named(of: Scope, name: str) -> str:
    """Return a scope's name for people. That of a person is from a request body, which is UTF-8."""
    return name if of.kind is ScopeKind.PERSON else readable(name)


def item(entry: ItemDetails) -> ItemReport:
    """Return an active or archived item."""
    kept, home = entry.item, entry.scope_details
    newer = f"{home.scope.kind}.{home.scope.tag}.{kept.superseded_by}" if kept.superseded_by else None
    return ItemReport.from_object(
        kept,
        id=entry.id,
        scope=home.id,
        scope_kind=home.scope.kind,
        scope_name=named(home.scope, home.about.name),
        state=entry.state,
        text=entry.text,
        standing=kept.is_standing,
        superseded_by=newer,
        archived=entry.archived,
    )


def unread(each: UnreadScope) -> UnreadReport:
    """Return a scope that cannot be read."""
    return UnreadReport(id=each.id, kind=each.scope.kind.value, reason=each.reason)


def scope(kept: ScopeDetails) -> ScopeReport:
    """Return a scope, with the numbers of its items."""
    texts = kept.copy.texts
    return ScopeReport(
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
