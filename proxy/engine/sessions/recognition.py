"""Find the session that a request continues, usually with one trip to the store or none.

A header names a session. Without one it is recognised by its chain, but only below an answer that the proxy
gave. Where the messages before that answer have changed, as with a client that puts documents into its last
message only, the session is recognised by the place of the answer, and continues there as another branch.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.messages import Message, has_only_lost_text
from proxy.core.conversation.records import HiddenCalls, Joint
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Caller, Naming
from proxy.engine.sessions.session_cache import (
    CachedLane,
    CachedSession,
    EpochLog,
    SessionCache,
    SessionState,
)
from proxy.errors import StoreUnavailable
from proxy.ports import UNRECORDED, Clock, Lookup, LookupResult, SessionKey, TurnStore

_ASKED = 64
"""Most chain hashes, newest first, that are looked up to recognise a session."""
_TRIES = 2
"""Most answers that are tried by their joints: after one edited message it is the second that fits."""
_SEVERAL = SessionKey("", "")
"""Marks an answer that several sessions gave: nobody can tell whose it is (law 6)."""


class Recognition:
    """Finds the sessions of requests."""

    def __init__(
        self, store: TurnStore, naming: Naming, cache: SessionCache, clock: Clock, memory: CacheMemory
    ) -> None:
        self._store = store
        self._naming = naming
        self._clock = clock
        self.cache = cache
        self._answered: Lru[tuple[str, bytes], SessionKey] = Lru(memory)
        """Sessions without a header, by tag and chain hash of an answer, and by tenant and an answer's
        joint."""

    async def recognise(
        self, caller: Caller, history: History, lane: str, *, needs_store: bool
    ) -> tuple[SessionState, EpochLog | None]:
        """Return the session of a request and its lane's epochs, None where these cannot be known.

        Raises StoreUnavailable where the request ``needs_store`` and the store is away.
        """
        named = (caller.key or history.suffix).tag
        tag = named or self._naming.tag(caller.tenant, history.first_user)
        own, is_joined, is_newest, place = self._match_here(caller, tag, history)
        key = caller.key
        cached, entry = self.cache.of_lane(own, lane) if own else (CachedSession(), CachedLane(lane))
        # Where this process gave the newest answer, its session's tag is where others that gave it are found.
        asked = own.tag if own and is_newest else tag
        lookup = self._lookup(history, asked, key, own, cached, entry)
        held = entry.epoch_log and entry.epoch_log.in_generation(lookup.generation)
        revision = self._store.revision()
        may_be_certain = own is not None and is_newest and revision is not None
        certain = cached.known(lookup, revision, self._clock.now()) if may_be_certain else None
        if certain is None and key is None:
            first = b"" if is_newest or history.suffix.length else history.first_joint()
            first = self._naming.tag(caller.tenant, first) if first else ""
            lookup = replace(lookup, joints=history.joints(_ASKED), first=first)
        found = certain or await self._ask_store(lookup, caller, history, own, place, needs_store=needs_store)
        if key is None:
            key = own or SessionKey(tag, secrets.token_hex(8))
            if found is not None and found is not certain and found.sid is not None:
                key = SessionKey(found.tag or lookup.tag, found.sid)
            elif found is not None and found.place is not None:
                key = SessionKey(tag, secrets.token_hex(8))  # several sessions gave the answer
            if key != own:
                (cached, entry), held, is_joined = self.cache.of_lane(key, lane), None, False
        if found is not None and (
            (lookup.generation != self._store.generation() and (lookup.epochs or lookup.hidden))
            or not (cached.holds(entry) and self.cache.follows(key, cached, found))
        ):
            # The store may have lost what was not asked for; or the session has ended there, or has been
            # deleted here, while that was asked.
            return await self.recognise(caller, history, lane, needs_store=needs_store)
        is_news = revision is not None or bool(found and found.hidden) or bool(cached.hidden)
        if found is not None and found is not certain and is_news:
            await self._write_again(key, self.cache.learn(key, cached, lookup, found, revision))
        state = SessionState(
            tenant=caller.tenant,
            key=key,
            name=caller.name if caller.name is not None else self._naming.issue(caller.tenant, key),
            found=found or LookupResult(),
            is_store_away=found is None,
            hidden=cached.hidden,
            tag=tag,
            is_joined=is_joined or bool(found and found.joint),
            place=place if found is None or found.place is None else found.place,
            cached=cached,
            lane=entry,
        )
        return state, self._epochs(key, entry, lookup, found, held)

    def _lookup(
        self,
        history: History,
        tag: str,
        key: SessionKey | None,
        own: SessionKey | None,
        cached: CachedSession,
        entry: CachedLane,
    ) -> Lookup:
        """Build the look-up of a session by its key, or without one by the history.

        What this process has ``cached`` of its ``own`` session is not asked for again.
        """
        generation = self._store.generation()
        return Lookup(
            tag=tag,
            sid=key.sid if key else None,
            newest=history.hashes.newest(_ASKED),
            uncounted=tuple(history.uncounted),
            lane=entry.id,
            held=own.sid if own else "",
            epochs=entry.epoch_log.in_generation(generation).saved if entry.epoch_log else 0,
            hidden=cached.hidden_in(generation),
            generation=generation,
            injected=cached.injection.injection.digest if cached.injection else b"",
        )

    async def _ask_store(
        self,
        lookup: Lookup,
        caller: Caller,
        history: History,
        own: SessionKey | None,
        place: int,
        *,
        needs_store: bool,
    ) -> LookupResult | None:
        """Return the store's answer; None if the store is away and the request can do without.

        If the store knows no answer at ``place`` or newer, this process's ``own`` session, which gave the
        answer there, is looked up by its sid. If another session gave that answer too, none is found.
        """
        try:
            found = await self._find(lookup, caller, history)
            if own is not None and lookup.sid is None:
                if found.place == place and found.sid != own.sid:
                    return LookupResult(place=place)
                if found.place is None or found.place > place:
                    lookup = replace(lookup, tag=own.tag, sid=own.sid, joints=(), first="")
                    found = replace(await self._store.find(lookup), tag=own.tag)
        except StoreUnavailable:
            if needs_store:
                raise
            return None
        return found

    async def _find(self, lookup: Lookup, caller: Caller, history: History) -> LookupResult:
        """Return the store's answer to a look-up by sid or by chain: its newest messages, then older."""
        found = await self._find_joined(lookup, history)
        is_being_written = lookup.sid is None and lookup.held and not lookup.first  # under its new name
        if found.session is None and not is_being_written and not history.suffix.length:
            first = history.first_joint() if lookup.first else b""
            if await self.move_former(caller, lookup.tag, history.first_user, first):
                found = await self._find_joined(lookup, history)
        are_several = found.sid is None and found.place is not None
        if found.known is not None or are_several or len(history.hashes) <= _ASKED:
            return found
        older = replace(lookup, newest=history.hashes[:-_ASKED].newest(len(history.hashes)), joints=())
        if found.sid is not None:  # which of the older messages does this session have?
            older = replace(older, tag=found.tag or lookup.tag, sid=found.sid, first="")
            return replace(found, known=(await self._store.find(older)).known)
        if lookup.joints:
            joints = await asyncio.to_thread(history.joints, len(history.hashes))
            older = replace(older, joints=joints[_ASKED:])
        found = await self._find_joined(older, history)
        return replace(found, place=None if found.place is None else found.place + _ASKED)

    async def _find_joined(self, lookup: Lookup, history: History) -> LookupResult:
        """Return the store's answer, but none found by an answer from which the chain may not go on."""
        for _ in range(_TRIES):
            found = await self._store.find(lookup)
            if not found.joint:
                return found
            # The stored user message before that answer must hold all that the chain now has there; otherwise
            # the answer may have been given to somebody else's words (law 6).
            joints = map(history.joint_at, reversed(range(len(history.hashes))))
            user = next((joint.user for joint in joints if joint and joint.hash == found.joint), b"")
            if found.user is not None and _has_only_lost(history, user, found.user.raw):
                return found
            newer = lookup.joints.index(found.joint) + 1
            lookup = replace(lookup, joints=(b"",) * newer + lookup.joints[newer:])
        return LookupResult()

    async def move_former(
        self, caller: Caller, tag: str, first_user: bytes = b"", first_joint: bytes = b""
    ) -> bool:
        """Move sessions stored under an old secret's name to this one; return whether there were any."""
        if caller.former is None:
            return False
        former = self._naming.former_tag(caller.former, first_user)
        first = self._naming.former_tag(caller.former, first_joint) if first_joint else ""
        return await self._store.move(former, tag, caller.tenant, first)

    async def _write_again(self, key: SessionKey, lost: Sequence[HiddenCalls]) -> None:
        """Write hidden calls that the store has lost, so that all workers send the same for their answers."""
        with suppress(StoreUnavailable):
            for hidden in lost:
                await self._store.keep_hidden(key, hidden, UNRECORDED)

    def _epochs(
        self,
        key: SessionKey,
        entry: CachedLane,
        lookup: Lookup,
        found: LookupResult | None,
        held: EpochLog | None,
    ) -> EpochLog | None:
        """Return a lane's epochs from the store's answer and those ``held`` here before it."""
        if found is None:
            return held or entry.epoch_log
        generation = lookup.generation
        if held is not None and found.sid == key.sid and not found.epochs:
            if entry.epoch_log is not None and entry.epoch_log.generation == generation:
                return entry.epoch_log  # unchanged, or extended by another request
        elif held is None or found.epochs:
            # The store's epochs take precedence: ours that it did not accept give way to those of others.
            stored = (*(held.epochs[: held.saved] if held and found.sid == key.sid else ()), *found.epochs)
            ours = held.epochs if held else ()
            is_behind = [each.id for each in stored] == [each.id for each in ours[: len(stored)]]
            held = EpochLog(ours if is_behind else stored, len(stored), generation)
        else:
            held = EpochLog(held.epochs, 0, generation)
        return self.cache.keep_log(key, entry.id, held)

    def _match_here(
        self, caller: Caller, tag: str, history: History
    ) -> tuple[SessionKey | None, bool, bool, int]:
        """Find the session that a header names, else that in which this process gave an answer of the chain.

        It is the one in which it gave the newest of its answers. Also returns whether only the answer's place
        identified it, whether no newer answer stands in the chain, which another process may have given, and
        how many messages come after that answer. This is needed since a client may send an answer back before
        its turn is in the store, or while the store is away.
        """
        if caller.key is not None:
            return caller.key, False, True, 0
        tenant, may_join, is_newest, last = caller.tenant, True, True, len(history.hashes) - 1
        for back, chain_hash in enumerate(history.hashes.newest(_ASKED)):
            key = self._answered.get((tag, chain_hash))
            if key is not None:
                own = SessionKey(tag, secrets.token_hex(8)) if key == _SEVERAL else key
                return own, False, is_newest, back
            joint = history.joint_at(last - back) if may_join else None
            key = self._answered.get((tenant, joint.hash)) if joint else None
            may_join = key != _SEVERAL and may_join
            if joint is not None and key is not None and may_join:
                newest = self.cache.of(key)
                if newest.joint != joint.hash:
                    break  # only the store knows which messages stand there
                if _has_only_lost(history, joint.user, newest.question):
                    return key, True, is_newest, back
            is_newest = is_newest and history.entries[last - back].message.role != "assistant"
        return None, False, False, 0

    def remember_answer(
        self, session: SessionState, history: History, answer: Message, chain_hash: bytes
    ) -> Joint | None:
        """Remember an answer given in a session without a header.

        Returns the joint that finds the answer again where the messages before it change. Where another
        session gave the same answer to the same words or at the same place, a request that continues it
        begins a session of its own, since nobody can tell whose it is (law 6).
        """
        key, tenant = session.key, session.tenant
        self._give((session.tag, chain_hash), key)
        joint = history.joint(answer, len(history.hashes))
        if joint is None:
            return None
        self._give((tenant, joint.hash), key)
        session.cached.joint, session.cached.question = joint.hash, history.raw_of(joint.user)
        self.cache.keep(key, session.cached)
        first = history.first_joint(answer)
        # Noted with the first answer, and with the next one once more: a session of one turn lives for a day.
        # After that the store notes it whenever a turn renews the session.
        if (history.exchanges > 1 and key.tag == session.tag) or history.suffix.length:
            return joint
        return replace(joint, first=self._naming.tag(tenant, first)) if first else joint

    def _give(self, name: tuple[str, bytes], key: SessionKey) -> None:
        before = self._answered.get(name)
        self._answered.put(name, key if before in (None, key) else _SEVERAL)

    def forget(self, key: SessionKey) -> None:
        """Drop what this process knows of a deleted session."""
        self.cache.forget(key)
        self._answered.drop_where(lambda _, other: other == key)


def _has_only_lost(history: History, chain_hash: bytes, before: bytes) -> bool:
    read = history.counted.dialect.read
    return has_only_lost_text(read(history.raw_of(chain_hash)), read(before))
