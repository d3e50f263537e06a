"""The Lua scripts, each a step that the server takes whole, and what they are told of a turn.

Their sources stand in `lua/`, each beginning with what it does. A script is handed the session's key (or its
bucket's) and derives the names of the parts by the suffixes of :mod:`proxy.adapters.stores.redis.keys`: which
session it is may come out of the script itself, and all of them share a hash tag, so a cluster runs them too.
Records are opaque here. A server that has forgotten a script (restarted, `SCRIPT FLUSH`) is told it again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, cast

from msgspec.structs import replace

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import LINK, SCORE, Codec, digest
from proxy.adapters.stores.redis.connection import Script, Use
from proxy.core.conversation.records import Turn
from proxy.ports import COMPACTOR, Lookup, SessionKey
from proxy.ports.memory_store import DELETED_LOG_LIFE, DELETED_LOGS, LOGGED, LOGS, THREADS, TOMBSTONES

Arguments = Sequence[Word]

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

NEWS: Final = 64
"""How many of the messages written last a session knows to be so."""

NEWS_ITEMS: Final = 500
"""At most so many of a scope's items are told of as news: calls of others travel with them. Else all are."""

MOVING: Final = 20
"""Round trips for which a move has time: a long session, or a scope, is read and written whole, once."""

_NO_JOINT: Final = bytes(keys.HASH)

_BEGINNING: Final = re.compile(r"^--- (\w+)\n", re.MULTILINE)
"""The line before a script."""


_USES: Final = {
    "find": Use("find"),
    "ping": Use("ping", script="find"),
    "record": Use("record"),
    "record_later": Use("record", script="record", may_linger=True),
    "begin_epoch": Use("begin_epoch", revises=True),
    "pin": Use("record", revises=True),
    "keep_hidden": Use("record", revises=True),
    "inject": Use("record", revises=True),
    "mark_unsaved": Use("record", revises=True),
    "news": Use("history"),
    "pause": Use("inspect", revises=True),
    "delete": Use("inspect", revises=True),
    "first": Use(),
    "note_first": Use(may_linger=True),
    "list": Use(may_linger=True),
    "put": Use("move", trips=MOVING),
    "claim": Use("claim"),
    "release": Use("claim"),
    "keep_summary": Use("keep_summary", revises=True),
    "stand": Use("line"),
    "stand_to_compact": Use("line", script="stand", revises=True),
    "renew_lease": Use("line"),
    "leave": Use("line"),
    "add_to_hour": Use("bill", may_linger=True),
    "add_to_session": Use("bill", may_linger=True),
    "memory_note": Use("memory"),
    "memory_change": Use("memory"),
    "memory_news": Use("memory"),
    "memory_forget": Use("memory"),
    "memory_index": Use("memory"),
    "memory_channel": Use("memory"),
}

_CONSTANTS: Final = {
    **{name: value for name, value in vars(keys).items() if name.isupper() and name[0] != "_"},
    "REMEMBERED": keys.milliseconds(keys.REMEMBERED),
    "COMPACTOR": COMPACTOR,
    "NEWS": NEWS,
    "NEWS_ITEMS": NEWS_ITEMS,
    "SCORE": SCORE,
    "MOST_TOMBSTONES": TOMBSTONES,
    "MOST_LOGGED": LOGGED,
    "MOST_LOGS": LOGS,
    "MOST_DELETED_LOGS": DELETED_LOGS,
    "DELETED_LOG_LIFE": DELETED_LOG_LIFE,
    "MOST_THREADS": THREADS,
}
"""What the scripts call by these names, those of the keys' parts among them."""


def sources() -> dict[str, str]:
    """The scripts as they stand in `lua/`, each after a line with its name."""
    lua = files("proxy.adapters.stores.redis") / "lua"
    parts = [_BEGINNING.split(file.read_text(encoding="utf-8")) for file in sorted(lua.iterdir(), key=str)]
    return {name: text for part in parts for name, text in zip(part[1::2], part[2::2], strict=True)}


def _literal(value: object) -> str:
    """A value in Lua."""
    if isinstance(value, bytes):
        return '"' + "".join(f"\\{byte:03}" for byte in value) + '"'
    if isinstance(value, (tuple, list)):
        return f"{{{', '.join(map(_literal, cast('Sequence[object]', value)))}}}"
    return repr(value)


Fields = list[bytes | None]
"""A session's fields, in the order of :data:`keys.FIELDS`."""

NewsFields = tuple[Fields, bytes | None, list[bytes]]
"""A session's fields, whose turn it is in its queue, and its new messages, each after its chain hash."""


class Scripts:
    """The scripts by name, run by who can reach the server; each says what its arguments are.

    A record that begins with none of `ours` they leave as it is. Every ttl and lease is in milliseconds.
    """

    def __init__(
        self, run: Callable[[Script, Sequence[str], Arguments], Awaitable[Any]], ours: Sequence[bytes]
    ) -> None:
        self._run = run
        self._scripts: dict[str, Script] = {}
        texts = sources()
        constants = {**_CONSTANTS, "OURS": ours}
        begin = "".join(f"local {name} = {_literal(value)}\n" for name, value in constants.items())
        for name, use in _USES.items():
            text = begin + texts["shared"] + texts[use.script or name]
            sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            self._scripts[name] = Script(text, sha1, use)

    def of_session(self, name: str, key: SessionKey, *arguments: Word) -> Awaitable[Any]:
        """What a script answers of a session. Its bucket, which is never a key itself, is named beside it.

        Of a slot that is on its way a node refuses what lacks a key (TRYAGAIN, ASK) before it begins; with
        the session's key alone a script would begin, and end at the first part of the session that has gone.
        """
        return self._run(self._scripts[name], [keys.session(key), keys.bucket(key.tag)], arguments)

    def of_bucket(self, name: str, key: SessionKey, *arguments: Word) -> Awaitable[Any]:
        """What a script answers that writes to a session, and to the index that finds it."""
        names = [keys.session(key), keys.tips(key.tag), keys.bucket(key.tag)]
        return self._run(self._scripts[name], names, arguments)

    def of_key(self, name: str, key: str, *arguments: Word) -> Awaitable[Any]:
        """What a script answers of a key outside all sessions."""
        return self._run(self._scripts[name], [key], arguments)

    async def find(self, lookup: Lookup) -> Sequence[Any] | None:
        """What `find.lua` says that it answers; None where the chain belongs to no session."""
        known = (*lookup.seen, *lookup.hidden_seen, lookup.injected)
        asked = (b"".join(lookup.newest), b"".join(lookup.uncounted))
        joints = b"".join([joint or _NO_JOINT for joint in lookup.joints])
        arguments = (lookup.sid or "", lookup.lane, *known, *asked, joints)
        names = [keys.tips(lookup.tag), keys.bucket(lookup.tag)]
        return await self._run(self._scripts["find"], names, arguments)

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
    piece: list[Word] = []
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
