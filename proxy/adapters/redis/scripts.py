"""The Lua scripts, each a step that the server takes whole, as functions with types.

Their sources stand in `lua/`, each beginning with what it does. A script is handed the session's key (or its
bucket's) and derives the names of the parts by the suffixes of :mod:`proxy.adapters.redis.keys`: which
session it is may come out of the script itself, and all of them share a hash tag, so a cluster runs them too.
Records are opaque here. A server that has forgotten a script (restarted, `SCRIPT FLUSH`) is told it again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Final, cast

import msgspec

from proxy.adapters.redis import keys
from proxy.adapters.redis.connection import Script
from proxy.ports import Lookup, Mark, SessionKey

Argument = str | bytes | int | float

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

WHOLE: Final = 5_000
"""Messages of a session that is read whole where it is asked for: no answer takes the server long."""

NEWS: Final = 64
"""How many of the messages written last a session knows to be so."""

_PARTS: Final = f"""
local NODES, COUNTS, PARTIAL = '{keys.NODES}', '{keys.COUNTS}', '{keys.PARTIAL}'
local BESIDE, WAS = '{keys.BESIDE}', '{keys.WAS}'
local SUMMARIES, LANES, EPOCHS = '{keys.SUMMARIES}', '{keys.LANES}', '{keys.EPOCHS}'
local HIDDEN, HIDES = '{keys.HIDDEN}', '{keys.HIDES}'
local LINE, LEASES, CLAIMS = '{keys.LINE}', '{keys.LEASES}', '{keys.CLAIMS}'
local HASH, NEWS, REMEMBERED = {keys.HASH}, {NEWS}, {keys.milliseconds(keys.REMEMBERED)}
local FIELDS = {{{", ".join(repr(field) for field in keys.FIELDS)}}}
"""

Fields = list[bytes | None]
"""A session's fields, in the order of :data:`keys.FIELDS`."""

NewsFields = tuple[Fields, bytes | None, list[bytes]]
"""A session's fields, whose turn it is in its line, and its new messages, each after its chain hash."""


class FoundFields(msgspec.Struct, frozen=True):
    """What `find` answers, still encoded; counts in the order asked for, all of them each after its hash."""

    sid: bytes
    session: Fields
    known: bytes | None
    counts: Sequence[bytes | None]
    epochs: list[bytes]
    was_here: int
    hidden: list[bytes]
    injected: bytes | None
    injection: bytes | None
    lives: int | None
    """Milliseconds, or less than none where there is no such session; None where not all counts are told."""


class TurnFields(msgspec.Struct, frozen=True):
    """A turn, or a piece of it, on its way into `record`."""

    record: bytes
    """The session's record; empty for a piece that writes nodes alone."""
    created: float
    tip: bytes
    """Where the tip may move; empty where it stays."""
    headerless: bool
    appended: bool
    begun_at: bytes
    is_urgent: bool
    """Whether it must not linger on its way."""
    outer_parents: Sequence[bytes]
    """Parents of the whole turn's nodes that must be there already."""
    nodes: Sequence[Argument]
    """Four of each node: its chain hash, itself encoded, its tokens, and MESSAGE, ANSWER or PARTIAL."""


class Scripts:
    """The scripts, run by who can reach the server. `ttl` is in milliseconds throughout."""

    def __init__(self, run: Callable[[Script, Sequence[str], Sequence[Argument]], Awaitable[Any]]) -> None:
        begin = _PARTS + _source("shared")

        def script(
            name: str, *, may_linger: bool = False
        ) -> Callable[[Sequence[str], Sequence[Argument]], Awaitable[Any]]:
            source = begin + _source(name)
            digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            return partial(run, Script(source, digest, may_linger))

        self._find = script("find")
        self._begin_epoch = script("begin_epoch")
        self._record = script("record", may_linger=True)
        self._record_now = script("record")
        self._pin = script("pin")
        self._keep_hidden = script("keep_hidden")
        self._inject = script("inject")
        self._claim = script("claim")
        self._release = script("release")
        self._keep_summary = script("keep_summary")
        self._mark_unsaved = script("mark_unsaved")
        self._stand = script("stand")
        self._renew_lease = script("renew_lease")
        self._leave = script("leave")
        self._pause = script("pause")
        self._delete = script("delete")
        self._list = script("list", may_linger=True)
        self._news = script("news")

    async def find(self, lookup: Lookup) -> FoundFields | None:
        """None where the chain belongs to no session."""
        known = (*lookup.seen, *lookup.hidden_seen, lookup.injected)
        asked = (b"".join(lookup.newest), b"".join(lookup.uncounted))
        args = (lookup.sid or "", lookup.lane, *known, *asked, WHOLE if lookup.whole else -1)
        answer = await self._find([keys.tips(lookup.tag), keys.bucket(lookup.tag)], args)
        return None if answer is None else FoundFields(*answer)

    async def begin_epoch(
        self, key: SessionKey, lane: str, *, seen: int, epoch: bytes, ttl: int
    ) -> list[bytes]:
        """Append to the lane, or answer what others appended."""
        return cast("list[bytes]", await self._begin_epoch(_session(key), (lane, seen, epoch, ttl)))

    async def record(self, key: SessionKey, turn: TurnFields, lives: keys.Lives) -> str | Fields:
        """Write a turn; where all of it was there before, nothing moves.

        Answers the session after it, its record only where that is not the turn's; or why nothing was
        written: `torn` (its past is not there), `moved` (the session of an appended turn has gone on from
        elsewhere). `turns` counts completed answers that were new.
        """
        outer = (len(turn.outer_parents), *turn.outer_parents)
        line = (int(turn.headerless), int(turn.appended), turn.begun_at, secrets.token_bytes(8))
        args = (key.sid, turn.record, turn.created, turn.tip, *lives, *line, *outer, *turn.nodes)
        record = self._record_now if turn.is_urgent else self._record
        answer: bytes | Fields = await record(_bucket(key), args)
        return answer.decode() if isinstance(answer, bytes) else answer

    async def news(self, key: SessionKey, since: Mark) -> NewsFields | None:
        """The session and its messages since others were read; None where all are to be read again."""
        return cast("NewsFields | None", await self._news(_session(key), since))

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], *, ttl: int) -> None:
        """Pin messages, and keep the session with them."""
        await self._pin(_session(key), (ttl, *hashes))

    async def keep_hidden(
        self, key: SessionKey, answer: bytes, hidden: bytes, *, ttl: int, begins: bool
    ) -> bool:
        """Keep what stands for an answer, and the session with it; False where that is gone."""
        return bool(await self._keep_hidden(_session(key), (answer, hidden, ttl, int(begins))))

    async def inject(self, key: SessionKey, digest: bytes, injection: bytes, *, ttl: int) -> bytes:
        """Keep what is handed in, and the session with it; what stands is answered."""
        return bytes(await self._inject(_session(key), (ttl, digest, injection)))

    async def claim(self, key: SessionKey, address: str, token: str, *, lease: int) -> bool:
        """Take or renew the lease on writing a summary; whether `token` has it."""
        return bool(await self._claim(_session(key), (address, token, lease)))

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        """Give up the lease, if it is still held."""
        await self._release(_session(key), (address, token))

    async def keep_summary(
        self, key: SessionKey, address: str, summary: bytes, *, ttl: int, token: str
    ) -> bool:
        """Keep a summary, and the session with it; whether it was kept."""
        return bool(await self._keep_summary(_session(key), (address, summary, ttl, token)))

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        """Note which turn's client was told that it is not saved."""
        await self._mark_unsaved(_session(key), (answer,))

    async def stand(self, key: SessionKey, ticket: str, *, most: int, lease: int) -> str:
        """Take or keep a place in the session's line: `go`, `wait`, or `full`."""
        return bytes(await self._stand(_session(key), (ticket, most, lease))).decode()

    async def renew_lease(self, key: SessionKey, ticket: str, *, lease: int) -> None:
        """Keep a place in the session's line, if it is still held."""
        await self._renew_lease(_session(key), (ticket, lease))

    async def leave(self, key: SessionKey, ticket: str) -> None:
        """Give up a place in the session's line."""
        await self._leave(_session(key), (ticket,))

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        """Pause a session, or let it go on; whether there is such a session."""
        return bool(await self._pause(_session(key), (int(paused),)))

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session; whether there was one."""
        return bool(await self._delete(_bucket(key), (key.sid,)))

    async def list_used(self, used: Mapping[str, float], *, ttl: int) -> None:
        """Enter sessions into the listing by their last use (seconds since 1970)."""
        entries = (word for member, score in used.items() for word in (score, member))
        await self._list([keys.SESSIONS], (ttl, keys.LISTED, *entries))


def _bucket(key: SessionKey) -> list[str]:
    return [keys.session(key), keys.tips(key.tag), keys.bucket(key.tag)]


def _session(key: SessionKey) -> list[str]:
    """A session, and its bucket, which is never a key itself.

    Of a slot that is on its way a node refuses what lacks a key (TRYAGAIN, ASK) before it begins; with the
    session's key alone a script would begin, and end at the first part of the session that has gone.
    """
    return [keys.session(key), keys.bucket(key.tag)]


def _source(name: str) -> str:
    return (files("proxy.adapters.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
