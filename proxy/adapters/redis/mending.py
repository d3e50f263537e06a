"""A session of which something cannot be read: that is taken out, so that its next turn writes it anew.

Messages that can be read stay; a client that sends its whole history brings the others again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from redis.asyncio import Redis

from proxy.adapters.redis import keys, reading
from proxy.adapters.redis.codec import Codec, UnreadableRecord
from proxy.adapters.redis.scripts import Fields
from proxy.adapters.redis.sealing import UnknownSecret
from proxy.core.records import HiddenCalls, Node
from proxy.ports import SessionKey
from proxy.telemetry import log_warning


async def discard_unreadable(client: Redis, codec: Codec, key: SessionKey, lane: str) -> None:
    """Take out of a session what cannot be read, and what a lane holds of it."""
    name = keys.session(key)
    fields = cast("Fields", await client.hmget(name, keys.FIELDS))
    stored = cast("dict[bytes, bytes]", await client.hgetall(name + keys.NODES))
    hidden = cast("list[bytes]", await client.lrange(name + keys.HIDDEN, 0, -1))
    injection = cast("bytes | None", await client.hget(name, "injection"))
    damaged = [
        chain_hash
        for chain_hash, node in stored.items()
        if not _is_whole(partial(codec.decode, node, Node, keys.node_place(chain_hash)))
    ]
    async with client.pipeline(transaction=False) as pipe:
        pipe.delete(name + keys.COUNTS, keys.epochs(key, lane))
        pipe.hdel(name, "life")  # so the next turn finds it changed
        if not _is_whole(partial(_read_session, codec, fields)):
            pipe.delete(name)
        if not all(_is_whole(partial(codec.decode, each, HiddenCalls, keys.HIDDEN_PLACE)) for each in hidden):
            pipe.delete(name + keys.HIDDEN, name + keys.HIDES)
        if not _is_whole(partial(reading.injection, codec, injection)):
            pipe.hdel(name, "injection", "injected")
        if damaged:
            pipe.hdel(name + keys.NODES, *damaged)
        await pipe.execute()
    log_warning("unreadable records of a session were discarded", messages=len(damaged))


def _read_session(codec: Codec, fields: Fields) -> None:
    reading.turns_written(fields)
    reading.session(codec, fields)


def _is_whole(read: Callable[[], object]) -> bool:
    """Whether a record can be read: one that another secret has sealed is, as far as anybody can tell."""
    try:
        read()
    except UnknownSecret:
        return True
    except UnreadableRecord:
        return False
    return True
