"""Sessions on their way from the names of an old secret to those of a new one.

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
from proxy.adapters.stores.redis.codec import LINK, VERSION, Codec
from proxy.ports import NAMED, SessionKey

Codecs = Callable[[SessionKey], Codec]

_HASHES: Final = (keys.NODES, keys.TEXTS, keys.COUNTS, keys.SUMMARIES)
_SETS: Final = (keys.PARTIAL, keys.BESIDE, keys.LANES, keys.HIDES)
_PASSING: Final = (keys.QUEUE, keys.LEASES, keys.CLAIMS)
"""Who waits or writes just now: not taken along."""

_Fields = dict[bytes, bytes]


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
    """All keys of a session, to live for what is `left` (milliseconds)."""
    untyped = cast("Any", pipe)
    for part, value in parts.items():
        if not value:
            continue
        if isinstance(value, dict):
            untyped.hset(name + part, mapping=value)
        elif isinstance(value, list):
            untyped.rpush(name + part, *value)
        else:
            untyped.sadd(name + part, *value)
        untyped.pexpire(name + part, left)
    if name.endswith(NAMED):
        untyped.set(name + keys.WAS, 1, px=left + keys.milliseconds(keys.REMEMBERED))
