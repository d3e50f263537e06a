"""Which session a request continues, and what is known of it: as a rule one trip to the store, or none.

A header names a session; without one it is recognised by its chain, but only below an answer that we gave.
Where the words before that answer have changed meanwhile, as those of a client that pastes documents into its
last message alone, it is recognised by the place of the answer, and goes on there as another branch.
"""

import secrets

from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.conversation.messages import has_only_lost
from proxy.core.conversation.records import Joint
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
from proxy.ports import NAMED, Clock, Found, Lookup, SessionKey, TurnStore

_ASKED = 64
"""Chain hashes, newest first, by which a session is recognised."""
_SEVERAL = SessionKey("", "")
"""In whose place an answer was given that several sessions gave: nobody can tell whose it is (law 6)."""


class Recognition:
    """Recognises sessions."""

    def __init__(
        self, store: TurnStore, naming: Naming, cache: SessionCache, clock: Clock, memory: Memory
    ) -> None:
        self._store = store
        self._naming = naming
        self._clock = clock
        self.cache = cache
        self._answered: Lru[tuple[str, bytes], SessionKey] = Lru(memory)
        """Sessions without a header by tag and chain hash of an answer, and by tenant and its joint."""

    async def recognise(
        self, caller: Caller, history: History, lane: str, *, needs_store: bool
    ) -> tuple[SessionState, EpochLog | None]:
        """The session of a request and its lane's epochs, None where nobody can say.

        Raises StoreUnavailable where the request ``needs_store``.
        """
        tenant, named = caller.tenant, caller.key
        tag = named.tag if named else self._naming.bucket(tenant, history.first_user)
        key, is_joined = (named, False) if named else self._answered_here(tenant, tag, history)
        cached, entry = self.cache.of_lane(key, lane) if key else (CachedSession(), CachedLane())
        held = entry.log
        lookup = self._lookup(caller, history, lane, tag, key, cached, held)
        revision = self._store.revision()
        found = certain = None
        if key is not None and revision is not None:
            found = certain = cached.known(lookup, revision, self._clock.now())
        if certain is None:
            found = await self._find(lookup, caller, history, needs_store=needs_store)
        if key and found is not None and len(cached.stored_hidden) < lookup.hidden_seen[1]:
            lookup = replace(lookup, hidden_seen=("", 0))  # it was deleted meanwhile
            found = await self._find(lookup, caller, history, needs_store=needs_store)
        if key is None:
            key = SessionKey((found and found.tag) or tag, (found and found.sid) or secrets.token_hex(8))
            cached, entry = self.cache.of_lane(key, lane)
        is_news = revision is not None or bool(found and found.hidden) or cached.hidden_bytes > 0
        if found is not None and found is not certain and is_news:
            self.cache.learn(key, cached, lookup, found, revision)
        if not cached.id:
            cached.id = key.id_for(tenant)
        state = SessionState(
            tenant=tenant,
            key=key,
            id=cached.id,
            name=caller.name if caller.name is not None else self._naming.issue(tenant, key),
            found=found or Found(),
            is_headerless=key.sid != NAMED,
            is_store_away=found is None,
            hidden=cached.hidden if cached.hidden_bytes else {},
            tag=tag,
            is_joined=is_joined or bool(found and found.joint),
            cached=cached,
            lane=entry,
        )
        return state, self._epochs(key, lane, entry, found, held)

    def _lookup(
        self,
        caller: Caller,
        history: History,
        lane: str,
        tag: str,
        key: SessionKey | None,
        cached: CachedSession,
        held: EpochLog | None,
    ) -> Lookup:
        """What the store is asked: with a key for what is not known here, without one by the history."""
        first = b"" if key else history.first_joint()
        sid = key.sid if key else ""
        return Lookup(
            tag=key.tag if key else tag,
            sid=key.sid if key else None,
            newest=history.hashes.newest(_ASKED),
            uncounted=tuple(history.uncounted),
            lane=lane,
            seen=(sid, held.saved if held else 0),
            hidden_seen=(sid, len(cached.stored_hidden)),
            injected=cached.injection.injection.digest if cached.injection else b"",
            joints=() if key else history.joints(_ASKED),
            first=self._naming.bucket(caller.tenant, first) if first else "",
        )

    async def _find(
        self, lookup: Lookup, caller: Caller, history: History, *, needs_store: bool
    ) -> Found | None:
        """The store's answer; None while it cannot be used, and the request can do without.

        A second trip is for a turn of more new messages than were asked about, for a chain that does not go
        on from the answer by whose place its session was found, and, while secrets are being rotated, for a
        session that may be stored under its old name.
        """
        try:
            found = await self._trip(lookup, caller, history)
            if found.joint and not self._goes_on(history, found):
                # Perhaps from an answer before: of a chain with one edited message that is the next one.
                newer = lookup.joints.index(found.joint) + 1
                lookup = replace(lookup, joints=(b"",) * newer + lookup.joints[newer:])
                found = await self._trip(lookup, caller, history)
        except StoreUnavailable:
            if needs_store:
                raise
            return None
        return Found() if found.joint and not self._goes_on(history, found) else found

    async def _trip(self, lookup: Lookup, caller: Caller, history: History) -> Found:
        found = await self._store.find(lookup)
        is_being_written = lookup.sid is not None and caller.key is None  # under its new name
        if found.session is None and not is_being_written:
            first = history.first_joint() if lookup.first else b""
            if await self.moved(caller, lookup.tag, history.first_user, first):
                found = await self._store.find(lookup)
        if found.known is None and len(history.hashes) > _ASKED:
            older = history.hashes[:-_ASKED].newest(len(history.hashes))
            found = await self._store.find(replace(lookup, newest=older, joints=(), first=""))
        return found

    async def moved(
        self, caller: Caller, tag: str, first_user: bytes = b"", first_joint: bytes = b""
    ) -> bool:
        """Whether sessions were stored under an old secret's name; now they are under this one."""
        if caller.former is None:
            return False
        former = self._naming.former_tag(caller.former, first_user)
        first = self._naming.former_tag(caller.former, first_joint) if first_joint else ""
        return await self._store.move(former, tag, caller.tenant, first)

    def _epochs(
        self, key: SessionKey, lane: str, entry: CachedLane, found: Found | None, held: EpochLog | None
    ) -> EpochLog | None:
        """A lane's epochs by what the store told and what was ``held`` here when it was asked."""
        if found is None:
            return held or entry.log
        if held is not None and found.sid == key.sid and not (found.epochs or found.was_here):
            return entry.log or held  # as it was, or gone on by another request
        if found.was_here:
            held = None  # what ended there has ended here
        if held is None or found.epochs:
            # What the store holds counts: epochs of ours that it did not take give way to those of others.
            epochs = (*(held.epochs[: held.saved] if held and found.sid == key.sid else ()), *found.epochs)
            held = EpochLog(epochs, len(epochs))
        elif found.sid != key.sid:
            held = EpochLog(held.epochs, 0)
        return self.cache.keep_log(key, lane, held)

    def _answered_here(self, tenant: str, tag: str, history: History) -> tuple[SessionKey | None, bool]:
        """The session without a header in which this process gave the newest answer of a chain.

        And whether that is known by the answer's place alone. A client may send an answer back before its
        turn is in the store, or while the store is away.
        """
        may_join, last = True, len(history.hashes) - 1
        for back, chain_hash in enumerate(history.hashes.newest(_ASKED)):
            key = self._answered.get((tag, chain_hash))
            if key is not None:
                return (SessionKey(tag, secrets.token_hex(8)) if key == _SEVERAL else key), False
            joint = history.joint_at(last - back) if may_join else None
            key = self._answered.get((tenant, joint.hash)) if joint else None
            if joint is None or key is None:
                continue
            may_join = key != _SEVERAL
            if not may_join:
                continue
            newest = self.cache.of(key)
            if newest.joint != joint.hash:
                break  # the store knows what was said there
            if _has_only_lost(history, joint.user, newest.question):
                return key, True
        return None, False

    def _goes_on(self, history: History, found: Found) -> bool:
        """Whether a chain goes on from the answer by whose place a session was found.

        What was said before that answer must hold all that the chain says there now, else the answer may be
        one to somebody else's words (law 6).
        """
        joints = [joint for joint in map(history.joint_at, range(len(history.hashes))) if joint]
        user = next((joint.user for joint in joints if joint.hash == found.joint), b"")
        return found.user is not None and _has_only_lost(history, user, found.user.raw)

    def answered(
        self, session: SessionState, history: History, answer: bytes, identity: bytes
    ) -> Joint | None:
        """An answer was given in a session without a header; ``answer`` is its chain hash.

        Tells what finds it again where the words before it change. Where another session gave it too, to the
        same words or at the same place, what continues it begins a session of its own: nobody can tell whose
        it is (law 6).
        """
        key, tenant = session.key, session.tenant
        self._give((session.tag, answer), key)
        joint = history.joint(identity, len(history.hashes))
        if joint is None:
            return None
        self._give((tenant, joint.hash), key)
        session.cached.joint, session.cached.question = joint.hash, history.raw_of(joint.user)
        self.cache.keep(key, session.cached)
        first = history.first_joint(identity)
        if joint.hash != first and key.tag == session.tag:
            return joint
        return replace(joint, first=self._naming.bucket(tenant, first)) if first else joint

    def _give(self, name: tuple[str, bytes], key: SessionKey) -> None:
        before = self._answered.get(name)
        self._answered.put(name, key if before in (None, key) else _SEVERAL)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: what this process knows of it goes too."""
        self.cache.forget(key)
        self._answered.drop_where(lambda _, other: other == key)


def _has_only_lost(history: History, chain_hash: bytes, before: bytes) -> bool:
    read = history.counted.dialect.read
    return has_only_lost(read(history.raw_of(chain_hash)), read(before))
