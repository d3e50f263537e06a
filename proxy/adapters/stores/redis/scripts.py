"""The Lua scripts, each a step that the server takes whole, as functions with types.

Their sources stand in `lua/`, each beginning with what it does. A script is handed the session's key (or its
bucket's) and derives the names of the parts by the suffixes of :mod:`proxy.adapters.stores.redis.keys`: which
session it is may come out of the script itself, and all of them share a hash tag, so a cluster runs them too.
Records are opaque here. A server that has forgotten a script (restarted, `SCRIPT FLUSH`) is told it again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.codec import LINK, Codec, digest
from proxy.adapters.stores.redis.connection import Script
from proxy.core.conversation.records import Joint, Node, Turn
from proxy.ports import Lookup, Mark, SessionKey

Argument = str | bytes | int | float

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

NEWS: Final = 64
"""How many of the messages written last a session knows to be so."""

_NO_JOINT: Final = bytes(keys.HASH)

_PARTS: Final = f"""
local NODES, COUNTS, PARTIAL = '{keys.NODES}', '{keys.COUNTS}', '{keys.PARTIAL}'
local TEXTS, DIGEST = '{keys.TEXTS}', {keys.DIGEST}
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
    """What `find` answers, still encoded; counts in the order asked for."""

    sid: bytes
    session: Fields
    known: bytes | None
    counts: Sequence[bytes | None]
    epochs: list[bytes]
    was_here: int
    hidden: list[bytes]
    injected: bytes | None
    injection: bytes | None
    said: tuple[bytes, bytes, bytes | None] | None
    """The joint by which it was found, the chain hash of the message that was answered there, and itself."""


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
    joint: Joint | None
    is_joined: bool
    is_urgent: bool
    """Whether it must not linger on its way."""
    outer_parents: Sequence[bytes]
    """Parents of the whole turn's nodes that must be there already."""
    nodes: Sequence[Argument]
    """Five of each node: its chain hash, itself encoded, its tokens, MESSAGE, ANSWER or PARTIAL, and what is
    stored instead where its bytes are there already: their digest and a link, or empty."""


class Scripts:
    """The scripts, run by who can reach the server. `ttl` is in milliseconds throughout.

    A record that begins with none of `ours` they leave as it is.
    """

    def __init__(
        self,
        run: Callable[[Script, Sequence[str], Sequence[Argument]], Awaitable[Any]],
        ours: Sequence[bytes],
    ) -> None:
        begin = _PARTS + f"local OURS = {{{', '.join(map(_literal, ours))}}}\n" + _source("shared")

        def script(
            name: str, op: str = "", *, may_linger: bool = False, revises: bool = False
        ) -> Callable[[Sequence[str], Sequence[Argument]], Awaitable[Any]]:
            source = begin + _source(name)
            digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            return partial(run, Script(source, digest, op, may_linger, revises))

        self._find = script("find", "find")
        self._ping = script("find", "ping")
        self._begin_epoch = script("begin_epoch", "begin_epoch", revises=True)
        self._record = script("record", "record", may_linger=True)
        self._record_now = script("record", "record")
        self._pin = script("pin", "record", revises=True)
        self._keep_hidden = script("keep_hidden", "record", revises=True)
        self._inject = script("inject", "record", revises=True)
        self._claim = script("claim", "claim")
        self._release = script("release", "claim")
        self._keep_summary = script("keep_summary", "keep_summary", revises=True)
        self._mark_unsaved = script("mark_unsaved", "record", revises=True)
        self._stand = script("stand", "line")
        self._renew_lease = script("renew_lease", "line")
        self._leave = script("leave", "line")
        self._pause = script("pause", "inspect", revises=True)
        self._delete = script("delete", "inspect", revises=True)
        self._list = script("list", may_linger=True)
        self._news = script("news", "history")
        self._note_first = script("note_first", may_linger=True)
        self._first = script("first")

    async def find(self, lookup: Lookup) -> FoundFields | None:
        """None where the chain belongs to no session."""
        known = (*lookup.seen, *lookup.hidden_seen, lookup.injected)
        asked = (b"".join(lookup.newest), b"".join(lookup.uncounted))
        joints = b"".join([joint or _NO_JOINT for joint in lookup.joints])
        args = (lookup.sid or "", lookup.lane, *known, *asked, joints)
        answer = await self._find([keys.tips(lookup.tag), keys.bucket(lookup.tag)], args)
        return None if answer is None else FoundFields(*answer)

    async def ping(self) -> None:
        """Look for a session that is never there."""
        await self._ping([keys.tips("nobody"), keys.bucket("nobody")], ("nobody", "", *[""] * 8))

    async def begin_epoch(
        self, key: SessionKey, lane: str, *, seen: int, epoch: bytes, ttl: int
    ) -> list[bytes]:
        """Append to the lane, or answer what others appended."""
        return cast("list[bytes]", await self._begin_epoch(_session(key), (lane, seen, epoch, ttl)))

    async def record(self, key: SessionKey, turn: TurnFields, lives: keys.Lives) -> str:
        """Write a turn; where all of it was there before, nothing moves.

        Answers `kept`, or why nothing was written: `torn` (its past is not there), `moved` (the session of an
        appended turn has gone on from elsewhere). `turns` counts completed answers that were new.
        """
        outer = (len(turn.outer_parents), *turn.outer_parents)
        line = (int(turn.headerless), int(turn.appended), turn.begun_at, secrets.token_bytes(8))
        joint = turn.joint
        named = (joint.hash, joint.said.hex(), joint.first) if joint else (b"", "", "")
        found = (*named, int(turn.is_joined))
        args = (key.sid, turn.record, turn.created, turn.tip, *lives, *line, *found, *outer, *turn.nodes)
        record = self._record_now if turn.is_urgent else self._record
        return bytes(await record(_bucket(key), args)).decode()

    async def note_first(self, first: str, tag: str, *, ttl: int) -> None:
        """Note under the tag `first` that a session is kept under `tag`; no longer, without a ttl."""
        await self._note_first([keys.first(first)], (tag, ttl))

    async def first(self, first: str) -> list[str]:
        """The tags that are noted there."""
        return sorted(tag.decode() for tag in cast("list[bytes]", await self._first([keys.first(first)], ())))

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

    async def delete(self, key: SessionKey) -> tuple[bool, str]:
        """Forget a session; whether there was one, and under which tag its bucket is noted, if it is."""
        was, first = cast("tuple[int, bytes | None]", await self._delete(_bucket(key), (key.sid,)))
        return bool(was), (first or b"").decode(errors="replace")

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


def _literal(text: bytes) -> str:
    """A string of Lua."""
    return '"' + "".join(f"\\{byte:03}" for byte in text) + '"'


def _source(name: str) -> str:
    return (files("proxy.adapters.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


# --- a turn on its way into Redis: its messages encoded, in pieces where they are many ---


_NODE: Final = 5
"""Arguments of a node."""

LONG: Final = 1024
"""Bytes from which on a message is stored once in a session: what says so takes some 100 itself."""

PIECE_NODES: Final = 500
PIECE_BYTES: Final = 4 * 1024 * 1024
"""A turn of more than this is written in pieces: no one step holds up the server, or runs out of time."""


def pieces(codec: Codec, turn: Turn) -> Iterator[TurnFields]:
    """What the script is told of a turn; where its messages are many, in pieces.

    The session and our answer come last, for the answer is counted there. There is always a last piece.
    """
    piece: list[Argument] = []
    outer_parents, size = sorted(turn.outer_parents), 0
    for node in sorted(turn.nodes, key=attrgetter("answer")):
        is_full = len(piece) == _NODE * PIECE_NODES or size + len(node.raw) > PIECE_BYTES
        if piece and is_full and not node.answer:
            yield _fields(turn, b"", outer_parents, piece)
            piece, size = [], 0
        piece += _node_fields(codec, node)
        size += len(node.raw)
    yield _fields(turn, codec.encode(turn.session, keys.RECORD_PLACE), outer_parents, piece)


def _fields(
    turn: Turn, record: bytes, outer_parents: Sequence[bytes], nodes: Sequence[Argument]
) -> TurnFields:
    return TurnFields(
        record=record,
        created=turn.session.created,
        tip=turn.session.tip if turn.advances_tip else b"",
        headerless=turn.headerless,
        appended=turn.begun_at is not None,
        begun_at=turn.begun_at or b"",
        joint=turn.joint if record else None,
        is_joined=turn.is_joined,
        is_urgent=not record or turn.is_late or turn.begun_at is not None,  # somebody waits for it
        outer_parents=outer_parents,
        nodes=nodes,
    )


def _node_fields(codec: Codec, node: Node) -> tuple[Argument, ...]:
    kind = MESSAGE if not node.answer else ANSWER if node.complete else PARTIAL
    place, link = keys.node_place(node.hash), b""
    if len(node.raw) >= LONG and kind != PARTIAL:
        named = digest(node.raw)
        link = named + codec.encode(replace(node, raw=named), place, LINK)
    return node.hash, codec.encode(node, place), node.tokens, kind, link
