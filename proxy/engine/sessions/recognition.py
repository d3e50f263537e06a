"""Which session a request continues, and what is known of it: one trip to the store at most.

A header names a session; without one it is recognised by its chain, but only below an answer that we gave.
Where the words before that answer have changed meanwhile, as those of a client that pastes documents into its
last message alone, it is recognised by the place of the answer, and goes on there as another branch.
What this process has read of a lane's epochs it keeps, so that a turn asks for later ones alone, and so that
a store that is away for a moment takes no plan with it.
"""

import secrets
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.conversation.identity import has_only_lost
from proxy.core.conversation.records import HiddenCalls, Joint
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.planning.plan import Epoch
from proxy.engine.flow import EpochLog, SessionState
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Caller, Naming
from proxy.engine.sessions.attachments import HiddenCallCache
from proxy.engine.sessions.lookup_cache import LookupCache
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, Found, Lookup, SessionKey, TurnStore

_ASKED = 64
"""Chain hashes, newest first, by which a session is recognised."""
_EPOCH_BYTES = 1024
"""What an epoch is reckoned at beside its texts."""
_SEVERAL = SessionKey("", "")
"""In whose place an answer was given that several sessions gave: nobody can tell whose it is (law 6)."""


class _Held(msgspec.Struct, frozen=True):
    """A lane's epochs as this process knows them."""

    log: EpochLog
    weight: int
    """Bytes that it is reckoned at."""


class Recognition:
    """Recognises sessions, and remembers what was learned of them in this process."""

    def __init__(
        self,
        store: TurnStore,
        naming: Naming,
        memory: Memory,
        clock: Clock,
        injected: Callable[[SessionKey], bytes] = lambda _: b"",
    ) -> None:
        self._store = store
        self._naming = naming
        self._injected = injected
        """Digest of what was handed in for a session, as far as this process holds it."""
        self._held: Lru[tuple[SessionKey, str], _Held] = Lru(memory, lambda held: held.weight)
        self._hidden = HiddenCallCache(memory)
        self.lookups = LookupCache(clock, memory)
        self._lost: Lru[SessionKey, bool] = Lru(memory)
        self._answered: Lru[tuple[str, bytes], SessionKey] = Lru(memory)
        """Sessions without a header by tag and chain hash of an answer, and by tenant and its joint."""
        self._said: Lru[SessionKey, tuple[bytes, bytes]] = Lru(memory, lambda said: 200 + len(said[1]))
        """Of such a session the joint of its newest answer, and the user message that it answers."""

    async def recognise(
        self, caller: Caller, history: History, lane: str, *, needs_store: bool
    ) -> tuple[SessionState, EpochLog | None]:
        """The session of a request and its lane's epochs, None where nobody can say.

        Raises StoreUnavailable where the request ``needs_store``.
        """
        tenant, name, named = caller.tenant, caller.name, caller.key
        tag = named.tag if named else self._naming.bucket(tenant, history.first_user)
        key, is_joined = (named, False) if named else self._answered_here(tenant, tag, history)
        held = self._log(key, lane) if key else None
        lookup = self._lookup(tenant, tag, key, history, lane, held)
        revision = self._store.revision()
        found = certain = self.lookups.answer(lookup, revision)
        if certain is None:
            found = await self._find(lookup, caller, history, needs_store=needs_store)
        if found is not None and found.joint and not self._goes_on(history, found):
            # Perhaps from an answer before: of a chain with one edited message that is the next one.
            newer = lookup.joints.index(found.joint) + 1
            lookup = replace(lookup, joints=(b"",) * newer + lookup.joints[newer:])
            found = await self._find(lookup, caller, history, needs_store=needs_store)
            if found is not None and found.joint and not self._goes_on(history, found):
                found = Found()
        is_joined = is_joined or bool(found and found.joint)
        if key and found is not None and self._hidden.seen(key) < lookup.hidden_from(key.sid):
            lookup = replace(lookup, hidden_seen=("", 0))  # what was known of them has gone meanwhile
            found = await self._find(lookup, caller, history, needs_store=needs_store)
        key = key or SessionKey((found and found.tag) or tag, (found and found.sid) or secrets.token_hex(8))
        if found is not None and found is not certain:
            self.lookups.asked(key, lookup, found, revision)
        log = self._epochs(key, lane, found, held)
        hidden = self._hidden.known(key, found, is_whole=lookup.hidden_seen[0] != key.sid)
        state = SessionState(
            tenant=tenant,
            key=key,
            name=name if name is not None else self._naming.issue(tenant, key),
            found=found or Found(),
            is_store_away=found is None,
            hidden=hidden,
            tag=tag,
            is_joined=is_joined,
        )
        return state, log

    def _lookup(
        self,
        tenant: str,
        tag: str,
        key: SessionKey | None,
        history: History,
        lane: str,
        held: EpochLog | None,
    ) -> Lookup:
        first = b"" if key else history.first_joint()
        return Lookup(
            tag=key.tag if key else tag,
            sid=key.sid if key else None,
            newest=history.hashes.newest(_ASKED),
            uncounted=tuple([history.hashes[place] for place in history.uncounted]),
            lane=lane,
            seen=(key.sid, held.saved if held else 0) if key else ("", 0),
            hidden_seen=(key.sid, self._hidden.seen(key)) if key else ("", 0),
            injected=self._injected(key) if key else b"",
            joints=() if key else history.joints(_ASKED),
            first=self._naming.bucket(tenant, first) if first else "",
        )

    async def _find(
        self, lookup: Lookup, caller: Caller, history: History, *, needs_store: bool
    ) -> Found | None:
        """The store's answer; None while it cannot be used, and the request can do without.

        Only a turn of more new messages than were asked about takes a second trip, and, while secrets are
        being rotated, a session that may be stored under its old name.
        """
        try:
            found = await self._store.find(lookup)
            if found.session is None and await self._moved(caller, lookup, history):
                found = await self._store.find(lookup)
            if found.known is None and len(history.hashes) > _ASKED:
                older = history.hashes[:-_ASKED].newest(len(history.hashes))
                found = await self._store.find(replace(lookup, newest=older, joints=(), first=""))
        except StoreUnavailable:
            if needs_store:
                raise
            return None
        return found

    async def _moved(self, caller: Caller, lookup: Lookup, history: History) -> bool:
        is_known = lookup.sid is not None and caller.key is None  # it is being written under its new name
        first = history.first_joint() if lookup.first else b""
        return not is_known and await self.moved(caller, lookup.tag, history.first_user, first)

    async def moved(
        self, caller: Caller, tag: str, first_user: bytes = b"", first_joint: bytes = b""
    ) -> bool:
        """Whether sessions were stored under an old secret's name; now they are under this one."""
        if caller.former is None:
            return False
        former = self._naming.former_tag(caller.former, first_user)
        first = self._naming.former_tag(caller.former, first_joint) if first_joint else ""
        return await self._store.move(former, tag, caller.tenant, first)

    def _log(self, key: SessionKey, lane: str) -> EpochLog | None:
        held = self._held.get((key, lane))
        return held.log if held else None

    def _epochs(
        self, key: SessionKey, lane: str, found: Found | None, held: EpochLog | None
    ) -> EpochLog | None:
        """A lane's epochs by what the store told and what was ``held`` here when it was asked."""
        if found is None:
            return held or self._log(key, lane)
        if held is not None and found.sid == key.sid and not (found.epochs or found.was_here):
            return self._log(key, lane) or held  # as it was, or gone on by another request
        if found.was_here:
            held = None  # what ended there has ended here
        if held is None or found.epochs:
            # What the store holds counts: epochs of ours that it did not take give way to those of others.
            epochs = (*(held.epochs[: held.saved] if held and found.sid == key.sid else ()), *found.epochs)
            held = EpochLog(epochs, len(epochs))
        elif found.sid != key.sid:
            held = EpochLog(held.epochs, 0)
        return self.hold(key, lane, held)

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
            told, said = self._said.get(key) or (b"", b"")
            if may_join and told != joint.hash:
                break  # the store knows what was said there
            if may_join and _has_only_lost(history.raw_of(joint.said), said):
                return key, True
        return None, False

    def _goes_on(self, history: History, found: Found) -> bool:
        """Whether a chain goes on from the answer by whose place a session was found.

        What was said before that answer must hold all that the chain says there now, else the answer may be
        one to somebody else's words (law 6).
        """
        joints = [joint for joint in map(history.joint_at, range(len(history.hashes))) if joint]
        said = next((joint.said for joint in joints if joint.hash == found.joint), b"")
        return found.said is not None and _has_only_lost(history.raw_of(said), found.said.raw)

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
        self._said.put(key, (joint.hash, history.raw_of(joint.said)))
        first = history.first_joint(identity)
        if joint.hash != first and key.tag == session.tag:
            return joint
        return replace(joint, first=self._naming.bucket(tenant, first)) if first else joint

    def _give(self, name: tuple[str, bytes], key: SessionKey) -> None:
        before = self._answered.get(name)
        self._answered.put(name, key if before in (None, key) else _SEVERAL)

    def hold(self, key: SessionKey, lane: str, log: EpochLog) -> EpochLog:
        """Remember a lane's epochs.

        Answers what is known then: more, where another request of the session has gone on in the meantime.
        """
        now, length = self._held.get((key, lane)), len(log.epochs)
        if now is not None and len(now.log.epochs) > length and now.log.epochs[:length] == log.epochs:
            return now.log
        self._held.put((key, lane), _Held(log, _weight(log.epochs, now)))
        return log

    def hide(self, key: SessionKey, hidden: HiddenCalls) -> None:
        """What stands upstream for an answer that is being given; the store may know of another before."""
        self._hidden.add(key, hidden)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: what this process knows of it goes too."""
        self._held.drop_where(lambda entry, _: entry[0] == key)
        self._hidden.forget(key)
        self.lookups.forget(key)
        self._lost.drop(key)
        self._answered.drop_where(lambda _, other: other == key)
        self._said.drop(key)

    def mark_lost(self, key: SessionKey) -> None:
        """A turn could not be written: the session's next answer says so, and its body heals it."""
        self._lost.put(key, value=True)

    def was_lost(self, key: SessionKey) -> bool:
        """Whether the session's previous turn was lost; told once."""
        was_lost = bool(self._lost.get(key))
        self._lost.drop(key)
        return was_lost


def _has_only_lost(now: bytes, before: bytes) -> bool:
    return has_only_lost(CHAT.read(now), CHAT.read(before))


def _weight(epochs: tuple[Epoch, ...], before: _Held | None) -> int:
    """What epochs are reckoned at, which for the most part were held ``before``."""
    weight = 0
    if before is not None and before.log.epochs == epochs[: len(before.log.epochs)]:
        weight, epochs = before.weight, epochs[len(before.log.epochs) :]
    return weight + sum([_EPOCH_BYTES + 2 * len(msgspec.msgpack.encode(epoch)) for epoch in epochs])
