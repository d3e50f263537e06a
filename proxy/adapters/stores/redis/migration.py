"""Sessions and memories on their way from the names of an old secret to those of a new one.

The two names lie in different slots of a cluster, so nothing is renamed: what is there is read, written anew
under the new name in one transaction, sealed by the newest secret where records are sealed, and only then
deleted. Done twice, or by two workers at once, it is done once. What an interrupted move leaves under the old
name ends with its ttl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import WatchError

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.codec import LINK, VERSION, Codec, DamagedRecord, row, rows
from proxy.ports import NAMED, SessionKey

Codecs = Callable[[SessionKey], Codec]

MOVING: Final = 20
"""Round trips for which a move has time: a long session, or a scope, is read and written whole, once."""

_HASHES: Final = (keys.NODES, keys.TEXTS, keys.COUNTS, keys.SUMMARIES, keys.BILL)
_SETS: Final = (keys.PARTIAL, keys.BESIDE, keys.LANES, keys.HIDES)
_PASSING: Final = (keys.QUEUE, keys.LEASES, keys.CLAIMS)
"""Who waits or writes just now: not taken along."""

_Fields = dict[bytes, bytes]

_RECORDS: Final = (keys.ITEMS, keys.ARCHIVE, keys.READ)
_SORTED: Final = (keys.CHANGED, keys.GONE, keys.LOGGED, keys.DELETED, keys.THREADS)


# --- sessions ---


async def move(client: Redis, codecs: Codecs, former: str, tag: str, tenant: str) -> bool:
    """Take all sessions under the tag `former` to `tag`; whether there were any."""
    async with client.pipeline(transaction=False) as pipe:
        pipe.exists(keys.session(SessionKey(former, NAMED)))
        pipe.pttl(keys.session(SessionKey(former, NAMED)) + keys.WAS)
        pipe.hgetall(keys.tips(former))
        is_named, remembered, tips = cast("tuple[int, int, _Fields]", await pipe.execute())
    holders = {holder for each in tips.values() for holder in each.decode(errors="replace").split(",")}
    sids = {holder.partition("/")[0] for holder in holders}
    for sid in (NAMED, *sorted(sids)) if is_named else sorted(sids):
        await _move_session(client, codecs, SessionKey(former, sid), SessionKey(tag, sid), tenant)
    if tips:
        left: int = await client.pttl(keys.tips(former))
        async with client.pipeline(transaction=True) as pipe:
            for answer, its_holders in tips.items():
                pipe.hsetnx(keys.tips(tag), cast("str", answer), cast("str", its_holders))
            pipe.pexpire(keys.tips(tag), max(1, left), nx=True)
            pipe.pexpire(keys.tips(tag), max(1, left), gt=True)
            await pipe.execute()
        await client.delete(keys.tips(former))
    if remembered > 0 and not is_named:  # it has expired, and appending clients must be told so
        was = keys.session(SessionKey(tag, NAMED)) + keys.WAS
        await client.set(was, 1, px=remembered, nx=True)
    return bool(is_named or tips or remembered > 0)


async def _move_session(
    client: Redis, codecs: Codecs, former: SessionKey, key: SessionKey, tenant: str
) -> None:
    name = keys.session(key)
    async with client.pipeline(transaction=True) as pipe:
        await pipe.watch(name)
        if await pipe.exists(name):
            return  # it has begun anew there
        parts = await _read(client, former)
        if not parts[""]:
            return
        left: int = await client.pttl(keys.session(former))
        pipe.multi()
        _write(pipe, name, _resealed(parts, codecs(former), codecs(key), tenant), max(1, left))
        try:
            await pipe.execute()
        except WatchError:
            if await client.exists(name):
                return  # another worker was first
            raise  # the connection was lost
    await client.delete(*(keys.session(former) + part for part in (*parts, *_PASSING, keys.WAS)))
    if first := cast("_Fields", parts[""]).get(b"first"):
        await client.delete(keys.first(first.decode(errors="replace")))
    score = await client.zscore(keys.SESSIONS, keys.listed(former))
    if score is not None:
        await client.zadd(keys.SESSIONS, {keys.listed(key): score})
        await client.zrem(keys.SESSIONS, keys.listed(former))


async def _read(client: Redis, key: SessionKey) -> dict[str, Any]:
    """The values of a session's keys by their suffix; the session's own fields under the empty one."""
    name, untyped = keys.session(key), cast("Any", client)
    lanes: set[bytes] = await untyped.smembers(name + keys.LANES)
    lists = (keys.HIDDEN, *(keys.EPOCHS + lane.decode(errors="replace") for lane in lanes))
    suffixes = ("", *_HASHES, *_SETS, *lists)
    async with client.pipeline(transaction=True) as pipe:
        for part in ("", *_HASHES):
            pipe.hgetall(name + part)
        for part in _SETS:
            pipe.smembers(name + part)
        for part in lists:
            cast("Any", pipe).lrange(name + part, 0, -1)
        return dict(zip(suffixes, await pipe.execute(), strict=True))


def _resealed(parts: dict[str, Any], old: Codec, new: Codec, tenant: str) -> dict[str, Any]:
    """The same with its records as they stand under the new name."""

    def anew(stored: bytes, place: bytes) -> bytes:
        record, version = old.decode_any(stored, msgspec.Raw, place, (VERSION, LINK))
        return new.encode(record, place, version)

    def session(stored: bytes) -> bytes:
        members = old.decode(stored, dict[str, msgspec.Raw], keys.RECORD_PLACE)  # also those not known here
        return new.encode(members | {"tenant": tenant}, keys.RECORD_PLACE)

    moved = dict(parts)
    fields: _Fields = dict(parts[""])
    fields.pop(b"first", None)
    if b"record" in fields:
        fields[b"record"] = session(fields[b"record"])
    if b"injection" in fields:
        fields[b"injection"] = anew(fields[b"injection"], keys.INJECTION_PLACE)
    moved[""] = fields
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


def _write(pipe: Pipeline, name: str, parts: dict[str, Any], left: int) -> None:
    """All keys of a session or a scope, to live for what is `left` (milliseconds; 0: for ever)."""
    untyped = cast("Any", pipe)
    for part, value in parts.items():
        if not value:
            continue
        if part in _SORTED:
            untyped.zadd(name + part, value)
        elif isinstance(value, dict):
            untyped.hset(name + part, mapping=value)
        elif isinstance(value, list):
            untyped.rpush(name + part, *value)
        else:
            untyped.sadd(name + part, *value)
        if left:
            untyped.pexpire(name + part, left)
    if name.endswith(NAMED):
        untyped.set(name + keys.WAS, 1, px=left + keys.milliseconds(keys.REMEMBERED))


# --- memories ---


async def move_scope(client: Redis, codecs: Codecs, former: str, tag: str, about: dict[str, str]) -> bool:
    """Take a scope to another tag, where none has begun. What is told `about` it replaces what was."""
    old, new = SessionKey(former, keys.MEMORY), SessionKey(tag, keys.MEMORY)
    was, name = keys.session(old), keys.session(new)
    async with client.pipeline(transaction=True) as pipe:
        await pipe.watch(name)
        if await pipe.exists(name) or not (parts := await _read_scope(client, was))[""]:
            return False
        left: int = await client.pttl(was)
        pipe.multi()
        _write(pipe, name, _scope_resealed(parts, codecs(old), codecs(new), about), max(0, left))
        try:
            await pipe.execute()
        except WatchError:
            if await client.exists(name):
                return False
            raise
    await client.unlink(*(was + part for part in (*parts, keys.CLAIMS)))
    return True


async def _read_scope(client: Redis, name: str) -> dict[str, Any]:
    """The values of a scope's keys by their suffix; its own fields under the empty one."""
    hashes = ("", *_RECORDS, keys.LOG)
    async with client.pipeline(transaction=True) as pipe:
        for part in hashes:
            pipe.hgetall(name + part)
        for part in _SORTED:
            cast("Any", pipe).zrange(name + part, 0, -1, withscores=True)
        pipe.smembers(name + keys.CHANNELS)
        values: list[Any] = await pipe.execute()
    read = dict(zip((*hashes, *_SORTED, keys.CHANNELS), values, strict=True))
    return read | {part: dict(read[part]) for part in _SORTED}


def _scope_resealed(parts: dict[str, Any], old: Codec, new: Codec, about: dict[str, str]) -> dict[str, Any]:
    """The same with its records as they stand under the new name, but for those that are damaged."""

    def anew(stored: bytes, place: bytes, **told: str) -> bytes:
        try:
            if told:  # beside members that are not known here
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
