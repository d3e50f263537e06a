"""The Lua scripts, each a step that the server takes whole, and what they are told of a turn.

Their sources stand in `lua/`, each beginning with what it does. A script is handed the session's key (or its
bucket's) and derives the names of the parts by the suffixes of :mod:`proxy.adapters.stores.redis.keys`: which
session it is may come out of the script itself, and all of them share a hash tag, so a cluster runs them too.
Records are opaque here. A server that has forgotten a script (restarted, `SCRIPT FLUSH`) is told it again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.codec import LINK, SCORE, Codec, digest
from proxy.adapters.stores.redis.connection import Script
from proxy.core.conversation.records import Turn
from proxy.ports import COMPACTOR, Lookup, SessionKey
from proxy.ports.memory_store import DELETED_LOGS, LOGGED, LOGS, THREADS, TOMBSTONES

Argument = str | bytes | int | float
Arguments = Sequence[Argument]

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

NEWS: Final = 64
"""How many of the messages written last a session knows to be so."""

NEWS_ITEMS: Final = 500
"""At most so many of a scope's items are told of as news: calls of others travel with them. Else all are."""

_NO_JOINT: Final = bytes(keys.HASH)


def _table(words: Iterable[str]) -> str:
    """A list of words, in Lua."""
    return f"{{{', '.join(map(repr, words))}}}"


_PARTS: Final = f"""
local NODES, COUNTS, PARTIAL = '{keys.NODES}', '{keys.COUNTS}', '{keys.PARTIAL}'
local TEXTS, DIGEST = '{keys.TEXTS}', {keys.DIGEST}
local BESIDE, WAS = '{keys.BESIDE}', '{keys.WAS}'
local SUMMARIES, LANES, EPOCHS = '{keys.SUMMARIES}', '{keys.LANES}', '{keys.EPOCHS}'
local HIDDEN, HIDES = '{keys.HIDDEN}', '{keys.HIDES}'
local BILL, WRITER = '{keys.BILL}', '{keys.WRITER}'
local LINE, LEASES, CLAIMS = '{keys.QUEUE}', '{keys.LEASES}', '{keys.CLAIMS}'
local COMPACTOR = '{COMPACTOR}'
local ITEMS, CHANGED, GONE, ARCHIVE = '{keys.ITEMS}', '{keys.CHANGED}', '{keys.GONE}', '{keys.ARCHIVE}'
local LOG, LOGGED, DELETED, ENDS = '{keys.LOG}', '{keys.LOGGED}', '{keys.DELETED}', '{keys.ENDS}'
local THREADS, READ, CHANNELS, SCORE = '{keys.THREADS}', '{keys.READ}', '{keys.CHANNELS}', '{SCORE}'
local MOST_TOMBSTONES, MOST_LOGGED, MOST_LOGS = {TOMBSTONES}, {LOGGED}, {LOGS}
local MOST_DELETED_LOGS, MOST_THREADS, NEWS_ITEMS = {DELETED_LOGS}, {THREADS}, {NEWS_ITEMS}
local SCOPE_PARTS, SCOPE_FIELDS = {_table(keys.SCOPE_PARTS)}, {_table(keys.SCOPE_FIELDS)}
local HASH, NEWS, REMEMBERED = {keys.HASH}, {NEWS}, {keys.milliseconds(keys.REMEMBERED)}
local FIELDS = {_table(keys.FIELDS)}
"""

_TIMED: Final = {
    "find": "find",
    "ping": "ping",
    "begin_epoch": "begin_epoch",
    "record": "record",
    "record_later": "record",
    "pin": "record",
    "keep_hidden": "record",
    "inject": "record",
    "mark_unsaved": "record",
    "claim": "claim",
    "release": "claim",
    "keep_summary": "keep_summary",
    "stand": "line",
    "renew_lease": "line",
    "leave": "line",
    "stand_to_compact": "line",
    "pause": "inspect",
    "delete": "inspect",
    "news": "history",
    "list": "",
    "note_first": "",
    "first": "",
    "add_to_hour": "bill",
    "add_to_session": "bill",
    "memory_note": "memory",
    "memory_change": "memory",
    "memory_news": "memory",
    "memory_forget": "memory",
    "memory_index": "memory",
    "memory_channel": "memory",
}
"""Every script, and as what it is timed; empty where it is not."""
_SOURCES: Final = {"ping": "find", "record_later": "record", "stand_to_compact": "stand"}
"""Those that are another's, run for something else."""
_MAY_LINGER: Final = frozenset({"record_later", "list", "note_first", "add_to_hour", "add_to_session"})
_REVISING: Final = frozenset(
    {
        *("begin_epoch", "pin", "keep_hidden", "inject", "keep_summary", "mark_unsaved", "pause", "delete"),
        "stand_to_compact",
    }
)
"""Those that may change what is found of a session, being no turn of it."""

Fields = list[bytes | None]
"""A session's fields, in the order of :data:`keys.FIELDS`."""

NewsFields = tuple[Fields, bytes | None, list[bytes]]
"""A session's fields, whose turn it is in its queue, and its new messages, each after its chain hash."""


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
    first_in_queue: bytes | None
    """Whose turn it is in the session's queue."""
    user: tuple[bytes, bytes, bytes | None] | None
    """The joint by which it was found, the chain hash of the message that was answered there, and itself."""


class Scripts:
    """The scripts by name, run by who can reach the server; each says what its arguments are.

    A record that begins with none of `ours` they leave as it is. Every ttl and lease is in milliseconds.
    """

    def __init__(
        self, run: Callable[[Script, Sequence[str], Arguments], Awaitable[Any]], ours: Sequence[bytes]
    ) -> None:
        def literal(text: bytes) -> str:
            return '"' + "".join(f"\\{byte:03}" for byte in text) + '"'

        def source(name: str) -> str:
            lua = files("proxy.adapters.stores.redis") / "lua"
            return (lua / f"{name}.lua").read_text(encoding="utf-8")

        begin = _PARTS + f"local OURS = {{{', '.join(map(literal, ours))}}}\n" + source("shared")
        self._run = run
        self._scripts: dict[str, Script] = {}
        for name, op in _TIMED.items():
            text = begin + source(_SOURCES.get(name, name))
            sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            self._scripts[name] = Script(text, sha1, op, name in _MAY_LINGER, name in _REVISING)

    def of_session(self, name: str, key: SessionKey, *arguments: Argument) -> Awaitable[Any]:
        """What a script answers of a session. Its bucket, which is never a key itself, is named beside it.

        Of a slot that is on its way a node refuses what lacks a key (TRYAGAIN, ASK) before it begins; with
        the session's key alone a script would begin, and end at the first part of the session that has gone.
        """
        return self._run(self._scripts[name], [keys.session(key), keys.bucket(key.tag)], arguments)

    def of_bucket(self, name: str, key: SessionKey, *arguments: Argument) -> Awaitable[Any]:
        """What a script answers that writes to a session, and to the index that finds it."""
        names = [keys.session(key), keys.tips(key.tag), keys.bucket(key.tag)]
        return self._run(self._scripts[name], names, arguments)

    def of_key(self, name: str, key: str, *arguments: Argument) -> Awaitable[Any]:
        """What a script answers of a key outside all sessions."""
        return self._run(self._scripts[name], [key], arguments)

    async def find(self, lookup: Lookup) -> FoundFields | None:
        """None where the chain belongs to no session."""
        known = (*lookup.seen, *lookup.hidden_seen, lookup.injected)
        asked = (b"".join(lookup.newest), b"".join(lookup.uncounted))
        joints = b"".join([joint or _NO_JOINT for joint in lookup.joints])
        arguments = (lookup.sid or "", lookup.lane, *known, *asked, joints)
        names = [keys.tips(lookup.tag), keys.bucket(lookup.tag)]
        answer = await self._run(self._scripts["find"], names, arguments)
        return None if answer is None else FoundFields(*answer)

    async def ping(self) -> None:
        """Look for a session that is never there."""
        names = [keys.tips("nobody"), keys.bucket("nobody")]
        await self._run(self._scripts["ping"], names, ("nobody", "", *[""] * 8))

    async def record(self, codec: Codec, key: SessionKey, turn: Turn, lives: keys.Lives) -> str:
        """Write a turn; where all of it was there before, nothing moves.

        Answers `kept`, or why nothing was written: `torn` (its past is not there), `moved` (the session of an
        appended turn has gone on from elsewhere). `turns` counts completed answers that were new.
        """
        outer = sorted(turn.outer_parents)
        recorded = "kept"
        for record, nodes in pieces(codec, turn):
            # Somebody waits for a piece, and for a turn that comes late or was appended.
            is_urgent = not record or turn.is_late or turn.begun_at is not None
            joint = turn.joint if record else None
            found_by = (joint.hash, joint.user.hex(), joint.first) if joint else (b"", "", "")
            tip = turn.session.tip if turn.advances_tip else b""
            answer: bytes = await self.of_bucket(
                "record" if is_urgent else "record_later",
                key,
                *(key.sid, record, turn.session.created, tip, *lives),
                *(int(turn.headerless), int(turn.begun_at is not None), turn.begun_at or b""),
                *(secrets.token_bytes(8), *found_by, int(turn.is_joined)),
                *(len(outer), *outer, *nodes),
            )
            recorded = answer.decode()
            if recorded != "kept":
                break
        return recorded


# --- a turn on its way into Redis: its messages encoded, in pieces where they are many ---


_NODE: Final = 5
"""Arguments of a node."""

LONG: Final = 1024
"""Bytes from which on a message is stored once in a session: what says so takes some 100 itself."""

PIECE_NODES: Final = 500
PIECE_BYTES: Final = 4 * 1024 * 1024
"""A turn of more than this is written in pieces: no one step holds up the server, or runs out of time."""


def pieces(codec: Codec, turn: Turn) -> Iterator[tuple[bytes, Arguments]]:
    """A turn's messages as arguments; in pieces where they are many, of which the last has the session too.

    Our answer comes last, for it is counted there. There is always a last piece. Each message has its chain
    hash, itself encoded, its tokens, MESSAGE, ANSWER or PARTIAL, and what is stored instead where its bytes
    are there already: their digest and a link, or nothing.
    """
    piece: list[Argument] = []
    size = 0
    for node in sorted(turn.nodes, key=attrgetter("answer")):
        is_full = len(piece) == _NODE * PIECE_NODES or size + len(node.raw) > PIECE_BYTES
        if piece and is_full and not node.answer:
            yield b"", piece
            piece, size = [], 0
        kind = MESSAGE if not node.answer else ANSWER if node.complete else PARTIAL
        place, link = keys.node_place(node.hash), b""
        if len(node.raw) >= LONG and kind != PARTIAL:
            name = digest(node.raw)
            link = name + codec.encode(replace(node, raw=name), place, LINK)
        piece += (node.hash, codec.encode(node, place), node.tokens, kind, link)
        size += len(node.raw)
    yield codec.encode(turn.session, keys.RECORD_PLACE), piece
