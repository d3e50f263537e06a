"""What the server answers, as the records of a session. Raises UnreadableRecord where it is damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from redis.asyncio.client import Pipeline

from proxy.adapters.redis import keys
from proxy.adapters.redis.codec import Codec, UnreadableRecord, hashes, integer, seconds
from proxy.adapters.redis.scripts import Fields, FoundFields, NewsFields
from proxy.adapters.redis.sealing import UnknownSecret
from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls, Node, Session, Turn
from proxy.ports import Found, Lookup, Mark, Recorded, SessionKey, Stored, Whole, Written

UNREADABLE: Final[Fields] = [b"" for _ in keys.FIELDS]
"""The fields of a session that cannot be read."""


def found(codec: Codec, fields: FoundFields, lookup: Lookup) -> Found:
    """What a look-up has found."""
    record = session(codec, fields.session)
    if record is None and not (fields.epochs or fields.hidden or fields.injected):
        return Found(was_here=bool(fields.was_here), whole=None if fields.counts else _whole(fields))
    told = iter(fields.counts)
    hashes = lookup.uncounted if fields.lives is None else told
    counts = zip(hashes, told, strict=fields.lives is None)
    return Found(
        sid=fields.sid.decode(errors="replace"),
        session=record,
        known=fields.known,
        counts={
            chain_hash: integer(count) for chain_hash, count in counts if chain_hash and count is not None
        },
        epochs=epochs(codec, fields.epochs, lookup.lane),
        hidden=hidden(codec, fields.hidden),
        was_here=record is None and bool(fields.was_here),
        injected=fields.injected or b"",
        injection=injection(codec, fields.injection),
        whole=_whole(fields),
    )


def _whole(fields: FoundFields) -> Whole | None:
    """What is to be known where all counts are told."""
    if fields.lives is None:
        return None
    return Whole(fields.lives / 1000 if fields.lives >= 0 else math.inf, turns_written(fields.session))


def turns_written(fields: Fields) -> int:
    """How many turns were written to a session. Raises UnreadableRecord."""
    return integer(fields[-1] or b"0")


def injection(codec: Codec, stored: bytes | None) -> bytes | None:
    """What was handed in for a session."""
    return None if stored is None else codec.decode(stored, bytes, keys.INJECTION_PLACE)


def ask_session(pipe: Pipeline, key: SessionKey) -> None:
    """Ask for a session's fields, and for whose turn it is in its line."""
    pipe.hmget(keys.session(key), keys.FIELDS)
    pipe.lindex(keys.session(key) + keys.LINE, 0)  # pyright: ignore[reportUnknownMemberType]


def session(codec: Codec, fields: Fields, first_in_line: bytes | None = None) -> Session | None:
    """The record of a session, and why its appended turns wait; None where there is none."""
    if fields[0] is None:
        return None
    return merged(codec.decode(fields[0], Session, keys.RECORD_PLACE), fields, first_in_line)


def merged(record: Session, fields: Fields, first_in_line: bytes | None = None) -> Session:
    """A session's record with what the server keeps beside it."""
    _, created, turns, tip, paused, unsaved, pins, _ = fields
    compacting = "compacting" if first_in_line and first_in_line.startswith(b"compact") else ""
    return msgspec.structs.replace(
        record,
        created=seconds(created or b""),
        turns=integer(turns or b""),
        tip=tip or b"",
        unsaved=unsaved or b"",
        pins=hashes(pins, keys.HASH) if pins else (),
        blocked="paused" if paused else compacting,
    )


def written(codec: Codec, turn: Turn, fields: Fields) -> Written:
    """What a turn has made of its session; without the session where that cannot be read."""
    try:
        return Written(
            Recorded.KEPT, session(codec, fields) or merged(turn.session, fields), turns_written(fields)
        )
    except (UnreadableRecord, UnknownSecret):
        return Written(Recorded.KEPT)


def news(codec: Codec, fields: NewsFields, since: Mark) -> Stored:
    """A session with its messages since others were read."""
    record, first_in_line, told = fields
    new = nodes(codec, dict(zip(told[::2], told[1::2], strict=True)))
    mark = Mark(since.life, since.messages + len(new))
    return Stored(session(codec, record, first_in_line), new, mark=mark, is_news=True)


def hidden(codec: Codec, stored: Sequence[bytes]) -> tuple[HiddenCalls, ...]:
    """A session's answers with hidden calls, in the order written."""
    return tuple(codec.decode(each, HiddenCalls, keys.HIDDEN_PLACE) for each in stored)


def epochs(codec: Codec, stored: Sequence[bytes], lane: str) -> tuple[Epoch, ...]:
    """The epochs of a lane, in the order written."""
    place = keys.epoch_place(lane)
    return tuple(codec.decode(epoch, Epoch, place) for epoch in stored)


def nodes(codec: Codec, stored: Mapping[bytes, bytes]) -> dict[bytes, Node]:
    """A session's messages by chain hash."""
    return {
        chain_hash: codec.decode(node, Node, keys.node_place(chain_hash))
        for chain_hash, node in stored.items()
    }
