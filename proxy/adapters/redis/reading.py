"""What the server answers, as the records of a session. Raises UnreadableRecord where it is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
from redis.asyncio.client import Pipeline

from proxy.adapters.redis import codec, keys
from proxy.adapters.redis.scripts import Fields, FoundFields
from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls, Session
from proxy.ports import Found, SessionKey

UNREADABLE: Final[Fields] = [b"" for _ in keys.FIELDS]
"""The fields of a session that cannot be read."""


def found(fields: FoundFields, uncounted: Sequence[bytes]) -> Found:
    """What a look-up has found."""
    record = session(fields.session)
    if record is None and not (fields.epochs or fields.hidden or fields.injected):
        return Found(was_here=bool(fields.was_here))
    counts = zip(uncounted, fields.counts, strict=True)
    return Found(
        sid=fields.sid.decode(errors="replace"),
        session=record,
        known=fields.known,
        counts={chain_hash: codec.integer(count) for chain_hash, count in counts if count is not None},
        epochs=epochs(fields.epochs),
        hidden=hidden(fields.hidden),
        was_here=record is None and bool(fields.was_here),
        injected=fields.injected or b"",
        injection=injection(fields.injection),
    )


def injection(stored: bytes | None) -> bytes | None:
    """What was handed in for a session."""
    return None if stored is None else codec.decode(stored, bytes)


def ask_session(pipe: Pipeline, key: SessionKey) -> None:
    """Ask for a session's fields, and for whose turn it is in its line."""
    pipe.hmget(keys.session(key), keys.FIELDS)
    pipe.lindex(keys.session(key) + keys.LINE, 0)  # pyright: ignore[reportUnknownMemberType]


def session(fields: Fields, first_in_line: bytes | None = None) -> Session | None:
    """The record of a session, and why its appended turns wait; None where there is none."""
    record, created, turns, tip, paused, unsaved, pins = fields
    if record is None:
        return None
    compacting = "compacting" if (first_in_line or b"").startswith(b"compact") else ""
    return msgspec.structs.replace(
        codec.decode(record, Session),
        created=codec.seconds(created or b""),
        turns=codec.integer(turns or b""),
        tip=tip or b"",
        unsaved=unsaved or b"",
        pins=codec.hashes(pins or b"", keys.HASH),
        blocked="paused" if paused else compacting,
    )


def is_readable(fields: Fields) -> bool:
    """Whether the fields of a session are whole."""
    with suppress(codec.UnreadableRecord):
        session(fields)
        return True
    return False


def hidden(stored: Sequence[bytes]) -> tuple[HiddenCalls, ...]:
    """A session's answers with hidden calls, in the order written."""
    return tuple(codec.decode(each, HiddenCalls) for each in stored)


def epochs(stored: Sequence[bytes]) -> tuple[Epoch, ...]:
    """The epochs of a lane, in the order written."""
    return tuple(codec.decode(epoch, Epoch) for epoch in stored)
