"""Moves sessions and memories from tags derived from an old secret to tags derived from a new one.

The two tags lie in different slots of a cluster, so keys cannot be renamed: the data is read, written under
the new tag by one script (sealed with the newest secret, if records are sealed), and only then deleted. While
servers are replaced one after the other, some still write under the old tag: what was read is deleted only if
it is unchanged, else it is read again, and what is new in a session joined to what stands under the new tag.
A move that is repeated, or made by two workers at once, has the effect of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, cast

import msgspec

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import LINK, VERSION, Codec, DamagedRecord, row, rows
from proxy.adapters.stores.redis.scripts import MOVING, Scripts
from proxy.core.conversation.records import Session
from proxy.errors import StoreUnavailable
from proxy.ports import NAMED, SessionKey

_RECORDS: Final = (keys.ITEMS, keys.ARCHIVE, keys.READ)
_SORTED: Final = (keys.CHANGED, keys.GONE, keys.LOGGED, keys.DELETED, keys.THREADS)

_RACES: Final = 16
"""The most attempts at a move; one fails if what is moved is changed meanwhile."""

_Fields = dict[bytes, bytes]
_Parts = dict[str, Any]
"""The values of the keys of a session or a scope, by suffix; the empty suffix is the key of its fields."""


class Migration:
    """Moves data from one tag to another. `codec_of` returns the codec of a session or a scope."""

    def __init__(self, scripts: Scripts, codec_of: Callable[[SessionKey], Codec]) -> None:
        self._ask = partial(scripts.connection.ask, "move", trips=MOVING)
        self._ask_all = partial(scripts.connection.ask_all, "move", trips=MOVING)
        self._scripts = scripts
        self._codec_of = codec_of

    # --- sessions ---

    async def move_sessions(self, former: str, tag: str, tenant: str) -> bool:
        """Move all sessions under the tag `former` to `tag`; return whether there were any."""
        named, tips_name = keys.session(SessionKey(former, NAMED)), keys.tips(former)
        is_named, remembered, tips = await self._ask_all(
            ("EXISTS", named), ("PTTL", named + keys.WAS), ("HGETALL", tips_name)
        )
        sids = sorted({sid for holders in tips.values() for sid in _sids(holders)})
        for sid in (NAMED, *sids) if is_named else sids:
            await self._move_session(SessionKey(former, sid), SessionKey(tag, sid), tenant)
        if tips:
            await self._move_tips(former, tag, sids)
        if remembered > 0 and not is_named:  # the session has expired; appending clients must learn of it
            was = keys.session(SessionKey(tag, NAMED)) + keys.WAS
            await self._ask("SET", was, 0, "PX", remembered, "NX")
        return bool(is_named or tips or remembered > 0)

    async def _move_tips(self, former: str, tag: str, moved: Collection[str]) -> None:
        """Move the index of the moved sessions after them, with the turns that were recorded meanwhile.

        What leads to a session that has begun under the old tag since stays there, until that is moved too.
        """
        old, new = keys.tips(former), keys.tips(tag)
        found, left = await self._ask_all(("HGETALL", old), ("PTTL", old), transaction=True)
        tips = {answer: holders for answer, holders in found.items() if _sids(holders).issubset(moved)}
        if tips:
            entered = [("HSETNX", new, answer, its_holders) for answer, its_holders in tips.items()]
            renewed = [("PEXPIRE", new, max(1, left), when) for when in ("NX", "GT")]
            await self._ask_all(*entered, *renewed, transaction=True)
            await self._ask("HDEL", old, *tips)

    async def _move_session(self, former: SessionKey, key: SessionKey, tenant: str) -> None:
        for _ in range(_RACES):
            if await self._try_session(former, key, tenant):
                return
        raise StoreUnavailable("A session that is to be moved is changed all the time.")

    async def _try_session(self, former: SessionKey, key: SessionKey, tenant: str) -> bool:
        """Move a session; return False if it was changed meanwhile, under one of its names."""
        was, before = await asyncio.gather(
            *(self._scripts.of_session("state", each) for each in (former, key))
        )
        parts, left = await self._session(former)
        first: bytes | None = parts[""].pop(b"first", None)
        if not parts[""]:
            return True
        moved = _session_resealed(parts, self._codec_of(former), self._codec_of(key), tenant)
        if before:  # a move was interrupted, or another worker was first
            there, left_there = await self._session(key)
            left = max(left, left_there)
            if there[keys.NODES].keys().isdisjoint(moved[keys.NODES]):
                return True  # another session has begun there
            moved = _joined(moved, there, self._codec_of(key))
        if not await self._put(key, moved, max(1, left), before):
            return False
        if key.sid == NAMED:
            life = max(1, left) + keys.milliseconds(keys.REMEMBERED)
            await self._ask("SET", keys.session(key) + keys.WAS, 0, "PX", life)
        if not await self._scripts.of_session("remove", former, was):
            return False
        if first:
            await self._ask("DEL", keys.first(first.decode(errors="replace")))
        score: float | None = await self._ask("ZSCORE", keys.SESSIONS, keys.listed(former))
        if score is not None:
            await self._ask("ZADD", keys.SESSIONS, score, keys.listed(key))
            await self._ask("ZREM", keys.SESSIONS, keys.listed(former))
        return True

    async def _session(self, key: SessionKey) -> tuple[_Parts, int]:
        """Return the values of a session's keys, and how many milliseconds it has left."""
        name = keys.session(key)
        lanes: set[bytes] = await self._ask("SMEMBERS", name + keys.LANES)
        lists = (keys.HIDDEN, *(keys.EPOCHS + lane.decode(errors="replace") for lane in lanes))
        hashes = ("", *keys.HASHES)
        *values, left = await self._ask_all(
            *(("HGETALL", name + part) for part in hashes),
            *(("SMEMBERS", name + part) for part in keys.SETS),
            *(("LRANGE", name + part, 0, -1) for part in lists),
            ("PTTL", name),
            transaction=True,
        )
        return dict(zip((*hashes, *keys.SETS, *lists), values, strict=True)), left

    async def _put(self, key: SessionKey, parts: _Parts, left: int, before: bytes) -> bytes:
        """Write all keys of a session or a scope, with a ttl of `left` (milliseconds; 0: none).

        They replace what has the state `before` (empty: nothing). Returns the state after that; if there was
        another, nothing is written, and the answer is empty.
        """
        words: list[Word] = []
        for part, value in parts.items():
            written: list[Any] = list(value)
            if part in _SORTED:
                command, written = "ZADD", [word for member in value for word in (value[member], member)]
            elif isinstance(value, dict):
                command, written = "HSET", [word for pair in cast("_Fields", value).items() for word in pair]
            else:
                command = "RPUSH" if isinstance(value, list) else "SADD"
            if written:
                words += (part, command, len(written), *written)
        return await self._scripts.of_session("put", key, before, left, *words)

    # --- memories ---

    async def move_scope(self, former: str, tag: str, about: dict[str, str]) -> bool:
        """Move a scope to another tag unless one exists there; return whether it was moved.

        The values in `about` replace those of its record.
        """
        old, new, before = SessionKey(former, keys.MEMORY), SessionKey(tag, keys.MEMORY), b""
        for _ in range(_RACES):
            was = await self._scripts.of_session("state", old)
            parts, left = await self._scope(old)
            if not parts[""]:  # if it was read before, it was forgotten meanwhile
                await self._scripts.of_session("remove", new, before)
                return False
            moved = _scope_resealed(parts, self._codec_of(old), self._codec_of(new), about)
            before = await self._put(new, moved, max(0, left), before)
            if not before:
                return False
            if await self._scripts.of_session("remove", old, was):
                return True
        raise StoreUnavailable("A memory that is to be moved is changed all the time.")

    async def _scope(self, key: SessionKey) -> tuple[_Parts, int]:
        """Return the values of a scope's keys, and how many milliseconds it has left (below 0: no end)."""
        name, hashes = keys.session(key), ("", *_RECORDS, keys.LOG)
        *values, channels, left = await self._ask_all(
            *(("HGETALL", name + part) for part in hashes),
            *(("ZRANGE", name + part, 0, -1, "WITHSCORES") for part in _SORTED),
            ("SMEMBERS", name + keys.CHANNELS),
            ("PTTL", name),
            transaction=True,
        )
        parts: _Parts = dict(zip((*hashes, *_SORTED), values, strict=True))
        for part in _SORTED:
            parts[part] = dict(zip(parts[part][::2], parts[part][1::2], strict=True))
        return {**parts, keys.CHANNELS: channels}, left


def _sids(holders: bytes) -> set[str]:
    """Return the sessions that an entry of the tips leads to."""
    return {holder.partition("/")[0] for holder in holders.decode(errors="replace").split(",")}


def _joined(moved: _Parts, there: _Parts, codec: Codec) -> _Parts:
    """Return two copies of a session as one: all messages, and the fields of the one that has gone on.

    Of hidden calls and of epochs the longer list counts. If both have gone on, the fields ``there`` count: of
    the other there are turns then, as a branch beside them.
    """
    tip, tip_there = (each[""].get(b"tip", b"") for each in (moved, there))
    is_ahead = tip != tip_there and _leads_to(tip_there, tip, moved[keys.NODES], codec)
    behind, ahead = (there, moved) if is_ahead else (moved, there)
    joined: _Parts = {}
    for part in {**behind, **ahead}:
        older, newer = behind.get(part, ()), ahead.get(part, ())
        if part in (keys.PARTIAL, keys.BESIDE):  # of each message what the copy that is ahead says of it
            joined[part] = newer | {each for each in older if each not in ahead[keys.NODES]}
        elif part == keys.BILL:
            joined[part] = {
                **older,
                **{name: max(newer[name], older.get(name, b"0"), key=int) for name in newer},
            }
        elif part in (keys.HIDDEN, keys.HIDES) or part.startswith(keys.EPOCHS):
            joined[part] = max(newer, older, key=len)
        else:
            joined[part] = {**older, **newer} if isinstance(newer, dict) else newer | older
    for field in (b"life", b"news", b"count"):  # readers read all messages
        joined[""].pop(field, None)
    return joined


def _leads_to(tip: bytes, at: bytes, nodes: _Fields, codec: Codec) -> bool:
    """Return whether the branch that ends with ``at`` goes through ``tip``."""
    while at != tip and at in nodes:
        at = reading.node(codec, at, nodes[at])[0].parent
    return not tip or at == tip


def _session_resealed(parts: _Parts, old: Codec, new: Codec, tenant: str) -> _Parts:
    """Return a session's keys with all records encoded for the new name, the new tenant and the old id."""

    def anew(stored: bytes, place: bytes) -> bytes:
        record, version = old.decode_any(stored, msgspec.Raw, place, (VERSION, LINK))
        return new.encode(record, place, version)

    fields: _Fields = dict(parts[""])
    if b"record" in fields:
        members = old.decode(fields[b"record"], dict[str, msgspec.Raw], keys.RECORD_PLACE)
        before = old.decode(fields[b"record"], Session, keys.RECORD_PLACE)
        was, now = old.key.id_for(before.tenant), new.key.id_for(tenant)
        former = (*(each for each in before.former if each not in (was, now)), was)
        # A dict, so that fields unknown to this release are kept.
        fields[b"record"] = new.encode(members | {"tenant": tenant, "former": former}, keys.RECORD_PLACE)
    if b"injection" in fields:
        fields[b"injection"] = anew(fields[b"injection"], keys.INJECTION_PLACE)
    moved = {**parts, "": fields}
    nodes, summaries = cast("_Fields", parts[keys.NODES]), cast("_Fields", parts[keys.SUMMARIES])
    moved[keys.NODES] = {each: anew(node, keys.node_place(each)) for each, node in nodes.items()}
    moved[keys.SUMMARIES] = {
        each: anew(text, keys.summary_place(each.decode())) for each, text in summaries.items()
    }
    for part in (each for each in parts if each.startswith((keys.EPOCHS, keys.HIDDEN))):
        lane = part.removeprefix(keys.EPOCHS)
        place = keys.HIDDEN_PLACE if part == keys.HIDDEN else keys.epoch_place(lane)
        moved[part] = [anew(record, place) for record in parts[part]]
    return moved


def _scope_resealed(parts: _Parts, old: Codec, new: Codec, about: dict[str, str]) -> _Parts:
    """Return a scope's keys with all records encoded for the new name; damaged ones stay as they are."""

    def anew(stored: bytes, place: bytes, **told: str) -> bytes:
        try:
            if told:  # as a dict, so that fields unknown to this release are kept
                return new.encode(old.decode(stored, dict[str, msgspec.Raw], place) | told, place)
            return new.encode(old.decode(stored, msgspec.Raw, place), place)
        except DamagedRecord:
            return stored

    fields: _Fields = dict(parts[""])
    if b"about" in fields:
        fields[b"about"] = anew(fields[b"about"], keys.ABOUT_PLACE, **about)
        fields[b"workspace"] = about["workspace"].encode()
    if b"texts" in fields:
        fields[b"texts"] = anew(fields[b"texts"], keys.TEXTS_PLACE)
    moved = {**parts, "": fields}
    for part in _RECORDS:
        records = cast("_Fields", parts[part]).items()
        moved[part] = {name: anew(record, keys.memory_place(part, name)) for name, record in records}
    moved[keys.LOG] = {
        name: b"".join(
            row(anew(event, keys.memory_place(keys.LOG, name)), is_score=is_score)
            for is_score, event in rows(log)
        )
        for name, log in cast("_Fields", parts[keys.LOG]).items()
    }
    return moved
