"""The MemoryStore port over Redis or Valkey, with scripts that compare a scope's version (compare and set).

The keys are documented in :mod:`proxy.adapters.stores.redis.keys`. Records that are damaged, written by
another release, or sealed with another secret are left out when reading, and stay stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import Codec, DamagedRecord, Keyring, row, rows
from proxy.adapters.stores.redis.keys import memory_place, milliseconds
from proxy.adapters.stores.redis.migration import Migration
from proxy.adapters.stores.redis.scripts import Scripts
from proxy.core.memory.records import (
    About,
    Archived,
    Event,
    EventKind,
    Item,
    Scope,
    ScopeKind,
    Texts,
    Thread,
    add_event,
)
from proxy.errors import StoreUnavailable
from proxy.ports import Changes, ScopeSnapshot, SessionKey, UnreadableRecord
from proxy.telemetry import log_warning

T = TypeVar("T")

_KINDS: Final = frozenset[str](ScopeKind)
"""The kinds of scopes that this release knows."""
_AT_ONCE: Final = 500
"""How many records are decoded before other tasks get their turn."""
_YOUNG: Final = 3_600.0
"""Seconds for which a scope that was entered in the index stays there, also where nothing is stored of it."""
_TRIPS: Final = 4
"""The timeout of reading a whole scope, in round trips: ten thousand items are some megabytes."""
_DAMAGED: Final = "damaged records of a memory are left out"
_FOREIGN: Final = "a memory holds records that are not for this server; they stay as they are"
_ENTERED: Final = "a memory that was forgotten stays in the index until the daily run"
_TOLD: Final = 10_000
"""How many scopes are remembered as already logged."""


class RedisMemories:
    """Memories in one server or a cluster. The methods are documented at the port."""

    def __init__(self, scripts: Scripts, keyring: Keyring | None) -> None:
        self._connection = scripts.connection
        self._scripts = scripts
        self._keyring = keyring
        self._migration = Migration(scripts, lambda key: Codec(key, keyring))
        self._tell = lru_cache(_TOLD)(_tell)

    # --- reading ---

    async def remembered(self, scope: Scope, since: int = 0) -> ScopeSnapshot:
        news = await self._scripts.of_session("memory_news", _key(scope), since) if since else None
        items: dict[str, Item | None] = {}
        if news is None:
            name = keys.session(_key(scope))
            fields, stored = await self._connection.ask_all(
                "memory",
                ("HMGET", name, *keys.SCOPE_FIELDS),
                ("HGETALL", name + keys.ITEMS),
                trips=_TRIPS,
                transaction=True,
            )
            items |= await self._read(scope, stored.items(), keys.ITEMS, Item)
        else:
            fields, changed, records, gone = news
            items |= dict.fromkeys(_text(name) for name in (*changed, *gone))
            items |= await self._read(scope, zip(changed, records, strict=True), keys.ITEMS, Item)
        version, _, about, texts = fields  # in the order of `keys.SCOPE_FIELDS`
        return ScopeSnapshot(
            int(version) if version and version.isdigit() else 0,
            self._decoded(scope, about, keys.ABOUT_PLACE, About),
            self._decoded(scope, texts, keys.TEXTS_PLACE, Texts) or Texts(),
            items,
            is_whole=news is None,
        )

    def _decoded(self, scope: Scope, stored: bytes | None, place: bytes, kind: type[T]) -> T | None:
        """Decode a field of a scope; None if it is missing or damaged. Raises ForeignRecord."""
        try:
            return None if stored is None else self._codec(scope).decode(stored, kind, place)
        except DamagedRecord:
            self._tell(_DAMAGED, scope)
            return None

    async def _read(
        self, scope: Scope, stored: Iterable[tuple[bytes, bytes | None]], part: str, kind: type[T]
    ) -> dict[str, T]:
        """Return the records that can be read, by name."""
        codec, read = self._codec(scope), dict[str, T]()
        for number, (name, record) in enumerate(stored, 1):
            try:
                read[_text(name)] = codec.decode(record or b"", kind, memory_place(part, name))
            except DamagedRecord:
                self._tell(_DAMAGED, scope)
            except UnreadableRecord:
                self._tell(_FOREIGN, scope)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return read

    def _ask(self, scope: Scope, command: str, part: str, *words: Word, trips: int = 1) -> Awaitable[Any]:
        name = keys.session(_key(scope)) + part
        return self._connection.ask("memory", command, name, *words, trips=trips)

    async def archive(self, scope: Scope) -> Mapping[str, Archived]:
        stored: dict[bytes, bytes] = await self._ask(scope, "HGETALL", keys.ARCHIVE, trips=_TRIPS)
        return await self._read(scope, stored.items(), keys.ARCHIVE, Archived)

    async def log(self, scope: Scope, item: str) -> Sequence[Event]:
        stored: bytes | None = await self._ask(scope, "HGET", keys.LOG, item)
        log: list[Event] = []
        for _, record in rows(stored or b""):
            for event in (await self._read(scope, [(item.encode(), record)], keys.LOG, Event)).values():
                add_event(log, event)
        return log

    async def thread(self, scope: Scope, session: SessionKey) -> Thread | None:
        member = keys.listed(session).encode()
        updated: float | None = await self._ask(scope, "ZSCORE", keys.THREADS, member)
        found = [] if updated is None else [(member, updated)]
        return (await self._threads(scope, found)).get(session)

    async def threads(self, scope: Scope, most: int) -> Mapping[SessionKey, Thread]:
        words = 0, max(0, most - 1), "REV", "WITHSCORES"
        newest: list[bytes] = await self._ask(scope, "ZRANGE", keys.THREADS, *words, trips=_TRIPS)
        found = list(zip(newest[::2], map(float, newest[1::2]), strict=True))
        return await self._threads(scope, found[:most])

    async def _threads(self, scope: Scope, found: Sequence[tuple[bytes, float]]) -> dict[SessionKey, Thread]:
        """Return the records of these sessions, given with the times of their last turns."""
        members = [member for member, _ in found]
        stored: list[bytes | None] = await self._ask(scope, "HMGET", keys.READ, *members) if members else []
        pairs = zip(members, stored, strict=True)
        read = await self._read(scope, [pair for pair in pairs if pair[1] is not None], keys.READ, Thread)
        return {
            keys.unlisted(_text(member)): replace(read.get(_text(member)) or Thread(updated=at), updated=at)
            for member, at in found
        }

    async def channels(self, workspace: Scope) -> Sequence[Scope]:
        tags: set[bytes] = await self._ask(workspace, "SMEMBERS", keys.CHANNELS)
        return [Scope(ScopeKind.CHANNEL, tag) for tag in sorted(map(_text, tags))]

    async def workspace_of(self, channel: Scope) -> str:
        return _text(await self._ask(channel, "HGET", "", "workspace") or b"")

    async def scopes(self, most: int) -> Sequence[Scope]:
        name, last = keys.session(keys.INDEX), max(0, most - 1)
        found: list[bytes] = await self._connection.ask("memory", "ZRANGE", name, 0, last, "REV")
        named = [_text(member).partition("/") for member in found][:most]
        return [Scope(ScopeKind(kind), tag) for kind, _, tag in named if kind in _KINDS]

    # --- writing ---

    async def note(
        self, scope: Scope, thread: SessionKey, at: float, about: About, ttl: float | None = None
    ) -> None:
        encoded = self._codec(scope).encode(about, keys.ABOUT_PLACE)
        arguments = (keys.listed(thread), at, _life(ttl), encoded, about.workspace)
        # First of all: nobody could list, and so forget, a scope that is in no index, and each node may fail.
        await self._enter(scope, _life(ttl), about.workspace)
        await self._scripts.of_session("memory_note", _key(scope), *arguments)

    async def change(self, scope: Scope, changes: Changes, seen: int) -> int:
        workspace = changes.about.workspace if changes.about else ""
        if not seen:  # it may be new: then it is entered first, as by `note`
            await self._enter(scope, 0, workspace)
        words = _words(self._codec(scope), changes)
        changing = self._scripts.of_session("memory_change", _key(scope), seen, *words)
        version, left = await changing
        if version:
            await self._enter(scope, left, workspace)
        return version

    async def _enter(self, scope: Scope, life: int, workspace: str, *, is_there: bool = True) -> None:
        """Add a scope to the index of all scopes and to its workspace, or remove it unless ``is_there``."""
        run = self._scripts.of_session
        entering = run("memory_index", keys.INDEX, _member(scope), life if is_there else -1, 0)
        channel = SessionKey(workspace, keys.MEMORY), scope.tag, int(is_there)
        await asyncio.gather(entering, *([run("memory_channel", *channel)] if workspace else []))

    async def forget(self, scope: Scope) -> bool:
        count, workspace = await self._scripts.of_session("memory_forget", _key(scope))
        if count:
            try:
                await self._enter(scope, 0, _text(workspace or b""), is_there=False)
            except StoreUnavailable:  # what is forgotten is forgotten; the index holds no more than its tag
                self._tell(_ENTERED, scope)
        return count > 0

    async def unlist(self, scope: Scope) -> None:
        if not await self._ask(scope, "EXISTS", ""):
            young = milliseconds(_YOUNG)  # a note that is under way has entered it, and is about to write it
            await self._scripts.of_session("memory_index", keys.INDEX, _member(scope), -1, young)

    async def move(self, former: str, scope: Scope, tenant: str, workspace: str = "") -> bool:
        before = Scope(scope.kind, former)
        about = {"tenant": tenant, "workspace": workspace, "former": former}
        was_in = await self.workspace_of(before)
        is_moved = await self._migration.move_scope(former, scope.tag, about)
        if is_moved:
            left: int = await self._ask(scope, "PTTL", "")
            await self._enter(scope, max(0, left), workspace)
            await self._enter(before, 0, was_in, is_there=False)
        return is_moved

    async def claim_work(
        self, scope: Scope, work: str, token: str, lease: float, *, longest: float = 0.0
    ) -> bool:
        arguments = (work, token, milliseconds(lease), milliseconds(longest))
        return bool(await self._scripts.of_session("claim", _key(scope), *arguments))

    async def release_work(self, scope: Scope, work: str, token: str) -> None:
        await self._scripts.of_session("release", _key(scope), work, token)

    def _codec(self, scope: Scope) -> Codec:
        return Codec(_key(scope), self._keyring)


def _words(codec: Codec, changes: Changes) -> Iterator[Word]:
    """Encode changes for the script: each part as its count and its entries; an empty record deletes."""
    about, texts = changes.about, changes.texts
    yield codec.encode(about, keys.ABOUT_PLACE) if about else b""
    yield about.workspace if about else b""
    yield codec.encode(texts, keys.TEXTS_PLACE) if texts else b""

    def record(part: str, name: str, value: object) -> bytes:
        return b"" if value is None else codec.encode(value, memory_place(part, name.encode()))

    for part, written in ((keys.ITEMS, changes.items), (keys.ARCHIVE, changes.archive)):
        yield len(written)
        for name, value in written.items():
            yield from (name, record(part, name, value))
    yield len(changes.threads)
    for key, thread in changes.threads.items():
        member = keys.listed(key)
        yield from (member, thread.updated if thread else 0, record(keys.READ, member, thread))
    yield len(changes.events)
    for event in changes.events:
        is_score = event.kind is EventKind.SCORE_UPDATE
        is_over = event.kind is EventKind.DELETE
        stored = row(record(keys.LOG, event.item, event), is_score=is_score)
        yield from (event.item, event.at, int(is_over), stored)


def _key(scope: Scope) -> SessionKey:
    return SessionKey(scope.tag, keys.MEMORY)


def _member(scope: Scope) -> str:
    """Return the name of a scope in the index."""
    return f"{scope.kind}/{scope.tag}"


def _life(ttl: float | None) -> int:
    """Return a ttl in milliseconds; 0 means that the scope does not expire."""
    return milliseconds(ttl) if ttl is not None else 0


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _tell(what: str, scope: Scope) -> None:
    log_warning(what, scope=scope.tag)
