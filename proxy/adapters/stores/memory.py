"""The SessionStore port in this process's own memory, for `--store memory://` and for trying things out.

Nothing survives the process and no other worker sees it. It is bounded: the sessions used longest ago go
first. Its rules are those of the scripts in :mod:`proxy.adapters.stores.redis`; one contract suite holds them
both.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import zip_longest

from msgspec.structs import replace

from proxy.adapters.stores.kept import Claims, Kept, admits
from proxy.core.conversation.records import HiddenCalls, Node, Session, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import Clock, Found, Listed, Lookup, Mark, Recorded, SessionKey, Standing, Stored


class MemoryStore:
    """At most `most` sessions, each for its time to live by `clock`."""

    def __init__(self, clock: Clock, most: int = 10_000) -> None:
        self._clock = clock
        self._most = most
        self._kept: OrderedDict[SessionKey, Kept] = OrderedDict()
        """By last write, oldest first."""
        self._tips: dict[tuple[str, bytes], dict[str, bytes]] = {}
        """(tag, chain hash of an answer, or its joint) → sids, and of a joint what was said there."""
        self._firsts: dict[str, set[SessionKey]] = {}
        """Sessions by the tag under which theirs is noted."""
        self._were: OrderedDict[SessionKey, None] = OrderedDict()
        """Sessions named by a header that were here once, newest last."""
        self._lines: dict[SessionKey, dict[str, float]] = {}
        """Tickets of appended turns in their order, and when each one's lease runs out."""
        self._claims = Claims(clock)
        self._expiries: list[tuple[float, str, str]] = []
        """A heap of (due, tag, sid); an entry that its session does not know is stale."""

    def revision(self) -> int | None:
        """None: it is asked at no cost."""
        return None

    async def find(self, lookup: Lookup) -> Found:
        """The session, its epochs and counts."""
        if lookup.sid is not None:
            return self._found(lookup, lookup.sid)
        told = self._recognise(lookup)
        tags = {key.tag for key in self._firsts.get(lookup.first, ())}
        if told is None and len(tags) == 1:
            lookup = replace(lookup, tag=tags.pop())
            told = self._recognise(lookup)
            return replace(self._found(lookup, *told), tag=lookup.tag) if told else Found()
        return self._found(lookup, *told) if told else Found()

    def _found(self, lookup: Lookup, sid: str, joint: bytes = b"") -> Found:
        key = SessionKey(lookup.tag, sid)
        kept = self._live(key)
        was_here = key in self._were and (kept is None or kept.session is None)
        if kept is None:
            return Found(was_here=was_here)
        epochs = kept.epochs.get(lookup.lane, [])[lookup.epochs_from(sid) :]
        hidden = tuple(kept.hidden.values())[lookup.hidden_from(sid) :]
        if kept.session is None and not epochs and not hidden and not kept.injected:
            return Found(was_here=was_here)
        return Found(
            sid=sid,
            session=kept.shown(),
            known=next((chain_hash for chain_hash in lookup.newest if chain_hash in kept.nodes), None),
            counts={each: kept.nodes[each].tokens for each in lookup.uncounted if each in kept.nodes},
            epochs=tuple(epochs),
            hidden=hidden,
            was_here=was_here,
            injected=kept.injected,
            injection=None if kept.injected == lookup.injected else kept.injection,
            joint=joint,
            said=kept.nodes.get(self._tips[key.tag, joint][sid]) if joint else None,
        )

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        """Append to the lane, or answer what others appended."""
        lane = self._renewed(key, ttl).epochs.setdefault(epoch.lane, [])
        if len(lane) == seen:
            lane.append(epoch)
        return tuple(lane[seen:])

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        """Write a turn."""
        recorded = admits(self._live(key), turn)
        if recorded is not Recorded.KEPT:
            return recorded
        kept = self._renewed(key, ttl)
        kept.take(turn)
        if turn.headerless:
            self._enter(key, kept, turn)
        else:
            self._remember(key)
        return recorded

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        """Pin messages by their chain hashes."""
        self._renewed(key, ttl).pins.update(dict.fromkeys(hashes))

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        """Keep what stands upstream for an answer; the first counts."""
        if self._live(key) is None and not begins:
            return False
        self._renewed(key, ttl).hidden.setdefault(hidden.hash, hidden)
        return True

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        """All answers of the session with hidden calls."""
        kept = self._live(key)
        return tuple(kept.hidden.values()) if kept else ()

    async def inject(self, key: SessionKey, digest: bytes, injection: bytes, ttl: float) -> bytes:
        """Keep what is handed in, unless something was before."""
        kept = self._renewed(key, ttl)
        if kept.injection is None:
            kept.injected, kept.injection = digest, injection
        return kept.injection

    async def injection(self, key: SessionKey) -> bytes | None:
        """What was handed in for the session."""
        kept = self._live(key)
        return kept.injection if kept else None

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        """The session with every message, or with those that are new."""
        kept = self._live(key)
        if kept is None or kept.session is None:
            return Stored(was_here=key in self._were)
        news = kept.since(since) if since else None
        nodes = dict(kept.nodes) if news is None else news
        mark = Mark(kept.life, len(kept.nodes))
        return Stored(await self.session(key), nodes, mark=mark, is_news=news is not None)

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session, all but that there was one."""
        self._lines.pop(key, None)
        if self._live(key) is None:
            return False
        self._drop(key)
        self._remember(key)
        return True

    async def move(self, former: str, tag: str, tenant: str, first: str = "") -> bool:
        """Nothing: sessions end with the process, and secrets change between two."""
        return False

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        """Let appended turns of a session wait, or go on."""
        kept = self._live(key)
        if kept is not None:
            kept.paused = paused
        return kept is not None

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        """The client of this answer was told that it is not saved."""
        kept = self._live(key)
        if kept is not None:
            kept.unsaved = answer

    async def stand(self, key: SessionKey, ticket: str, most: int, lease: float) -> Standing:
        """Take a place in the session's line, or keep it."""
        now = self._clock.monotonic()
        line = self._line(key, but=ticket)
        if ticket not in line and len(line) > most:
            return Standing.FULL
        line[ticket] = now + lease
        self._lines[key] = line
        kept = self._live(key)
        is_first = next(iter(line)) == ticket
        return Standing.GO if is_first and not (kept and kept.paused) else Standing.WAIT

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        """Keep a place in the session's line, if it is still held."""
        line = self._line(key)
        if ticket in line:
            line[ticket] = self._clock.monotonic() + lease
            self._lines[key] = line

    async def leave(self, key: SessionKey, ticket: str) -> None:
        """Give up a place in the session's line."""
        line = self._lines.get(key, {})
        line.pop(ticket, None)
        if not line:
            self._lines.pop(key, None)

    def _line(self, key: SessionKey, but: str = "") -> dict[str, float]:
        """The session's line without places whose leases have run out."""
        now = self._clock.monotonic()
        line = self._lines.get(key, {})
        return {ticket: ends for ticket, ends in line.items() if ends > now or ticket == but}

    def _remember(self, key: SessionKey) -> None:
        self._were[key] = None
        self._were.move_to_end(key)
        while len(self._were) > self._most:
            self._were.popitem(last=False)

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        """The ready summaries among these content addresses."""
        kept = self._live(key)
        return {each: kept.summaries[each] for each in addresses if each in kept.summaries} if kept else {}

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        """Take or renew the lease on writing a summary."""
        return self._claims.take((key, address), token, lease)

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        """Give up the lease, if it is still held."""
        self._claims.give_up((key, address), token)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        """Keep a summary, unless its session was deleted, or its writer has lost its lease to another."""
        kept, holder = self._live(key), self._claims.holder((key, address))
        is_written = kept is not None and address in kept.summaries
        if (kept is None and key in self._were) or (token and token != holder and (holder or is_written)):
            return False
        self._renewed(key, ttl).summaries[address] = text
        self._claims.give_up((key, address), token)
        return True

    async def session(self, key: SessionKey) -> Session | None:
        """One session's own record."""
        kept = self._live(key)
        return self._shown(key, kept) if kept else None

    def _shown(self, key: SessionKey, kept: Kept) -> Session | None:
        """The session's record, and why its appended turns wait."""
        return kept.shown(first_in_line=next(iter(self._line(key)), ""))

    async def sessions(self, limit: int) -> Listed:
        """The sessions used last, newest first."""
        self._purge()
        shown = ((key, self._shown(key, kept)) for key, kept in self._kept.items())
        listed = [(key, session) for key, session in shown if session is not None]
        return Listed(heapq.nlargest(limit, listed, key=lambda entry: entry[1].updated), Counter())

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        """Every message of the session by chain hash."""
        kept = self._live(key)
        return dict(kept.nodes) if kept else {}

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        """All epochs of a lane, in the order written."""
        kept = self._live(key)
        return tuple(kept.epochs.get(lane, ())) if kept else ()

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        """The lanes of the session that have epochs, sorted."""
        kept = self._live(key)
        return tuple(sorted(kept.epochs)) if kept else ()

    async def knows_secret(self) -> bool:
        """True: nobody else has written here."""
        return True

    async def ping(self) -> None:
        """Return: it always answers."""

    async def aclose(self) -> None:
        """Nothing to give back."""

    def _recognise(self, lookup: Lookup) -> tuple[str, bytes] | None:
        """The session of the newest answer known, and by which joint; none where several gave it.

        A joint of several says nothing, nor do those before it.
        """
        self._purge()
        may_join = True
        for chain_hash, joint in zip_longest(lookup.newest, lookup.joints, fillvalue=b""):
            holders = self._tips.get((lookup.tag, chain_hash))
            if holders:
                return (next(iter(holders)), b"") if len(holders) == 1 else None
            holders = self._tips.get((lookup.tag, joint)) if may_join and joint else None
            if holders and len(holders) == 1:
                return next(iter(holders)), joint
            may_join = may_join and not holders
        return None

    def _enter(self, key: SessionKey, kept: Kept, turn: Turn) -> None:
        """Let the session be found by the turn's answers."""
        entries = {node.hash: b"" for node in turn.nodes if node.answer}
        if turn.joint:
            entries[turn.joint.hash] = turn.joint.said
        for name, said in entries.items():
            holders = self._tips.setdefault((key.tag, name), {})
            if key.sid not in holders:
                kept.tips.append(name)
            holders[key.sid] = said
        if turn.joint and turn.joint.first:
            kept.firsts.add(turn.joint.first)
            self._firsts.setdefault(turn.joint.first, set()).add(key)

    def _live(self, key: SessionKey) -> Kept | None:
        self._purge()
        return self._kept.get(key)

    def _renewed(self, key: SessionKey, ttl: float) -> Kept:
        """The session, made where it is not there, from now on for `ttl` seconds."""
        self._purge()
        kept = self._kept.get(key)
        expires = self._clock.monotonic() + ttl
        if kept is None:
            kept = self._kept[key] = Kept(due=math.inf, expires=expires)
        if expires < kept.due:
            kept.due = expires
            heapq.heappush(self._expiries, (expires, key.tag, key.sid))
        kept.expires = expires
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._drop(next(iter(self._kept)))
        return kept

    def _purge(self) -> None:
        """Drop what has expired; an entry whose session was renewed since goes back into the heap."""
        now = self._clock.monotonic()
        while self._expiries and self._expiries[0][0] <= now:
            due, tag, sid = heapq.heappop(self._expiries)
            kept = self._kept.get(SessionKey(tag, sid))
            if kept is None or kept.due != due:
                continue
            if kept.expires <= now:
                self._drop(SessionKey(tag, sid))
            else:
                kept.due = kept.expires
                heapq.heappush(self._expiries, (kept.due, tag, sid))

    def _drop(self, key: SessionKey) -> None:
        kept = self._kept.pop(key)
        for name in kept.tips:
            holders = self._tips[key.tag, name]
            del holders[key.sid]
            if not holders:
                del self._tips[key.tag, name]
        for first in kept.firsts:
            noted = self._firsts[first]
            noted.remove(key)
            if not noted:
                del self._firsts[first]
