"""Which session a request continues, and what is known of it: one trip to the store at most.

A header names a session; without one it is recognised by its chain, but only below an answer that we gave.
What this process has read of a lane's epochs it keeps, so that a turn asks for later ones alone, and so that
a store that is away for a moment takes no plan with it.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls
from proxy.engine.hidden_here import HiddenHere
from proxy.engine.history import History
from proxy.engine.naming import NAMED, Caller, Naming
from proxy.errors import StoreUnavailable
from proxy.lru import Lru, Memory
from proxy.ports import Found, Lookup, SessionKey, SessionStore

_ASKED = 64
"""Chain hashes, newest first, by which a session is recognised."""
_EPOCH_BYTES = 1024
"""What an epoch is reckoned at beside its texts."""
_STORE_AWAY = "store"


class Held(msgspec.Struct, frozen=True):
    """A lane's epochs as this process knows them; the store holds the first ``saved``."""

    epochs: tuple[Epoch, ...]
    saved: int
    weight: int = 0
    """Bytes that it is reckoned at."""


class Recognised(msgspec.Struct, frozen=True):
    """A request's session."""

    tenant: str
    key: SessionKey
    name: str
    """As the client named it, or as we do."""
    is_headerless: bool
    """Found by its chain, or by an id that we issued for it."""
    found: Found
    epochs: tuple[Epoch, ...] | None
    """The lane's epochs; None where neither the store nor this process can say."""
    saved: int
    """How many of them the store holds; the others could not be written yet."""
    degraded: tuple[str, ...]
    hidden: Mapping[bytes, HiddenCalls] = {}
    """The session's answers with hidden calls, by chain hash."""

    @property
    def is_store_away(self) -> bool:
        """Whether the store could not say anything."""
        return _STORE_AWAY in self.degraded


class Recognition:
    """Recognises sessions, and remembers what was learned of them in this process."""

    def __init__(
        self,
        store: SessionStore,
        naming: Naming,
        memory: Memory,
        injected: Callable[[SessionKey], bytes] = lambda _: b"",
    ) -> None:
        self._store = store
        self._naming = naming
        self._injected = injected
        """Digest of what was handed in for a session, as far as this process holds it."""
        self._held: Lru[tuple[SessionKey, str], Held] = Lru(memory, lambda held: held.weight)
        self._hidden = HiddenHere(memory)
        self._lost: Lru[SessionKey, bool] = Lru(memory)
        self._answered: Lru[tuple[str, bytes], str] = Lru(memory)
        """Sessions without a header by tag and chain hash of an answer."""

    async def recognise(
        self, caller: Caller, history: History, lane: str, *, needs_store: bool
    ) -> Recognised:
        """Find the session of a request. Raises StoreUnavailable where it ``needs_store``."""
        tenant, name, named = caller.tenant, caller.name, caller.key
        tag = named.tag if named else self._naming.bucket(tenant, history.first_user)
        key = named or self._answered_here(tag, history)
        held = self._held.get((key, lane)) if key else None
        lookup = self._lookup(tag, key, history, lane, held)
        found = await self._told(lookup, caller, history, needs_store=needs_store)
        if key and found is not None and self._hidden.seen(key) < lookup.hidden_from(key.sid):
            lookup = replace(lookup, hidden_seen=("", 0))  # what was known of them has gone meanwhile
            found = await self._told(lookup, caller, history, needs_store=needs_store)
        key = key or SessionKey(tag, (found and found.sid) or lookup.fresh)
        known = self._epochs(key, lane, found, held)
        hidden = self._hidden.known(key, found, is_whole=lookup.hidden_seen[0] != key.sid)
        return Recognised(
            tenant=tenant,
            key=key,
            name=name if name is not None else self._naming.issue(tenant, key),
            is_headerless=key.sid != NAMED,
            found=found or Found(),
            epochs=known.epochs if known else None,
            saved=known.saved if known else 0,
            degraded=() if found else (_STORE_AWAY,),
            hidden=hidden,
        )

    def _lookup(
        self, tag: str, key: SessionKey | None, history: History, lane: str, held: Held | None
    ) -> Lookup:
        return Lookup(
            tag=tag,
            sid=key.sid if key else None,
            newest=history.hashes.newest(_ASKED),
            uncounted=tuple([history.hashes[place] for place in history.uncounted]),
            lane=lane,
            seen=(key.sid, held.saved if held else 0) if key else ("", 0),
            hidden_seen=(key.sid, self._hidden.seen(key)) if key else ("", 0),
            injected=self._injected(key) if key else b"",
            fresh="" if key else secrets.token_hex(8),
        )

    async def _told(
        self, lookup: Lookup, caller: Caller, history: History, *, needs_store: bool
    ) -> Found | None:
        """What is known for sure, or else the store's answer."""
        found: Found | None = self._store.known(lookup)
        is_deeper = found is not None and found.known is None and len(history.hashes) > _ASKED
        if found is None or is_deeper:  # it may stand on a message that was not asked for yet
            return await self._find(lookup, caller, history, needs_store=needs_store)
        return found

    async def _find(
        self, lookup: Lookup, caller: Caller, history: History, *, needs_store: bool
    ) -> Found | None:
        """The store's answer; None while it cannot be used, and the request can do without.

        Only a turn of more new messages than were asked about takes a second trip, and, while secrets are
        being rotated, a session that may be stored under its old name.
        """
        try:
            found = await self._store.find(lookup)
            if found.session is None and await self.moved(caller, lookup.tag, history.first_user):
                found = await self._store.find(lookup)
            if found.known is None and len(history.hashes) > _ASKED:
                older = history.hashes[:-_ASKED].newest(len(history.hashes))
                found = await self._store.find(replace(lookup, newest=older))
        except StoreUnavailable:
            if needs_store:
                raise
            return None
        return found

    async def moved(self, caller: Caller, tag: str, first_user: bytes = b"") -> bool:
        """Whether sessions were stored under an old secret's name; now they are under this one."""
        if caller.former is None:
            return False
        return await self._store.move(self._naming.former_tag(caller.former, first_user), tag, caller.tenant)

    def _epochs(self, key: SessionKey, lane: str, found: Found | None, held: Held | None) -> Held | None:
        """A lane's epochs by what the store told and what was ``held`` here when it was asked."""
        if found is None:
            return held or self._held.get((key, lane))
        if held is not None and found.sid == key.sid and not (found.epochs or found.was_here):
            return self._held.get((key, lane)) or held  # as it was, or gone on by another request
        if found.was_here:
            held = None  # what ended there has ended here
        if held is None or found.epochs:
            # What the store holds counts: epochs of ours that it did not take give way to those of others.
            epochs = (*(held.epochs[: held.saved] if held and found.sid == key.sid else ()), *found.epochs)
            held = Held(epochs, len(epochs))
        elif found.sid != key.sid:
            held = Held(held.epochs, 0)
        return self.hold(key, lane, held.epochs, held.saved)

    def _answered_here(self, tag: str, history: History) -> SessionKey | None:
        """The session without a header in which this process gave the newest answer of a chain.

        A client may send an answer back before its turn is in the store, or while the store is away.
        """
        for chain_hash in history.hashes.newest(_ASKED):
            sid = self._answered.get((tag, chain_hash))
            if sid is not None:
                return SessionKey(tag, sid or secrets.token_hex(8))
        return None

    def answered(self, key: SessionKey, answer: bytes) -> None:
        """An answer with this chain hash was given in a session without a header.

        Where another session gave it too, to the same words, what continues it begins a session of its own:
        nobody can tell whose it is (law 6).
        """
        before = self._answered.get((key.tag, answer))
        self._answered.put((key.tag, answer), key.sid if before in (None, key.sid) else "")

    def hold(self, key: SessionKey, lane: str, epochs: Sequence[Epoch], saved: int) -> Held:
        """Remember a lane's epochs, of which the store holds the first ``saved``.

        Answers what is known then: more, where another request of the session has gone on in the meantime.
        """
        now = self._held.get((key, lane))
        if now is not None and len(now.epochs) > len(epochs) and now.epochs[: len(epochs)] == tuple(epochs):
            return now
        held = Held(tuple(epochs), saved, _weight(epochs, now))
        self._held.put((key, lane), held)
        return held

    def hide(self, key: SessionKey, hidden: HiddenCalls) -> None:
        """What stands upstream for an answer that is being given; the store may know of another before."""
        self._hidden.add(key, hidden)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: what this process knows of it goes too."""
        self._held.drop_where(lambda entry, _: entry[0] == key)
        self._hidden.forget(key)
        self._lost.drop(key)
        self._answered.drop_where(lambda answer, sid: SessionKey(answer[0], sid) == key)

    def mark_lost(self, key: SessionKey) -> None:
        """A turn could not be written: the session's next answer says so, and its body heals it."""
        self._lost.put(key, value=True)

    def was_lost(self, key: SessionKey) -> bool:
        """Whether the session's previous turn was lost; told once."""
        was_lost = bool(self._lost.get(key))
        self._lost.drop(key)
        return was_lost


def _weight(epochs: Sequence[Epoch], before: Held | None) -> int:
    """What epochs are reckoned at, which for the most part were held ``before``."""
    weight = 0
    if before is not None and before.epochs == tuple(epochs[: len(before.epochs)]):
        weight, epochs = before.weight, epochs[len(before.epochs) :]
    return weight + sum([_EPOCH_BYTES + 2 * len(msgspec.msgpack.encode(epoch)) for epoch in epochs])
