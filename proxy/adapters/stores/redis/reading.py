"""Decodes the server's answers into the records of a session, and removes damaged records.

The functions raise UnreadableRecord: DamagedRecord, or ForeignRecord for a record of another release or
secret.
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
    number,
)
from proxy.adapters.stores.redis.connection import Connection
from proxy.adapters.stores.redis.scripts import Fields, NewsFields
from proxy.core.conversation.records import HiddenCalls, Node, Session
from proxy.core.planning.plan import Epoch
from proxy.ports import COMPACTOR, Lookup, LookupResult, Mark, SessionKey, Stored
from proxy.telemetry import log_warning

UNREADABLE: Final[Fields] = [b"" for _ in keys.FIELDS]
"""Stands for the fields of a session that cannot be read."""


def found(codec: Codec, answer: Sequence[Any], lookup: Lookup) -> LookupResult:
    """Decode the answer to a lookup."""
    sid, fields, known, counts, stored, was_here, hides, injected, encoded, first_in_queue, asked, at = answer
    record = session(codec, fields, first_in_queue)
    if record is None and not (stored or hides or injected):
        return LookupResult(has_ended=bool(was_here))
    joint, place, message = asked or (b"", b"", None)
    user, is_link = node(codec, place, message) if message is not None else (None, False)
    counted = zip(lookup.uncounted, cast("list[bytes | None]", counts), strict=True)
    return LookupResult(
        sid=sid.decode(errors="replace"),
        place=at,
        session=record,
        known=known,
        counts={chain_hash: number(int, count) for chain_hash, count in counted if count is not None},
        epochs=epochs(codec, stored, lookup.lane),
        hidden=hidden(codec, hides),
        has_ended=record is None and bool(was_here),
        injected=injected or b"",
        injection=injection(codec, encoded),
        joint=joint,
        user=None if is_link else user,
    )


def injection(codec: Codec, stored: bytes | None) -> bytes | None:
    """Decode a session's injection; None if it has none."""
    return None if stored is None else codec.decode(stored, bytes, keys.INJECTION_PLACE)


def session_commands(key: SessionKey) -> tuple[Command, Command]:
    """Return the commands that read a session's fields, and the first ticket in its queue."""
    name = keys.session(key)
    return ("HMGET", name, *keys.FIELDS), ("LINDEX", name + keys.LINE, 0)


def session(codec: Codec, fields: Fields, first_in_queue: bytes | None = None) -> Session | None:
    """Return a session: its record, its plain fields, and why its turns wait; None if there is none."""
    record, created, turns, tip, paused, unsaved, pins = fields
    if record is None:
        return None
    compacting = "compacting" if first_in_queue and first_in_queue.startswith(COMPACTOR.encode()) else ""
    return msgspec.structs.replace(
        codec.decode(record, Session, keys.RECORD_PLACE),
        created=number(float, created or b""),
        turns=number(int, turns or b""),
        tip=tip or b"",
        unsaved=unsaved or b"",
        pins=hashes(pins, keys.HASH) if pins else (),
        blocked=compacting or ("paused" if paused else ""),
    )


def news(codec: Codec, fields: NewsFields, since: Mark) -> Stored | None:
    """Return a session with its messages written after ``since``; None if one of them is a link."""
    record, first_in_queue, stored = fields
    pairs = zip(stored[::2], stored[1::2], strict=True)
    read = {each: node(codec, each, message) for each, message in pairs}
    if any(is_link for _, is_link in read.values()):
        return None
    new = {each: message for each, (message, _) in read.items()}
    mark = Mark(since.life, since.messages + len(new))
    return Stored(session(codec, record, first_in_queue), new, mark=mark, is_news=True)


def hidden(codec: Codec, stored: Sequence[bytes]) -> tuple[HiddenCalls, ...]:
    """Decode a session's answers with hidden calls, in the order written."""
    return tuple(codec.decode(each, HiddenCalls, keys.HIDDEN_PLACE) for each in stored)


def epochs(codec: Codec, stored: Sequence[bytes], lane: str) -> tuple[Epoch, ...]:
    """Decode the epochs of a lane, in the order written."""
    place = keys.epoch_place(lane)
    return tuple(codec.decode(epoch, Epoch, place) for epoch in stored)


def nodes(codec: Codec, stored: Mapping[bytes, bytes]) -> dict[bytes, Node]:
    """Decode a session's messages, by chain hash. Links are replaced by the bytes they refer to."""
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
    """Decode a message, and return whether it is a link, which has a digest instead of its bytes."""
    read, version = codec.decode_any(stored, Node, keys.node_place(chain_hash), (VERSION, LINK))
    return read, version == LINK


def _texts(read: Iterable[tuple[Node, bool]]) -> dict[bytes, bytes]:
    """Return the bytes of the messages that are no links, by their digests."""
    return {digest(each.raw): each.raw for each, is_link in read if not is_link}


# --- removing damaged records of a session ---


async def discard_damaged(connection: Connection, codec: Codec, key: SessionKey, lane: str) -> None:
    """Delete the damaged records of a session, its token counts, and the epochs of a lane.

    The session's next turn writes them again. Readable messages stay; a client that sends its whole history
    sends the others again. If any record belongs to another release or secret, nothing is deleted and
    ForeignRecord is raised: a server that can read it can tell better what is damaged.
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
        _is_whole(partial(number, int, count))
    for each_lane in (named.decode(errors="replace") for named in cast("set[bytes]", lanes)):
        for epoch in await connection.ask("", "LRANGE", keys.epochs(key, each_lane), 0, -1):
            _is_whole(partial(epochs, codec, [epoch], each_lane))
    damaged_hidden = [each for each in hides if not _is_whole(partial(hidden, codec, [each]))]
    damaged_nodes = _damaged_nodes(codec, stored)
    discarding: list[Command] = [
        ("DEL", name + keys.COUNTS, keys.epochs(key, lane)),
        ("HDEL", name, "life"),  # so that readers notice the change
    ]
    if not _is_whole(partial(session, codec, fields)):
        discarding.append(("DEL", name))
    if damaged_hidden:
        discarding.append(("DEL", name + keys.HIDDEN, name + keys.HIDES))
    if not _is_whole(partial(injection, codec, injected)):
        discarding.append(("HDEL", name, "injection", "injected"))
    if damaged_nodes:
        discarding.append(("HDEL", name + keys.NODES, *damaged_nodes))
    await connection.ask_all("", *discarding)
    connection.revision += 1
    log_warning("damaged records of a session were discarded", messages=len(damaged_nodes))


def _damaged_nodes(codec: Codec, stored: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the chain hashes of messages that are damaged, or links to damaged ones."""
    whole = {
        each: node(codec, each, record)
        for each, record in stored.items()
        if _is_whole(partial(node, codec, each, record))
    }
    texts = _texts(whole.values())
    readable = {each for each, (read, is_link) in whole.items() if not is_link or read.raw in texts}
    return [each for each in stored if each not in readable]


def _is_whole(read: Callable[[], object]) -> bool:
    """Return whether a record is undamaged. Raises ForeignRecord."""
    try:
        read()
    except DamagedRecord:
        return False
    return True
