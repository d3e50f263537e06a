"""Runs the Lua scripts, each of which the server executes atomically, and encodes turns for them.

The sources are in `lua/`; each begins with a description. A script gets the session's key (or its bucket's)
and derives the keys of the parts with the suffixes of :mod:`proxy.adapters.stores.redis.keys`, because some
scripts find out themselves which session is meant. All these keys share a hash tag, so the scripts run in a
cluster too. Scripts cannot read records. If the server has lost a script (restart, `SCRIPT FLUSH`), it is
sent again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Iterator, Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final, cast

from msgspec.structs import replace

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import LINK, SCORE, Codec, digest
from proxy.adapters.stores.redis.connection import Connection, Script, Use
from proxy.core.conversation.records import Turn
from proxy.ports import COMPACTOR, SUFFIXES, Lookup, Recorded, SessionKey
from proxy.ports.memory_store import DELETED_LOG_LIFE, DELETED_LOGS, LATE, LOGGED, LOGS, THREADS, TOMBSTONES

Arguments = Sequence[Word]

MESSAGE: Final = "message"
ANSWER: Final = "answer"
PARTIAL: Final = "partial"

NEWS: Final = 64
"""The most chain hashes of new messages that a session has in its field `news`."""

NEWS_ITEMS: Final = 500
"""The most items of a scope that are sent as changed, as they delay other calls; if more, all are read."""

VERSIONS: Final = 2_048
"""Bytes of the newest versions that a scope remembers, some 120: a reader of an older one reads it whole."""

MOVING: Final = 20
"""The timeout of a move in round trips: a long session, or a scope, is read and written whole, once."""

_NO_JOINT: Final = bytes(keys.HASH)

_BEGINNING: Final = re.compile(r"^--- (\w+)\n", re.MULTILINE)
"""The line before each script, with its name."""


_USES: Final = {
    "find": Use("find"),
    "ping": Use("ping"),
    "record": Use("record"),
    "record_later": Use("record", script="record", may_linger=True),
    "begin_epoch": Use("begin_epoch", revises=True),
    "pin": Use("record", revises=True),
    "keep_hidden": Use("record", revises=True),
    "inject": Use("record", revises=True),
    "mark_unsaved": Use("record", revises=True),
    "news": Use("history", is_long=True),
    "pause": Use("inspect", revises=True),
    "delete": Use("inspect", revises=True),
    "first": Use(),
    "note_first": Use(may_linger=True),
    "note_suffix": Use(may_linger=True),
    "list": Use(may_linger=True),
    "state": Use("move", trips=MOVING),
    "put": Use("move", trips=MOVING),
    "remove": Use("move", trips=MOVING),
    "claim": Use("claim"),
    "release": Use("claim"),
    "keep_summary": Use("keep_summary", revises=True),
    "take_place": Use("line"),
    "take_place_to_compact": Use("line", script="take_place", revises=True),
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
    "UNRECORDED": keys.milliseconds(keys.UNRECORDED),
    "COMPACTOR": COMPACTOR,
    "SUFFIXES": SUFFIXES,
    "NEWS": NEWS,
    "NEWS_ITEMS": NEWS_ITEMS,
    "VERSIONS": VERSIONS,
    "SCORE": SCORE,
    "MOST_TOMBSTONES": TOMBSTONES,
    "MOST_LOGGED": LOGGED,
    "MOST_LOGS": LOGS,
    "MOST_DELETED_LOGS": DELETED_LOGS,
    "DELETED_LOG_LIFE": DELETED_LOG_LIFE,
    "MOST_THREADS": THREADS,
    "LATE": LATE,
}
"""The constants of the scripts by name, including the suffixes of keys."""


def sources() -> dict[str, str]:
    """Return the sources of the scripts in `lua/` by name."""
    lua = files("proxy.adapters.stores.redis") / "lua"
    parts = [_BEGINNING.split(file.read_text(encoding="utf-8")) for file in sorted(lua.iterdir(), key=str)]
    return {name: text for part in parts for name, text in zip(part[1::2], part[2::2], strict=True)}


def _literal(value: object) -> str:
    """Return a value as a Lua literal."""
    if isinstance(value, bytes):
        return '"' + "".join(f"\\{byte:03}" for byte in value) + '"'
    if isinstance(value, (tuple, list)):
        return f"{{{', '.join(map(_literal, cast('Sequence[object]', value)))}}}"
    return repr(value)


Fields = list[bytes | None]
"""A session's fields, in the order of :data:`keys.FIELDS`."""

NewsFields = tuple[Fields, bytes | None, list[bytes]]
"""A session's fields, the first ticket in its queue, and its new messages, each after its chain hash."""


class Scripts:
    """Runs the scripts by name, over a connection. Each source documents its arguments.

    The scripts do not change a record that begins with none of `ours`. Every ttl and lease is in
    milliseconds.
    """

    def __init__(self, connection: Connection, ours: Sequence[bytes]) -> None:
        self.connection = connection
        self._run = connection.run
        self._scripts: dict[str, Script] = {}
        texts = sources()
        constants = {**_CONSTANTS, "OURS": ours}
        begin = "".join(f"local {name} = {_literal(value)}\n" for name, value in constants.items())
        for name, use in _USES.items():
            text = begin + texts["shared"] + texts[use.script or name]
            sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
            self._scripts[name] = Script(text, sha1, use)

    def of_session(self, name: str, key: SessionKey, *arguments: Word) -> Awaitable[Any]:
        """Run a script on a session. It is also passed the bucket's name, which is never a key itself.

        The reason: while a slot is migrating, a node refuses (TRYAGAIN, ASK) a script of which one key is
        missing. With the session's key alone the script would start, and fail at the first part of the
        session that has already migrated.
        """
        return self._run(self._scripts[name], [keys.session(key), keys.bucket(key.tag)], arguments)

    def of_bucket(self, name: str, key: SessionKey, *arguments: Word) -> Awaitable[Any]:
        """Run a script that writes to a session and to the index by which it is found."""
        names = [keys.session(key), keys.tips(key.tag), keys.bucket(key.tag)]
        return self._run(self._scripts[name], names, arguments)

    def of_key(self, name: str, key: str, *arguments: Word) -> Awaitable[Any]:
        """Run a script on a key that belongs to no session."""
        return self._run(self._scripts[name], [key], arguments)

    async def find(self, lookup: Lookup) -> Sequence[Any] | None:
        """Run `find` and return its answer, as described in its source; None if no session is found."""
        held = (lookup.held, lookup.epochs, lookup.hidden, lookup.injected)
        asked = (b"".join(lookup.newest), b"".join(lookup.uncounted))
        joints = b"".join([joint or _NO_JOINT for joint in lookup.joints])
        arguments = (lookup.sid or "", lookup.lane, *held, *asked, joints)
        names = [keys.tips(lookup.tag), keys.bucket(lookup.tag)]
        return await self._run(self._scripts["find"], names, arguments)

    async def ping(self) -> None:
        await self._run(self._scripts["ping"], [keys.PROBE], ())

    async def record(
        self, codec: Codec, key: SessionKey, turn: Turn, noted: Arguments, lives: keys.Lives
    ) -> tuple[Recorded, str, Sequence[bytes]]:
        """Write a turn, and what is ``noted`` of it elsewhere; if it was written before, nothing changes.

        `turns` counts completed answers that were new. Also returns where the session is to be noted again,
        because it was renewed: the tag of its first answer, and its places, each after its tag.
        """
        outer = sorted(turn.outer_parents)
        recorded, first, places = Recorded.KEPT, None, list[bytes]()
        for record, nodes in pieces(codec, turn):
            # Somebody waits for pieces other than the last, and for late or appended turns.
            is_urgent = not record or turn.is_late or turn.begun_at is not None
            joint, notes = (turn.joint, noted) if record else (None, ())
            found_by = (joint.hash, joint.user.hex(), joint.first) if joint else (b"", "", "")
            answered_at = keys.milliseconds(turn.session.updated) if turn.is_late else ""
            tip = turn.session.tip if turn.advances_tip else b""
            answer: tuple[bytes, bytes | None, list[bytes]] = await self.of_bucket(
                "record" if is_urgent else "record_later",
                key,
                *(key.sid, record, turn.session.created, tip, *lives),
                *(int(turn.headerless), int(turn.begun_at is not None), turn.begun_at or b""),
                *(secrets.token_bytes(8), *found_by, int(turn.is_joined), int(turn.may_have_ended)),
                *(answered_at, len(outer), len(notes), *outer, *notes, *nodes),
            )
            said, first, places = answer
            recorded = Recorded(said.decode())
            if recorded is not Recorded.KEPT:
                break
        return recorded, (first or b"").decode(errors="replace"), places


# --- encoding the messages of a turn, in pieces if they are many ---


_NODE: Final = 5
"""The number of arguments of a node."""

LONG: Final = 1024
"""Messages of at least this many bytes are stored only once in a session; a link takes some 100 bytes."""

PIECE_NODES: Final = 500
PIECE_BYTES: Final = 4 * 1024 * 1024
"""A larger turn is written in pieces, so that no step blocks the server for long."""


def pieces(codec: Codec, turn: Turn) -> Iterator[tuple[bytes, Arguments]]:
    """Encode a turn's messages as arguments, in several pieces if they are many.

    Yields (session record, arguments); the record is empty except in the last piece, which always exists and
    has our answer at its end, because answers are counted there. Each message has five arguments: its chain
    hash, its encoded node, its tokens, MESSAGE, ANSWER or PARTIAL, and the digest of its bytes followed by a
    link, which is stored instead if the session holds these bytes already (empty for short messages).
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
