"""What this process has of the sessions that were used last: a turn asks the store for what is new alone.

Each session has one entry, and each of its lanes another. The requests of a session share them, and keep them
for as long as they run, though the cache may have let go of them meanwhile. A store that is away for a moment
takes none of it with it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.budget.learning import Growth
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import HiddenCalls, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import Found, Lookup, SessionKey

_EARLIER: Final = 1.0
"""Seconds before a session's end from which on it is asked for: the store's clock counts."""
_SESSION_BYTES, _TEXT_BYTES = 2_048, 256
"""What a session is reckoned at, and each message, pin and text of its head beside its length."""
_ANSWER_BYTES = 512
"""What an answer with hidden calls is reckoned at beside the messages that stand for it."""
_EPOCH_BYTES = 1024
"""What an epoch is reckoned at beside its texts."""
_LANE_BYTES = 200
"""What a lane is reckoned at beside its epochs."""
_LANES = 32
"""Lanes of one session: clients choose budgets, and so their number."""


class EpochLog(msgspec.Struct, frozen=True):
    """A lane's epochs; the store holds the first ``saved``, the others could not be written yet."""

    epochs: tuple[Epoch, ...] = ()
    saved: int = 0


class CachedLane(msgspec.Struct):
    """What this process has of one lane of a session."""

    id: str = ""
    log: EpochLog | None = None
    """Its epochs; None where they have not been read."""
    answered: float | None = None
    """When the upstream last took a request of it, in seconds since 1970."""
    logged: tuple[int, bool] = (-1, False)
    """The epoch under which its usage was last logged, and whether it was over its budget."""
    weight: int = 0
    """Bytes that its epochs are reckoned at."""
    growth: Growth = msgspec.field(default_factory=Growth)
    """How the upstream's count has grown with what it sent."""


class CachedInjection(msgspec.Struct, frozen=True):
    """What was handed in for a session."""

    injection: Injection
    is_saved: bool


class CachedLookup(msgspec.Struct, frozen=True):
    """What the store would say of a session."""

    found: Found
    """Its counts are those of the last turn's messages."""
    lane: str
    revision: int
    epochs: int
    """How many of the lane the store holds."""
    hidden: int
    """How many answers with hidden calls."""
    parents: frozenset[bytes] = frozenset()
    """Messages that the last turn went on from."""
    ends: float = 0.0
    """Seconds since 1970; none before there was a turn, for a look-up does not tell."""


class CachedSession(msgspec.Struct):
    """What this process has of one session."""

    id: str = ""
    """By what operators know it; this and the next are empty until they were asked for."""
    cache_key: str = ""
    """How it is named to the provider's prompt cache."""
    lanes: dict[str, CachedLane] = {}
    lookup: CachedLookup | None = None
    """What the store would say of it, where that is certain."""
    pins: frozenset[bytes] = frozenset()
    """Pins that were set here and have not been read back yet."""
    injection: CachedInjection | None = None
    stored_hidden: dict[bytes, HiddenCalls] = {}
    """Answers with hidden calls by chain hash, as the store holds them, in its order: they count."""
    given_hidden: dict[bytes, HiddenCalls] = {}
    """The same as this process gave them, whether or not the store has them."""
    hidden_bytes: int = 0
    is_turn_lost: bool = False
    """Whether its newest turn could not be written: the next answer says so, and its body heals it."""
    joint: bytes = b""
    """Where no header names it: the joint of its newest answer,"""
    question: bytes = b""
    """and the user message that this answers."""

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        weight = _SESSION_BYTES + self.hidden_bytes + 128 * len(self.pins) + len(self.question)
        if self.injection is not None:
            weight += 3 * len(self.injection.injection.raw)  # also as results, and as messages
        if self.lookup is not None and (session := self.lookup.found.session) is not None:
            texts = (*session.head, *session.pins)
            weight += _TEXT_BYTES * (len(self.lookup.found.counts) + len(texts)) + sum(map(len, texts))
        return weight + sum([_LANE_BYTES + lane.weight for lane in self.lanes.values()])

    # --- what the store would say: certain after a turn of ours, where nobody else may write ---

    def known(self, lookup: Lookup, revision: int | None, now: float) -> Found | None:
        """What the store would say; None where that is not certain.

        It is certain where the store was asked before the last turn, where nothing but turns was written
        since, and where nobody else may write (:meth:`proxy.ports.TurnStore.revision`), for the lane of that
        turn alone. A message of an older branch may be in the store and not known here: it is written again,
        to no effect. ``now`` are seconds since 1970.
        """
        held, sid = self.lookup, lookup.sid
        if held is None or (held.revision, held.lane) != (revision, lookup.lane):
            return None
        found = held.found
        is_all_seen = lookup.epochs_from(sid) >= held.epochs and lookup.hidden_from(sid) >= held.hidden
        if not is_all_seen or found.injected not in (b"", lookup.injected):
            return None
        here = found.counts.keys() | held.parents
        new = next((place for place, each in enumerate(lookup.newest) if each in here), None)
        if new is None or held.ends - _EARLIER <= now:
            return None
        if not found.counts.keys() | lookup.newest[:new] >= set(lookup.uncounted):
            return None  # the store counted it, and this process does not know it any more
        return replace(found, known=lookup.newest[new])

    def learn_lookup(self, sid: str, lookup: Lookup, found: Found, revision: int | None) -> None:
        """The store was asked, not before this revision; it will say the same until a turn is written.

        But for a session that is being compacted: that may be over at any moment.
        """
        self.lookup = None
        if revision is not None and found.session is not None and not found.session.is_compacting:
            self.lookup = CachedLookup(
                Found(sid=sid, session=found.session, injected=found.injected),
                lookup.lane,
                revision,
                epochs=lookup.epochs_from(sid) + len(found.epochs),
                hidden=lookup.hidden_from(sid) + len(found.hidden),
            )

    def learn_turn(self, lane: str, turn: Turn, ttl: float) -> None:
        """A turn was written to the session, which lives for another ``ttl`` (seconds)."""
        held, self.lookup = self.lookup, None
        before = held.found.session if held else None
        if held is None or before is None or held.lane != lane or not turn.advances_tip:
            return  # of a session that was not there, nobody has told what was pinned before
        counts = {node.hash: node.tokens for node in turn.nodes}
        found = replace(held.found, session=replace(turn.session, pins=before.pins), counts=counts)
        ends = turn.session.updated + ttl
        self.lookup = replace(held, found=found, parents=turn.outer_parents, ends=ends)

    # --- answers in which calls were hidden ---

    @property
    def hidden(self) -> Mapping[bytes, HiddenCalls]:
        """What stands upstream for its answers, by chain hash."""
        return {**self.given_hidden, **self.stored_hidden}

    def hide(self, hidden: HiddenCalls) -> None:
        """An answer is being given; what stands for the same words already goes on to do so."""
        self.given_hidden.setdefault(hidden.hash, hidden)
        self._weigh_hidden()

    def learn_hidden(self, found: Found, sid: str, *, is_whole: bool) -> None:
        """Take in what the store has just told; ``is_whole`` says that it was asked for all of them."""
        if found.was_here:  # what ended there has ended here
            self.given_hidden, self.stored_hidden, self.hidden_bytes = {}, {}, 0
        if not found.hidden and (found.sid == sid or not self.hidden_bytes):
            return
        found_hidden = {each.hash: each for each in found.hidden}
        if found.sid != sid:
            self.given_hidden, self.stored_hidden = {**self.given_hidden, **self.stored_hidden}, found_hidden
        elif not is_whole:
            self.stored_hidden = {**self.stored_hidden, **found_hidden}
        elif len(found_hidden) >= len(self.stored_hidden):
            self.stored_hidden = found_hidden
        stored = self.stored_hidden
        self.given_hidden = {each: given for each, given in self.given_hidden.items() if each not in stored}
        self._weigh_hidden()

    def _weigh_hidden(self) -> None:
        every = (*self.given_hidden.values(), *self.stored_hidden.values())
        self.hidden_bytes = sum(_ANSWER_BYTES + sum(map(len, each.messages)) for each in every)


class SessionState(msgspec.Struct, frozen=True):
    """A request's session, and what is known of it."""

    tenant: str
    key: SessionKey
    id: str = ""
    """By what operators know it, in the admin API and in the log."""
    name: str = ""
    """As the client named it, or as we do."""
    found: Found = Found()
    """What the store says of it."""
    is_headerless: bool = True
    """Whether it was found by its chain, or by an id that we issued for it."""
    is_store_away: bool = False
    """Whether the store could not say anything."""
    hidden: Mapping[bytes, HiddenCalls] = {}
    """The session's answers with hidden calls, by chain hash."""
    tag: str = ""
    """Under which its chain is looked for; it may be kept under another one, by which it began."""
    is_joined: bool = False
    """Whether it was found by the place of an answer, and goes on as another branch."""
    cached: CachedSession = msgspec.field(default_factory=CachedSession)
    """What this process has of it,"""
    lane: CachedLane = msgspec.field(default_factory=CachedLane)
    """and of the request's lane."""


class SessionCache:
    """The entries of the sessions that were used last."""

    def __init__(self, memory: Memory) -> None:
        self._sessions: Lru[SessionKey, CachedSession] = Lru(memory, lambda session: session.weight)

    def of(self, key: SessionKey) -> CachedSession:
        """A session's entry; a new one where there is none."""
        return self._sessions.get_or_make(key, CachedSession)

    def of_lane(self, key: SessionKey, lane: str) -> tuple[CachedSession, CachedLane]:
        """The same, and a lane of it."""
        session = self._sessions.get(key)
        if session is None:
            self._sessions.put(key, session := CachedSession())
        found = session.lanes.get(lane)
        if found is None:
            if len(session.lanes) >= _LANES:
                del session.lanes[next(iter(session.lanes))]
            found = session.lanes[lane] = CachedLane(lane)
        return session, found

    def keep(self, key: SessionKey, session: CachedSession) -> None:
        """Keep an entry that has been changed, and weigh it anew."""
        self._sessions.put(key, session)

    def learn(
        self, key: SessionKey, session: CachedSession, lookup: Lookup, found: Found, revision: int | None
    ) -> None:
        """Keep what a look-up found; as its answer to the next only where the store has a ``revision``."""
        session.learn_hidden(found, key.sid, is_whole=lookup.hidden_seen[0] != key.sid)
        if revision is not None:
            session.learn_lookup(key.sid, lookup, found, revision)
        if revision is not None or found.hidden:
            self.keep(key, session)

    def keep_log(self, key: SessionKey, lane: str, log: EpochLog) -> EpochLog:
        """Keep a lane's epochs.

        Answers what is known then: more, where another request of the session has gone on in the meantime.
        """
        (session, entry), epochs = self.of_lane(key, lane), log.epochs
        before = entry.log.epochs if entry.log is not None else ()
        if entry.log is not None and len(before) > len(epochs) and before[: len(epochs)] == epochs:
            return entry.log
        is_longer = before == epochs[: len(before)]
        new = epochs[len(before) :] if is_longer else epochs
        weight = sum([_EPOCH_BYTES + 2 * len(msgspec.msgpack.encode(epoch)) for epoch in new])
        entry.log, entry.weight = log, weight + (entry.weight if is_longer else 0)
        self.keep(key, session)
        return log

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: those who still have its entry find nothing in it."""
        session, empty = self.of(key), CachedSession()
        for name in CachedSession.__struct_fields__:
            setattr(session, name, getattr(empty, name))
        self._sessions.drop(key)
