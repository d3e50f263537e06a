"""What the server answers, as the records of a session; and what is damaged of it, taken out.

Raises UnreadableRecord: DamagedRecord, or ForeignRecord where it is not for this server to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.cluster import Command
from proxy.adapters.stores.redis.codec import (
    LINK,
    VERSION,
    Codec,
    DamagedRecord,
    digest,
    hashes,
    integer,
    seconds,
)
from proxy.adapters.stores.redis.connection import Connection
from proxy.adapters.stores.redis.scripts import Fields, NewsFields
from proxy.core.conversation.records import HiddenCalls, Node, Session
from proxy.core.planning.plan import Epoch
from proxy.ports import COMPACTOR, Found, Lookup, Mark, SessionKey, Stored
from proxy.telemetry import log_warning

UNREADABLE: Final[Fields] = [b"" for _ in keys.FIELDS]
"""The fields of a session that cannot be read."""


def found(codec: Codec, answer: Sequence[Any], lookup: Lookup) -> Found:
    """What a look-up has found."""
    sid, fields, known, counts, stored, was_here, hides, injected, injection_, first_in_queue, user = answer
    record = session(codec, fields, first_in_queue)
    if record is None and not (stored or hides or injected):
        return Found(was_here=bool(was_here))
    joint, place, user = user or (b"", b"", None)
    user, is_link = node(codec, place, user) if user is not None else (None, False)
    counted = zip(lookup.uncounted, cast("list[bytes | None]", counts), strict=True)
    return Found(
        sid=sid.decode(errors="replace"),
        session=record,
        known=known,
        counts={chain_hash: integer(count) for chain_hash, count in counted if count is not None},
        epochs=epochs(codec, stored, lookup.lane),
        hidden=hidden(codec, hides),
        was_here=record is None and bool(was_here),
        injected=injected or b"",
        injection=injection(codec, injection_),
        joint=joint,
        user=None if is_link else user,
    )


def injection(codec: Codec, stored: bytes | None) -> bytes | None:
    """What was handed in for a session."""
    return None if stored is None else codec.decode(stored, bytes, keys.INJECTION_PLACE)


def session_commands(key: SessionKey) -> tuple[Command, Command]:
    """What asks for a session's fields, and for whose turn it is in its queue."""
    name = keys.session(key)
    return ("HMGET", name, *keys.FIELDS), ("LINDEX", name + keys.LINE, 0)


def session(codec: Codec, fields: Fields, first_in_queue: bytes | None = None) -> Session | None:
    """A session with what stands beside its record, and why its turns wait; None where there is none."""
    record, created, turns, tip, paused, unsaved, pins = fields
    if record is None:
        return None
    compacting = "compacting" if first_in_queue and first_in_queue.startswith(COMPACTOR.encode()) else ""
    return msgspec.structs.replace(
        codec.decode(record, Session, keys.RECORD_PLACE),
        created=seconds(created or b""),
        turns=integer(turns or b""),
        tip=tip or b"",
        unsaved=unsaved or b"",
        pins=hashes(pins, keys.HASH) if pins else (),
        blocked=compacting or ("paused" if paused else ""),
    )


def news(codec: Codec, fields: NewsFields, since: Mark) -> Stored | None:
    """A session with its messages since others were read; None where one of them tells of others."""
    record, first_in_queue, stored = fields
    pairs = zip(stored[::2], stored[1::2], strict=True)
    read = {each: node(codec, each, message) for each, message in pairs}
    if any(is_link for _, is_link in read.values()):
        return None
    new = {each: message for each, (message, _) in read.items()}
    mark = Mark(since.life, since.messages + len(new))
    return Stored(session(codec, record, first_in_queue), new, mark=mark, is_news=True)


def hidden(codec: Codec, stored: Sequence[bytes]) -> tuple[HiddenCalls, ...]:
    """A session's answers with hidden calls, in the order written."""
    return tuple(codec.decode(each, HiddenCalls, keys.HIDDEN_PLACE) for each in stored)


def epochs(codec: Codec, stored: Sequence[bytes], lane: str) -> tuple[Epoch, ...]:
    """The epochs of a lane, in the order written."""
    place = keys.epoch_place(lane)
    return tuple(codec.decode(epoch, Epoch, place) for epoch in stored)


def nodes(codec: Codec, stored: Mapping[bytes, bytes]) -> dict[bytes, Node]:
    """A session's messages by chain hash."""
    read = {chain_hash: node(codec, chain_hash, record) for chain_hash, record in stored.items()}
    held = _texts(read.values()) if any(is_link for _, is_link in read.values()) else {}
    try:
        return {
            chain_hash: msgspec.structs.replace(each, raw=held[each.raw]) if is_link else each
            for chain_hash, (each, is_link) in read.items()
        }
    except KeyError as error:
        raise DamagedRecord from error


def node(codec: Codec, chain_hash: bytes, stored: bytes) -> tuple[Node, bool]:
    """A message, and whether it is a link: then it has a digest in the place of its bytes."""
    read, version = codec.decode_any(stored, Node, keys.node_place(chain_hash), (VERSION, LINK))
    return read, version == LINK


def _texts(read: Iterable[tuple[Node, bool]]) -> dict[bytes, bytes]:
    """The bytes that messages hold, by their digests."""
    return {digest(each.raw): each.raw for each, is_link in read if not is_link}


# --- a session of which something is damaged ---


async def discard_damaged(connection: Connection, codec: Codec, key: SessionKey, lane: str) -> None:
    """Take out of a session what is damaged, and what a lane holds of it: its next turn writes it anew.

    Messages that can be read stay; a client that sends its whole history brings the others again. Where
    anything is not for this server to read, nothing is taken out, and ForeignRecord is raised: who can read
    it can tell better what is damaged. What is made again from the rest is read for that alone.
    """
    name = keys.session(key)
    fields, injected, stored, hides, counts, lanes = await connection.ask_all(
        "",
        ("HMGET", name, *keys.FIELDS),
        ("HGET", name, "injection"),
        ("HGETALL", name + keys.NODES),
        ("LRANGE", name + keys.HIDDEN, 0, -1),
        ("HVALS", name + keys.COUNTS),
        ("SMEMBERS", name + keys.LANES),
    )
    for count in cast("list[bytes]", counts):
        _is_whole(partial(integer, count))
    for each_lane in (named.decode(errors="replace") for named in cast("set[bytes]", lanes)):
        for epoch in await connection.ask("", "LRANGE", keys.epochs(key, each_lane), 0, -1):
            _is_whole(partial(epochs, codec, [epoch], each_lane))
    is_session_whole = _is_whole(partial(session, codec, fields))
    is_injection_whole = _is_whole(partial(injection, codec, injected))
    damaged_hidden = [each for each in hides if not _is_whole(partial(hidden, codec, [each]))]
    whole = {
        each: node(codec, each, record)
        for each, record in cast("dict[bytes, bytes]", stored).items()
        if _is_whole(partial(node, codec, each, record))
    }
    held = _texts(whole.values())
    damaged = [
        each for each in stored if each not in whole or (whole[each][1] and whole[each][0].raw not in held)
    ]
    discarding: list[Command] = [
        ("DEL", name + keys.COUNTS, keys.epochs(key, lane)),
        ("HDEL", name, "life"),  # so the next turn finds it changed
    ]
    if not is_session_whole:
        discarding.append(("DEL", name))
    if damaged_hidden:
        discarding.append(("DEL", name + keys.HIDDEN, name + keys.HIDES))
    if not is_injection_whole:
        discarding.append(("HDEL", name, "injection", "injected"))
    if damaged:
        discarding.append(("HDEL", name + keys.NODES, *damaged))
    await connection.ask_all("", *discarding)
    connection.revision += 1
    log_warning("damaged records of a session were discarded", messages=len(damaged))


def _is_whole(read: Callable[[], object]) -> bool:
    """Whether a record can be read. Raises ForeignRecord."""
    try:
        read()
    except DamagedRecord:
        return False
    return True
