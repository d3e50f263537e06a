"""A session of which something is damaged: that is taken out, so that its next turn writes it anew.

Messages that can be read stay; a client that sends its whole history brings the others again. Where anything
is not for this server to read, nothing is taken out: who can read it can tell better what is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from redis.asyncio import Redis

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.codec import Codec, DamagedRecord, integer
from proxy.adapters.stores.redis.scripts import Fields
from proxy.ports import SessionKey
from proxy.telemetry import log_warning


async def discard_damaged(client: Redis, codec: Codec, key: SessionKey, lane: str) -> None:
    """Take out of a session what is damaged, and what a lane holds of it. Raises ForeignRecord."""
    name = keys.session(key)
    fields = cast("Fields", await client.hmget(name, keys.FIELDS))
    injection = cast("bytes | None", await client.hget(name, "injection"))
    stored = cast("dict[bytes, bytes]", await client.hgetall(name + keys.NODES))
    hidden = cast("list[bytes]", await client.lrange(name + keys.HIDDEN, 0, -1))
    await _read_others(client, codec, key)
    is_session_whole = _is_whole(partial(reading.session, codec, fields))
    is_injection_whole = _is_whole(partial(reading.injection, codec, injection))
    damaged_hidden = [each for each in hidden if not _is_whole(partial(reading.hidden, codec, [each]))]
    told = {
        each: reading.node(codec, each, node)
        for each, node in stored.items()
        if _is_whole(partial(reading.node, codec, each, node))
    }
    held = reading.texts(told.values())
    damaged = [
        each for each in stored if each not in told or (told[each][1] and told[each][0].raw not in held)
    ]
    async with client.pipeline(transaction=False) as pipe:
        pipe.delete(name + keys.COUNTS, keys.epochs(key, lane))
        pipe.hdel(name, "life")  # so the next turn finds it changed
        if not is_session_whole:
            pipe.delete(name)
        if damaged_hidden:
            pipe.delete(name + keys.HIDDEN, name + keys.HIDES)
        if not is_injection_whole:
            pipe.hdel(name, "injection", "injected")
        if damaged:
            pipe.hdel(name + keys.NODES, *damaged)
        await pipe.execute()
    log_warning("damaged records of a session were discarded", messages=len(damaged))


async def _read_others(client: Redis, codec: Codec, key: SessionKey) -> None:
    """Read what is made again from the rest. Raises ForeignRecord."""
    for count in cast("list[bytes]", await client.hvals(keys.session(key) + keys.COUNTS)):
        _is_whole(partial(integer, count))
    for named in cast("set[bytes]", await client.smembers(keys.session(key) + keys.LANES)):
        lane = named.decode(errors="replace")
        for epoch in cast("list[bytes]", await client.lrange(keys.epochs(key, lane), 0, -1)):
            _is_whole(partial(reading.epochs, codec, [epoch], lane))


def _is_whole(read: Callable[[], object]) -> bool:
    """Whether a record can be read. Raises ForeignRecord."""
    try:
        read()
    except DamagedRecord:
        return False
    return True
