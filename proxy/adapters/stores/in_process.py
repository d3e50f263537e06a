"""The SessionStore port in this process, for `--store memory://` and for trying things out.

Its data is lost when the process ends, and no other worker sees it. It is bounded: the sessions written
longest ago are dropped first. It follows the same rules as the scripts in
:mod:`proxy.adapters.stores.redis`; one contract test suite runs against both.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from msgspec.structs import replace

from proxy.adapters.stores.in_process_bills import InProcessBills
from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.adapters.stores.stored_session import Leases, StoredSession
from proxy.core.conversation.records import HiddenCalls, Node, Session, Suffix, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import (
    COMPACTOR,
    SUFFIXES,
    UNRECORDED,
    Clock,
    Listed,
    Lookup,
    LookupResult,
    Mark,
    PlaceState,
    Recorded,
    SessionKey,
    Stored,
)

_NOTHING: Final = StoredSession()


class InProcessStore:
    """Holds at most `most` sessions, each for its ttl by `clock`. The methods are documented at the port."""

    def __init__(self, clock: Clock, most: int = 10_000) -> None:
        self._clock = clock
        self._most = most
        self._sessions: OrderedDict[SessionKey, StoredSession] = OrderedDict()
        """In the order of their last writes, oldest first."""
        self._tips: dict[tuple[str, bytes], dict[str, bytes]] = {}
        """(tag, chain hash or joint of an answer) → sid → for a joint, the hash of its user message."""
        self._firsts: dict[str, set[SessionKey]] = {}
        """Sessions by the tag of their first answer."""
        self._suffixes: dict[str, list[tuple[SessionKey, Suffix]]] = {}
        """By the tags under which they are noted, the newest first, each with its session."""
        self._were: OrderedDict[SessionKey, float] = OrderedDict()
        """Sessions that were deleted, and those named by a header that exist or have existed, newest last →
        when they were deleted (seconds since 1970), or 0."""
        self._queues: dict[SessionKey, dict[str, float]] = {}
        """Per session, tickets of appended turns in their order → when the lease of each runs out."""
        self._leases = Leases(clock)
        self.memories = InProcessMemories(clock)
        self.bills = InProcessBills(clock, lambda key: key in self._were and key not in self._living(), most)
        self._next_expiry = math.inf
        """No session expires before this time."""

    def revision(self) -> int | None:
        """Return None: a lookup here costs nothing, so callers need not avoid it."""
        return None

    def generation(self) -> int:
        """Return 0: nothing is lost but with the process."""
        return 0

    async def find(self, lookup: Lookup) -> LookupResult:
        sid, tag, joint, place = lookup.sid, "", b"", None
        if sid is None:
            sid, joint, place = self._recognise(lookup)
            tags = {key.tag for key in self._firsts.get(lookup.first, ())}
            if place is None and len(tags) == 1:
                tag = tags.pop()
                lookup = replace(lookup, tag=tag)
                sid, joint, place = self._recognise(lookup)
            if sid is None:
                return LookupResult(place=place)
        key = SessionKey(lookup.tag, sid)
        stored = self._read(key)
        was_here = key in self._were and stored.session is None
        is_held = lookup.held == sid
        epochs = stored.epochs.get(lookup.lane, [])[lookup.epochs if is_held else 0 :]
        hidden = tuple(stored.hidden.values())[lookup.hidden if is_held else 0 :]
        if stored.session is None and not epochs and not hidden and not stored.injected:
            return LookupResult(tag=tag, has_ended=was_here)
        return LookupResult(
            sid=sid,
            tag=tag,
            place=place,
            session=self._session(key, stored),
            known=next((chain_hash for chain_hash in lookup.newest if chain_hash in stored.nodes), None),
            counts={each: stored.nodes[each].tokens for each in lookup.uncounted if each in stored.nodes},
            epochs=tuple(epochs),
            hidden=hidden,
            has_ended=was_here,
            injected=stored.injected,
            injection=None if stored.injected == lookup.injected else stored.injection,
            joint=joint,
            user=stored.nodes.get(self._tips[key.tag, joint][sid]) if joint else None,
        )

    async def suffixes(self, tag: str) -> list[Suffix]:
        self._living()  # those of sessions that have expired are gone
        return [suffix for _, suffix in self._suffixes.get(tag, ())]

    async def begin_epoch(
        self, key: SessionKey, epoch: Epoch, seen: int, ttl: float, *, begins: bool = False
    ) -> tuple[Epoch, ...]:
        if key not in self._living() and not begins:
            return ()
        lane = self._kept(key, ttl).epochs.setdefault(epoch.lane, [])
        if len(lane) == seen:
            lane.append(epoch)
        return tuple(lane[seen:])

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        before = self._read(key)
        has_ended = before.session is None and key in self._were
        was_deleted_since = turn.is_late and turn.session.updated < self._were.get(key, 0.0)
        may_not_begin = has_ended and (turn.may_have_ended or was_deleted_since)
        if turn.outer_parents - before.nodes.keys() or may_not_begin:
            return Recorded.TORN
        former_tip = before.session.tip if before.session else b""
        if turn.begun_at is not None and former_tip not in (turn.begun_at, turn.session.tip):
            return Recorded.MOVED
        stored = self._renewed(key, ttl)
        stored.record(turn)
        for tag, suffix in turn.suffixes.items():
            others = [each for each in self._suffixes.get(tag, ()) if each != (key, suffix)]
            self._suffixes[tag] = [(key, suffix), *others][:SUFFIXES]
            stored.suffixes.add(tag)
        if not turn.headerless:
            self._remember(key)
            return Recorded.KEPT
        joint = turn.joint
        entries = {node.hash: b"" for node in turn.nodes if node.answer}
        for name, user in (entries | ({joint.hash: joint.user} if joint else {})).items():
            holders = self._tips.setdefault((key.tag, name), {})
            if key.sid not in holders:
                stored.tips.append(name)
            holders[key.sid] = user
        if joint and joint.first:
            stored.firsts.add(joint.first)
            self._firsts.setdefault(joint.first, set()).add(key)
        return Recorded.KEPT

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        self._kept(key, ttl).pins.update(dict.fromkeys(hashes))

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        if key not in self._living() and not begins:
            return False
        self._kept(key, ttl).hidden.setdefault(hidden.hash, hidden)
        return True

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        return tuple(self._read(key).hidden.values())

    async def inject(
        self, key: SessionKey, digest: bytes, injection: bytes, ttl: float, *, after: bytes = b""
    ) -> bytes:
        stored = self._kept(key, ttl)
        if stored.injection is None or stored.injected == after:
            stored.injected, stored.injection = digest, injection
        return stored.injection

    async def injection(self, key: SessionKey) -> bytes | None:
        return self._read(key).injection

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        stored = self._read(key)
        if stored.session is None:
            return Stored(was_here=key in self._were)
        news = stored.since(since) if since else None
        nodes = dict(stored.nodes) if news is None else news
        mark = Mark(stored.life, len(stored.nodes))
        return Stored(self._session(key, stored), nodes, mark=mark, is_news=news is not None)

    async def delete(self, key: SessionKey) -> bool:
        self._queues.pop(key, None)
        if key not in self._living():
            return False
        self._drop(key)
        self._remember(key, self._clock.now())
        return True

    async def move(self, former: str, tag: str, tenant: str, first: str = "") -> bool:
        """Do nothing: sessions end with the process, and secrets change only when it is restarted."""
        return False

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        stored = self._living().get(key)
        if stored is not None:
            stored.paused = paused
        return stored is not None

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        stored = self._living().get(key)
        if stored is not None:
            stored.unsaved = answer

    async def mark_ended(self, key: SessionKey) -> None:
        self._remember(key)

    async def take_place(self, key: SessionKey, ticket: str, most: int, lease: float) -> PlaceState:
        now = self._clock.monotonic()
        queue, is_paused = self._queue(key, but=ticket), self._read(key).paused
        overtakes = is_paused and ticket.startswith(COMPACTOR)
        if ticket not in queue and len(queue) > most and not overtakes:
            return PlaceState.FULL
        queue[ticket] = now + lease
        if overtakes and not next(iter(queue)).startswith(COMPACTOR):
            queue = {ticket: queue[ticket], **queue}
        self._queues[key] = queue
        is_first = next(iter(queue)) == ticket
        return PlaceState.GO if is_first and (overtakes or not is_paused) else PlaceState.WAIT

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        queue = self._queue(key)
        if ticket in queue:
            queue[ticket] = self._clock.monotonic() + lease
            self._queues[key] = queue

    async def leave(self, key: SessionKey, ticket: str) -> None:
        queue = self._queues.get(key, {})
        queue.pop(ticket, None)
        if not queue:
            self._queues.pop(key, None)

    def _queue(self, key: SessionKey, but: str = "") -> dict[str, float]:
        """Return the session's queue without places whose leases have run out, except that of ``but``."""
        now = self._clock.monotonic()
        queue = self._queues.get(key, {})
        return {ticket: ends for ticket, ends in queue.items() if ends > now or ticket == but}

    def _remember(self, key: SessionKey, deleted_at: float = 0.0) -> None:
        self._were[key] = deleted_at or self._were.get(key, 0.0)
        self._were.move_to_end(key)
        while len(self._were) > self._most:
            self._were.popitem(last=False)

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        summaries = self._read(key).summaries
        return {each: summaries[each] for each in addresses if each in summaries}

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        return self._leases.take((key, address), token, lease)

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        self._leases.give_up((key, address), token)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        stored, holder = self._living().get(key), self._leases.holder((key, address))
        is_written = stored is not None and address in stored.summaries
        if (stored is None and key in self._were) or (token and token != holder and (holder or is_written)):
            return False
        self._kept(key, ttl).summaries[address] = text
        self._leases.give_up((key, address), token)
        return True

    async def session(self, key: SessionKey) -> Session | None:
        return self._session(key, self._read(key))

    def _session(self, key: SessionKey, stored: StoredSession) -> Session | None:
        """Return the session's record with what is stored beside it, among that why its turns wait."""
        queue = self._queue(key) if key in self._queues else {}
        first = next(iter(queue), "")
        blocked = "compacting" if first.startswith(COMPACTOR) else "paused" if stored.paused else ""
        return stored.session and replace(
            stored.session, blocked=blocked, unsaved=stored.unsaved, pins=tuple(stored.pins)
        )

    async def sessions(self, limit: int) -> Listed:
        living = self._living().items()
        listed = [(key, session) for key, stored in living if (session := self._session(key, stored))]
        return Listed(heapq.nlargest(limit, listed, key=lambda entry: entry[1].updated), Counter())

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        return dict(self._read(key).nodes)

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        return tuple(self._read(key).epochs.get(lane, ()))

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        return tuple(sorted(self._read(key).epochs))

    async def knows_secret(self) -> bool:
        """Return True: no other process has written here."""
        return True

    meet = knows_secret

    async def ping(self) -> None:
        """Do nothing: this store always answers."""

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _recognise(self, lookup: Lookup) -> tuple[str | None, bytes, int | None]:
        """Return the sid of the session that holds the newest known answer, and the joint that found it.

        There is no sid if several sessions hold that answer. A joint shared by several sessions finds none,
        and ends the use of joints: older ones are not tried. The place is that of the newest answer or joint
        that any session has.
        """
        self._living()  # those that have expired are found no more
        shared = None
        for place, (answer, joint) in enumerate(zip_longest(lookup.newest, lookup.joints, fillvalue=b"")):
            holders = self._tips.get((lookup.tag, answer))
            if holders:
                sid = next(iter(holders)) if len(holders) == 1 else None
                return sid, b"", place if shared is None else shared
            holders = self._tips.get((lookup.tag, joint)) if shared is None and joint else None
            if holders and len(holders) == 1:
                return next(iter(holders)), joint, place
            shared = place if holders else shared
        return None, b"", shared

    def _read(self, key: SessionKey) -> StoredSession:
        """Return the session for reading; an empty one if it does not exist."""
        return self._living().get(key, _NOTHING)

    def _renewed(self, key: SessionKey, ttl: float) -> StoredSession:
        """Return the session, created if necessary, and set its lifetime to `ttl` seconds from now."""
        stored = self._living().get(key)
        if stored is None:
            stored = self._sessions[key] = StoredSession()
        stored.expires = self._clock.monotonic() + ttl
        self._next_expiry = min(self._next_expiry, stored.expires)
        self._sessions.move_to_end(key)
        while len(self._sessions) > self._most:
            self._drop(next(iter(self._sessions)))
        return stored

    def _kept(self, key: SessionKey, ttl: float) -> StoredSession:
        """Return the session, created if necessary, for a write that is no turn, which does not renew it."""
        stored = self._read(key)
        left = stored.expires - self._clock.monotonic()
        return self._renewed(key, left if stored.session else max(left, min(ttl, UNRECORDED)))

    def _living(self) -> OrderedDict[SessionKey, StoredSession]:
        """Drop expired sessions; return the others."""
        now = self._clock.monotonic()
        if now >= self._next_expiry:
            for key in [key for key, stored in self._sessions.items() if stored.expires <= now]:
                self._drop(key)
            self._next_expiry = min((each.expires for each in self._sessions.values()), default=math.inf)
        return self._sessions

    def _drop(self, key: SessionKey) -> None:
        stored = self._sessions.pop(key)
        self.bills.drop(key)
        for name in stored.tips:
            holders = self._tips[key.tag, name]
            del holders[key.sid]
            if not holders:
                del self._tips[key.tag, name]
        for first in stored.firsts:
            noted = self._firsts[first]
            noted.remove(key)
            if not noted:
                del self._firsts[first]
        for tag in stored.suffixes:
            left = [each for each in self._suffixes.pop(tag, ()) if each[0] != key]
            if left:
                self._suffixes[tag] = left
