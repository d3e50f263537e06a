"""The SessionStore port over Redis or Valkey, separate or embedded.

No turn is stored twice, because every message is stored under its chain hash, so that each write is
idempotent. Law 3 is kept by compare-and-set for epochs. The keys are documented in
:mod:`proxy.adapters.stores.redis.keys`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.bills import RedisBills
from proxy.adapters.stores.redis.breaker import Breaker
from proxy.adapters.stores.redis.codec import Codec, DamagedRecord, Keyring, beginnings
from proxy.adapters.stores.redis.connection import Connection, Timed, untimed
from proxy.adapters.stores.redis.keys import milliseconds
from proxy.adapters.stores.redis.listing import Listing
from proxy.adapters.stores.redis.memories import RedisMemories
from proxy.adapters.stores.redis.migration import Migration
from proxy.adapters.stores.redis.scripts import Scripts, Word
from proxy.core.conversation.records import HiddenCalls, Node, Session, Suffix, Turn
from proxy.core.planning.plan import Epoch
from proxy.errors import StoreUnavailable
from proxy.ports import (
    COMPACTOR,
    Clock,
    Listed,
    Lookup,
    LookupResult,
    Mark,
    PlaceState,
    Recorded,
    SessionKey,
    Stored,
    UnreadableRecord,
)
from proxy.telemetry import log_warning

_WARNED: Final = 10_000
"""How many sessions are remembered as already warned about."""


class RedisStore:
    """Sessions in one server, or in a cluster.

    `timeout` is how much longer than usual a round trip may take, and `rest` how long a server that failed is
    not called. `linger` is given only if no other process writes to the server: how long a turn that nobody
    waits for may be delayed, to be sent together with others. All are in seconds. Without a keyring nothing
    is sealed, and sealed records cannot be read. `timed` is called for each call, with its purpose and its
    duration in seconds.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        timeout: float,
        rest: float,
        keyring: Keyring | None = None,
        *,
        linger: float | None = None,
        timed: Timed = untimed,
    ) -> None:
        self._is_ours = linger is not None
        self._keyring = keyring
        self._connection = Connection(url, timeout, Breaker(clock, rest), linger or 0.0, timed)
        self._scripts = Scripts(self._connection, beginnings(keyring))
        self._warn_of_newer = lru_cache(_WARNED)(_warn_of_newer_release)
        self._listing = Listing(self._scripts)
        self._migration = Migration(self._scripts, self._codec)
        self.bills = RedisBills(self._scripts)
        self.memories = RedisMemories(self._scripts, keyring)

    def revision(self) -> int | None:
        """Return a number that changes when anything but a turn is written by this store, or a call fails.

        It also changes with the generation. Returns None if other processes may write to the server.
        """
        return self._connection.revision + self._connection.generation if self._is_ours else None

    def generation(self) -> int:
        """Return the number of connections made so far."""
        return self._connection.generation

    async def find(self, lookup: Lookup) -> LookupResult:
        """Find a session with its epochs and counts by one script, or two if it is kept under another tag."""
        if not lookup.first:
            return await self._found(lookup, await self._scripts.find(lookup))
        # In a cluster the two may be asked of two nodes: one that fails costs nothing that the other knows.
        asked = self._scripts.find(lookup), self._tags(lookup.first)
        answer, tags = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            return await self._found(lookup, answer)
        if isinstance(tags, BaseException):
            raise tags
        if len(tags) != 1:
            return LookupResult()
        lookup = replace(lookup, tag=tags[0])
        found = await self._found(lookup, await self._scripts.find(lookup))
        return replace(found, tag=lookup.tag) if found.sid else LookupResult(place=found.place)

    async def _found(self, lookup: Lookup, answer: Sequence[Any] | None) -> LookupResult:
        if answer is None or answer[0] is None:
            return LookupResult(place=answer[1] if answer else None)
        key = SessionKey(lookup.tag, answer[0].decode(errors="replace"))
        try:
            found = reading.found(self._codec(key), answer, lookup)
        except DamagedRecord:
            await reading.discard_damaged(self._connection, self._codec(key), key, lookup.lane)
            raise
        if found.joint and not found.user:  # its node is a link: a long question was asked twice (rare)
            _, asked, _ = answer[-2]
            found = replace(found, user=(await self.nodes(key)).get(asked))
        return found

    async def _tags(self, first: str) -> list[str]:
        """Return the tags that are noted under the tag of a first answer."""
        tags: list[bytes] = await self._scripts.of_key("first", keys.first(first))
        return sorted(tag.decode() for tag in tags)

    def _codec(self, key: SessionKey) -> Codec:
        return Codec(key, self._keyring, self._warn_of_newer)

    async def suffixes(self, tag: str) -> list[Suffix]:
        noted: list[bytes] = await self._connection.ask("find", "LRANGE", keys.suffixes(tag), 0, -1)
        found: list[Suffix] = []
        for each in noted:
            own, length, exchanges, before = each.split(b"/", 3)
            found.append(Suffix(own.decode(), before, int(length), int(exchanges)))
        return found

    async def begin_epoch(
        self, key: SessionKey, epoch: Epoch, seen: int, ttl: float, *, begins: bool = False
    ) -> tuple[Epoch, ...]:
        codec = self._codec(key)
        encoded = codec.encode(epoch, keys.epoch_place(epoch.lane))
        arguments = (epoch.lane, seen, encoded, keys.unrecorded(ttl), int(begins))
        stored = await self._scripts.of_session("begin_epoch", key, *arguments)
        return reading.epochs(codec, stored, epoch.lane)

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        lives, first = keys.lives(ttl), turn.joint.first if turn.joint else ""
        noted: Sequence[bytes] = [
            b"%b/%b/%d/%d/%b" % (tag.encode(), each.tag.encode(), each.length, each.exchanges, each.before)
            for tag, each in turn.suffixes.items()
        ]
        recording = self._scripts.record(self._codec(key), key, turn, noted, lives)
        if first or noted:  # in other slots, but sent in the same trip if possible
            noting = self._note(key, first, noted, lives.session)
            (recorded, first, noted), is_noted = await asyncio.gather(recording, noting)
        else:
            (recorded, first, noted), is_noted = await recording, True
        if first or noted:
            is_noted = await self._note(key, first, noted, lives.session) and is_noted
        if not is_noted:
            log_warning("it could not be noted where a session is found", session=f"{key.tag}.{key.sid}")
        if recorded is Recorded.KEPT:
            self._listing.add(key, turn.session.updated, lives.session)
        return recorded

    async def _note(self, key: SessionKey, first: str, places: Sequence[bytes], life: int) -> bool:
        """Note where a session without a header is found; return whether the store took all of it.

        It is found under its first answer's tag, and at its places, each after its tag. Notes last for
        ``life`` milliseconds; with 0 they are removed.
        """

        async def is_noted(script: str, name: str, value: Word) -> bool:
            try:
                await self._scripts.of_key(script, name, value, life)
            except StoreUnavailable:
                return False
            return True

        tagged = (each.split(b"/", 1) for each in places)
        notes = [is_noted("note_suffix", keys.suffixes(tag.decode()), place) for tag, place in tagged]
        if first:
            notes.append(is_noted("note_first", keys.first(first), key.tag))
        return all(await asyncio.gather(*notes))

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        await self._scripts.of_session("pin", key, keys.unrecorded(ttl), *hashes)

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        encoded = self._codec(key).encode(hidden, keys.HIDDEN_PLACE)
        arguments = (hidden.hash, encoded, keys.unrecorded(ttl), int(begins))
        return bool(await self._scripts.of_session("keep_hidden", key, *arguments))

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        name = keys.session(key) + keys.HIDDEN
        stored: list[bytes] = await self._connection.ask("inspect", "LRANGE", name, 0, -1)
        return reading.hidden(self._codec(key), stored)

    async def inject(
        self, key: SessionKey, digest: bytes, injection: bytes, ttl: float, *, after: bytes = b""
    ) -> bytes:
        codec = self._codec(key)
        encoded = codec.encode(injection, keys.INJECTION_PLACE)
        arguments = (keys.unrecorded(ttl), digest, encoded, after)
        stored: bytes = await self._scripts.of_session("inject", key, *arguments)
        return codec.decode(stored, bytes, keys.INJECTION_PLACE)

    async def injection(self, key: SessionKey) -> bytes | None:
        stored = await self._connection.ask("inspect", "HGET", keys.session(key), "injection")
        return reading.injection(self._codec(key), stored)

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        """Return the session with every message or only the new ones, normally by one script."""
        codec, name = self._codec(key), keys.session(key)
        try:
            fields = await self._scripts.of_session("news", key, *since) if since else None
            if since and fields and (news := reading.news(codec, fields, since)):
                return news
            fields, first, life, stored, was_here = await self._connection.ask_all(
                "history",
                *reading.session_commands(key),
                ("HGET", name, "life"),
                ("HGETALL", name + keys.NODES),
                ("EXISTS", name + keys.WAS),
                transaction=True,
            )
            session = reading.session(codec, fields, first)
            nodes = reading.nodes(codec, stored)
        except DamagedRecord:
            await reading.discard_damaged(self._connection, codec, key, lane="")
            raise
        mark = Mark(life, len(nodes)) if session and life else None
        return Stored(session, nodes, was_here=session is None and bool(was_here or nodes), mark=mark)

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session and its entry in the listing, except the mark that it existed.

        Once it is deleted, other nodes that are away are only logged: notes lead to nothing then, and expire;
        a listing drops what is gone when it is read.
        """
        was_there, first, noted = await self._scripts.of_bucket("delete", key, key.sid)
        if not await self._note(key, (first or b"").decode(errors="replace"), noted, 0):
            log_warning("where a deleted session was found stays noted for a while")
        await self._listing.written()  # updates that are still under way would add it again
        try:
            await self._listing.remove([key])
        except StoreUnavailable:
            log_warning("a deleted session stays in the listing until that is read")
        return bool(was_there)

    async def move(self, former: str, tag: str, tenant: str, first: str = "") -> bool:
        is_moved = await self._migration.move_sessions(former, tag, tenant)
        self._connection.revision += is_moved
        if is_moved or not first or len(tags := await self._tags(first)) != 1:
            return is_moved
        return await self.move(tags[0], tag, tenant)

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        return bool(await self._scripts.of_session("pause", key, int(paused)))

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        await self._scripts.of_session("mark_unsaved", key, answer)

    async def mark_ended(self, key: SessionKey) -> None:
        name, life = keys.session(key) + keys.WAS, milliseconds(keys.REMEMBERED)
        await self._connection.ask("history", "SET", name, 0, "NX", "PX", life)
        self._connection.revision += 1

    async def take_place(self, key: SessionKey, ticket: str, most: int, lease: float) -> PlaceState:
        name = "take_place_to_compact" if ticket.startswith(COMPACTOR) else "take_place"
        answer: bytes = await self._scripts.of_session(name, key, ticket, most, milliseconds(lease))
        return PlaceState(answer.decode())

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        await self._scripts.of_session("renew_lease", key, ticket, milliseconds(lease))

    async def leave(self, key: SessionKey, ticket: str) -> None:
        await self._scripts.of_session("leave", key, ticket)

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        if not addresses:
            return {}
        name = keys.session(key) + keys.SUMMARIES
        stored: list[bytes | None] = await self._connection.ask("summaries", "HMGET", name, *addresses)
        ready, codec = zip(addresses, stored, strict=True), self._codec(key)
        return {
            address: codec.decode(text, str, keys.summary_place(address))
            for address, text in ready
            if text is not None
        }

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        return bool(await self._scripts.of_session("claim", key, address, token, milliseconds(lease)))

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        await self._scripts.of_session("release", key, address, token)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        summary = self._codec(key).encode(text, keys.summary_place(address))
        arguments = (address, summary, keys.unrecorded(ttl), token)
        return bool(await self._scripts.of_session("keep_summary", key, *arguments))

    async def session(self, key: SessionKey) -> Session | None:
        fields, first = await self._connection.ask_all("inspect", *reading.session_commands(key))
        return reading.session(self._codec(key), fields, first)

    async def sessions(self, limit: int) -> Listed:
        """Return the sessions used last, newest first. Only those that cannot be read are left out."""
        await self._listing.written()
        found: dict[SessionKey, Session] = {}  # a dict: a session used between two pages is in both
        left_out: dict[SessionKey, str] = {}
        start = 0
        while len(found) < limit and (page := await self._listing.names(start, limit)):
            start += len(page)
            async for part in self._listing.read(page):
                gone: list[SessionKey] = []
                for key, fields, first in part:
                    try:
                        session = reading.session(self._codec(key), fields, first)
                    except UnreadableRecord as error:
                        left_out[key] = error.reason
                        continue
                    if session is None:
                        gone.append(key)
                    else:
                        found.setdefault(key, session)
                start -= await self._listing.remove(gone)  # at once: they may begin again
        return Listed(list(found.items())[:limit], Counter(left_out.values()))

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        stored = await self._connection.ask("inspect", "HGETALL", keys.session(key) + keys.NODES)
        return reading.nodes(self._codec(key), stored)

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        stored = await self._connection.ask("inspect", "LRANGE", keys.epochs(key, lane), 0, -1)
        return reading.epochs(self._codec(key), stored, lane)

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        lanes: set[bytes] = await self._connection.ask("inspect", "SMEMBERS", keys.session(key) + keys.LANES)
        return tuple(sorted(lane.decode(errors="replace") for lane in lanes))

    async def meet(self) -> bool:
        """Return what `knows_secret` does, at the start: waits longer, to measure a server far away."""
        with self._connection.patience():
            await self.ping()
            return await self.knows_secret()

    async def knows_secret(self) -> bool:
        """Return whether the store was written with one of our secrets; if so, keep the newest one's id.

        False means that none of its sessions will be found. Returns True if this cannot be determined. The
        id is kept for thirty days, so that a server calls this every day.
        """
        if self._keyring is None:
            return True
        began: set[bytes] = await self._connection.ask("ping", "SMEMBERS", keys.SECRETS)
        if began and began.isdisjoint(self._keyring.ids):
            return False
        await self._connection.ask_all(
            "ping",
            ("SADD", keys.SECRETS, self._keyring.ids[0]),
            ("PEXPIRE", keys.SECRETS, milliseconds(keys.REMEMBERED)),
            transaction=True,
        )
        return True

    async def ping(self) -> None:
        """Return when the store answers, takes writes, and has run a transaction and a script."""
        await self._connection.ask("", "PING")
        await self._connection.ask("", "SET", keys.PROBE, "", "PX", keys.PROBE_MILLISECONDS)
        await self._connection.ask_all("", *[("GET", keys.PROBE)] * 2, transaction=True)
        await self._scripts.ping()

    async def aclose(self) -> None:
        """Close all connections, once all used sessions are in the listing."""
        await self._listing.written()
        await self._connection.aclose()


def _warn_of_newer_release(key: SessionKey) -> None:
    log_warning(
        "a session holds records of a newer release; they stay as they are", session=f"{key.tag}.{key.sid}"
    )
