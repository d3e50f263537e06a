"""This process's cache of recently used sessions, so that a turn asks the store only for what is new.

Each session has one entry, with an entry for each of its lanes. The requests of a session share them and keep
them while they run, even if the cache has evicted them. Entries survive a short outage of the store.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.cache import CacheMemory, Lru
from proxy.core.budget.learning import Growth
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import HiddenCalls, Turn
from proxy.core.persistent import PersistentList
from proxy.core.planning.plan import Epoch
from proxy.ports import NAMED, Lookup, LookupResult, SessionKey

_EARLIER: Final = 1.0
"""Seconds before a session's expiry from which on the store is asked, because the store's clock counts."""
_SESSION_BYTES, _TEXT_BYTES = 2_048, 256
"""Estimated bytes of a session, and of each message, pin and head text beside its length."""
_ANSWER_BYTES = 512
"""Estimated bytes of an answer with hidden calls, beside the messages that replace it upstream."""
_EPOCH_BYTES = 1024
"""Estimated bytes of an epoch, beside its texts."""
_LANE_BYTES, _HEAD_BYTES = 200, 250
"""Estimated bytes of a lane, beside its epochs and heads, and of the last answer under a head."""
_LANES = 32
"""Most lanes cached of one session: clients choose budgets, and so the number of lanes."""
_HEADS = 32
"""Most heads remembered of one lane: one with a clock in it is another with each request."""


class EpochLog(msgspec.Struct, frozen=True):
    """A lane's epochs. The store holds the first ``saved`` of them; the others could not be written yet."""

    epochs: tuple[Epoch, ...] = ()
    saved: int = 0
    generation: int = 0
    """The generation of the store in which it held these (:meth:`proxy.ports.TurnStore.generation`)."""

    def in_generation(self, generation: int) -> "EpochLog":
        """Return the epochs as they count now: none as saved where the store may have lost some."""
        return self if self.generation == generation else EpochLog(self.epochs, 0, generation)


def head_hash(head: tuple[bytes, ...], tokens: int) -> int:
    """Return a hash, for this process alone, of a head's messages and of its ``tokens``, tools included."""
    return hash((head, tokens))


class HeadUse(msgspec.Struct, frozen=True):
    """The last request with a certain head that the upstream accepted."""

    at: float
    """When it did, in seconds since 1970."""
    length: int
    """Number of messages after the head."""
    tip: bytes
    """Chain hash of the last of them."""

    def length_in(self, hashes: Sequence[bytes]) -> int | None:
        """Return how many messages of a chain the request had; None if it ended on another branch."""
        is_before = 0 < self.length <= len(hashes) and hashes[self.length - 1] == self.tip
        return self.length if is_before else None


class LastAnswers(NamedTuple):
    """When requests like one at hand were last answered, in seconds since 1970; None where nobody knows."""

    in_lane: float | None
    under_head: float | None
    sent: int
    """How many of the chain's messages, from its first, the last one under the same head had at most."""


class CachedLane(msgspec.Struct):
    """The cached state of one lane of a session."""

    id: str = ""
    epoch_log: EpochLog | None = None
    """The lane's epochs; None where they have not been read."""
    heads: dict[int, HeadUse] = {}
    """The heads used last, by their hash, the newest last: agents that share a session, and requests for
    titles, each have their own, and the provider caches them side by side."""
    logged: tuple[int, bool] = (-1, False)
    """The epoch in which the lane's usage was last logged, and whether it was over its budget."""
    weight: int = 0
    """Estimated bytes of the lane's epochs."""
    growth: Growth = msgspec.field(default_factory=Growth)
    """How the upstream's token count has grown with the tokens sent."""

    @property
    def answered(self) -> float | None:
        """When the upstream last accepted a request of the lane, in seconds since 1970."""
        return next((use.at for use in reversed(self.heads.values())), None)

    def learn_head(self, head: int, use: HeadUse) -> None:
        """Remember the request as the newest with this head."""
        self.heads.pop(head, None)
        self.heads[head] = use
        if len(self.heads) > _HEADS:
            del self.heads[next(iter(self.heads))]


class CachedInjection(msgspec.Struct, frozen=True):
    """A session's injection, and whether the store has it."""

    injection: Injection
    is_saved: bool


class CachedLookup(msgspec.Struct, frozen=True):
    """What the store would answer to a look-up of a session."""

    found: LookupResult
    """The answer; its token counts are those of the last turn's messages."""
    lane: str
    revision: int
    epochs: int
    """Number of the lane's epochs in the store."""
    parents: frozenset[bytes] = frozenset()
    """Chain hashes of the messages that the last turn continued."""
    ends: float = 0.0
    """When the session expires, in seconds since 1970; 0 until a turn is written, since a look-up does not
    tell."""


class CachedSession(msgspec.Struct):
    """The cached state of one session."""

    cache_key: str = ""
    """The session's key for the provider's prompt cache; empty until it is first needed."""
    created: float = 0.0
    """When the session began, as the store has it, in seconds since 1970; 0 until it is stored. Another time
    in the store is another session, which took the name."""
    recreated: float = 0.0
    """The time with which turns of this process begin the session, where the store may not have it."""
    lanes: dict[str, CachedLane] = {}
    lookup: CachedLookup | None = None
    """What the store would answer about the session, where that is certain."""
    pins: frozenset[bytes] = frozenset()
    """Pins that this process set and has not read back yet."""
    injection: CachedInjection | None = None
    hidden: Mapping[bytes, HiddenCalls] = {}
    """The messages that replace the session's answers upstream, by chain hash. Requests keep the
    mapping, so it is replaced and never changed."""
    hidden_saved: int = 0
    """How many of the store's this process has read. Those that it gave itself may not be there yet."""
    hidden_generation: int = 0
    """The generation of the store in which it read them."""
    hidden_bytes: int = 0
    is_turn_lost: bool = False
    """Whether the newest turn could not be written. The next answer says so, and the next body heals it."""
    joint: bytes = b""
    """For a session that no header names: the joint of its newest answer."""
    question: bytes = b""
    """The user message to which that newest answer replies."""

    @property
    def weight(self) -> int:
        """Estimated bytes of the entry."""
        weight = _SESSION_BYTES + self.hidden_bytes + 128 * len(self.pins) + len(self.question)
        if self.injection is not None:
            weight += 3 * len(self.injection.injection.raw)  # it is also kept as results and as messages
        if self.lookup is not None and (session := self.lookup.found.session) is not None:
            texts = (*session.head, *session.pins)
            weight += _TEXT_BYTES * (len(self.lookup.found.counts) + len(texts)) + sum(map(len, texts))
        lanes = self.lanes.values()
        return weight + sum([_LANE_BYTES + _HEAD_BYTES * len(lane.heads) + lane.weight for lane in lanes])

    def begin_anew(self, now: float) -> float:
        """Return the time with which a turn begins the session, if the store does not have it.

        It is the same for all such turns, so that this process recognises the session that it has begun.
        """
        self.recreated = self.recreated or now
        return self.recreated

    def holds(self, lane: CachedLane) -> bool:
        """Whether this still is a lane of the session; not where the session was forgotten meanwhile."""
        return self.lanes.get(lane.id) is lane

    # --- what the store would answer: certain after a turn of ours, where nobody else may write ---

    def known(self, lookup: Lookup, revision: int | None, now: float) -> LookupResult | None:
        """Return what the store would answer; None where that is not certain.

        It is certain for the lane of the last turn alone, if the store was asked before that turn, only turns
        were written since, and nobody else may write (:meth:`proxy.ports.TurnStore.revision`). A message of
        an older branch may be in the store and unknown here; writing it again has no effect. ``now`` is in
        seconds since 1970.
        """
        held = self.lookup
        if held is None or (held.revision, held.lane) != (revision, lookup.lane):
            return None
        found = held.found
        if lookup.epochs < held.epochs or found.injected not in (b"", lookup.injected):
            return None
        here = found.counts.keys() | held.parents
        new = next((place for place, each in enumerate(lookup.newest) if each in here), None)
        if new is None or held.ends - _EARLIER <= now:
            return None
        if not found.counts.keys() | lookup.newest[:new] >= set(lookup.uncounted):
            return None  # the store has its count, which this process no longer knows
        return replace(found, known=lookup.newest[new])

    def learn_lookup(self, sid: str, lookup: Lookup, found: LookupResult, revision: int | None) -> None:
        """Remember a look-up's answer, made at this revision or later; it holds until a turn is written.

        Nothing is remembered of a session that is being compacted: that may end at any moment.
        """
        self.lookup = None
        if revision is not None and found.session is not None and not found.session.is_compacting:
            self.lookup = CachedLookup(
                LookupResult(sid=sid, session=found.session, injected=found.injected),
                lookup.lane,
                revision,
                epochs=lookup.epochs + len(found.epochs),
            )

    def learn_turn(self, lane: str, turn: Turn, ttl: float) -> None:
        """Update the look-up after a turn was written; the session expires ``ttl`` seconds after it."""
        held, self.lookup = self.lookup, None
        before = held.found.session if held else None
        if held is None or before is None or held.lane != lane or not turn.advances_tip:
            return  # for a session that did not exist, the store has not told which pins were set before
        counts = {node.hash: node.tokens for node in turn.nodes}
        found = replace(held.found, session=replace(turn.session, pins=before.pins), counts=counts)
        ends = turn.session.updated + ttl
        self.lookup = replace(held, found=found, parents=turn.outer_parents, ends=ends)

    # --- answers in which calls were hidden ---

    def hide(self, hidden: HiddenCalls) -> None:
        """Remember the hidden calls of an answer being given, unless the same answer has some already."""
        if hidden.hash not in self.hidden:
            self._add_hidden(hidden)

    def hidden_in(self, generation: int) -> int:
        """Return how many of the store's hidden calls are known to be read."""
        return self.hidden_saved if self.hidden_generation == generation else 0

    def learn_hidden(
        self, found: LookupResult, sid: str, *, held: int, generation: int = 0
    ) -> list[HiddenCalls]:
        """Take over the store's hidden calls, which take precedence, without the first ``held`` of them.

        Returns those known here that the store has lost, or never got, where that can be told.
        """
        if found.sid != sid:
            self.hidden_saved = 0  # the store does not have the session, or not yet
            return []
        before, stored = self.hidden_in(generation), {each.hash for each in found.hidden}
        is_anew = generation != self.hidden_generation
        lost = [each for each in self.hidden.values() if is_anew and each.hash not in stored]
        self.hidden_saved, self.hidden_generation = max(before, held + len(found.hidden)), generation
        if found.hidden:
            self._add_hidden(*found.hidden)
        return lost

    def _add_hidden(self, *added: HiddenCalls) -> None:
        self.hidden = {**self.hidden, **{each.hash: each for each in added}}
        self.hidden_bytes = sum(_ANSWER_BYTES + sum(map(len, each.messages)) for each in self.hidden.values())


class SessionState(msgspec.Struct, frozen=True):
    """A request's session and what is known about it."""

    tenant: str
    key: SessionKey
    name: str = ""
    """The session's name, from the client or issued by the proxy."""
    found: LookupResult = LookupResult()
    """What the store answered about the session."""
    is_store_away: bool = False
    """Whether the store could not be used."""
    hidden: Mapping[bytes, HiddenCalls] = {}
    """The session's answers with hidden calls, by chain hash."""
    tag: str = ""
    """The tag under which the chain is looked up; the session may be stored under the tag with which it
    began."""
    is_joined: bool = False
    """Whether the session was found by the place of an answer, and continues as another branch."""
    place: int = 0
    """Number of messages after the newest answer by which a session without a header was found."""
    cached: CachedSession = msgspec.field(default_factory=CachedSession)
    """This process's cache entry of the session."""
    lane: CachedLane = msgspec.field(default_factory=CachedLane)
    """This process's cache entry of the request's lane."""

    @property
    def id(self) -> str:
        """The id that operators see in the admin API and in the log."""
        return self.key.id_for(self.tenant)

    @property
    def is_headerless(self) -> bool:
        """Whether the session was found by its chain, or by an id that the proxy issued for it."""
        return self.key.sid != NAMED

    @property
    def is_detached(self) -> bool:
        """Whether the session is there but has no message of this request.

        So it is with a request for a title, and with each one of a client that drops its oldest messages.
        """
        return self.found.session is not None and self.found.known is None and not self.is_joined

    @property
    def is_unmatched(self) -> bool:
        """Whether no session is known that has a message of this request, though the store was asked.

        It is not where several have given its answers, and nobody can tell whose it is (law 6).
        """
        are_several = self.found.sid is None and self.found.place is not None
        if self.found.known is not None or self.is_joined or self.is_store_away or are_several:
            return False
        return not (self.is_headerless and self.cached.joint)  # answered here, and not yet written

    @property
    def is_new(self) -> bool:
        """Whether the store has no such session, as far as this process knows: an epoch may begin it."""
        return self.found.session is None and not self.may_have_ended

    @property
    def may_have_ended(self) -> bool:
        """Whether this process knew the session, and could not ask the store whether it is still there."""
        return self.is_store_away and self.cached.created > 0

    @property
    def last_answer(self) -> float | None:
        """When the session was last answered, in whichever lane, in seconds since 1970; None if unknown.

        The store knows it of any worker's turns, and this process also of its own that are not written yet.
        """
        times = [lane.answered or 0.0 for lane in (self.lane, *self.cached.lanes.values())]
        if self.found.session is not None:
            times.append(self.found.session.updated)
        return max(times) or None

    def last_answers(
        self, head: tuple[bytes, ...], tokens: int, hashes: PersistentList[bytes], *, is_suffix: bool
    ) -> LastAnswers:
        """Return when requests of the lane, and those under this head of ``tokens``, were last answered.

        The store knows it of the session's last turn, by any worker. This process also knows it of each lane
        and head of its own requests, so that two models or two agents in one session, or a chat and its
        titles, do not hide each other.

        Only what this process has sent counts as sent, and the leading messages that the session holds: a
        client may have changed others. A history that ``is_suffix`` begins with none of those. While the
        store is away, the session is taken to hold them all.
        """
        answered, use, last = self.lane.answered, self.lane.heads.get(head_hash(head, tokens)), None
        sent, head_answered = (use and use.length_in(hashes)) or 0, use and use.at
        held = len(hashes) if self.is_store_away else 0
        if self.found.known is not None and not is_suffix:
            held = hashes.last_place(self.found.known) + 1
        if self.found.session is not None and self.found.session.lane == self.lane.id:
            last = self.found.session
            answered = max(last.updated, answered or 0.0)
        if last is not None and (last.head, last.head_tokens) == (head, tokens):
            sent, head_answered = max(sent, held), max(last.updated, head_answered or 0.0)
        return LastAnswers(answered, head_answered, sent or held)

    @property
    def former_tag(self) -> str:
        """The tag that the session had under the secret before this one; empty where it was not moved."""
        former = self.found.session.former if self.found.session else ()
        return SessionKey.of_id(former[-1]).tag if former else ""


class SessionCache:
    """The cache entries of recently used sessions."""

    def __init__(self, memory: CacheMemory) -> None:
        self._sessions: Lru[SessionKey, CachedSession] = Lru(memory, lambda session: session.weight)

    def of(self, key: SessionKey) -> CachedSession:
        """Return a session's entry, and make one where there is none."""
        return self._sessions.get_or_make(key, CachedSession)

    def of_lane(self, key: SessionKey, lane: str) -> tuple[CachedSession, CachedLane]:
        """Return the entries of a session and of one of its lanes, and make them where there are none."""
        session = self._sessions.get(key)
        if session is None:
            self._sessions.put(key, session := CachedSession())
        found = session.lanes.get(lane)
        if found is None:
            if len(session.lanes) >= _LANES:
                del session.lanes[next(iter(session.lanes))]
            found = session.lanes[lane] = CachedLane(lane)
        return session, found

    def follows(self, key: SessionKey, session: CachedSession, found: LookupResult) -> bool:
        """Whether an entry still describes the session in the store; forget it if that has ended.

        If the store has lost the session, or a turn of this process has begun it again, its epochs count as
        unsaved and are written again. One that another process has begun is another session.
        """
        stored, begun = found.session, session.created
        is_ours = stored is not None and stored.created == session.recreated
        if begun and not is_ours and (found.has_ended if stored is None else stored.created != begun):
            self.forget(key)
            return False
        if begun and (stored is None or stored.created != begun):
            for lane in session.lanes.values():
                lane.epoch_log = lane.epoch_log and replace(lane.epoch_log, saved=0)
        if stored is not None:
            session.created, session.recreated = stored.created, 0.0
        return True

    def keep(self, key: SessionKey, session: CachedSession) -> None:
        """Store a changed entry and weigh it again."""
        self._sessions.put(key, session)

    def learn(
        self,
        key: SessionKey,
        session: CachedSession,
        lookup: Lookup,
        found: LookupResult,
        revision: int | None,
    ) -> list[HiddenCalls]:
        """Store the result of a look-up; with a ``revision`` it may answer the next one, else none may.

        Returns the hidden calls that the store has lost.
        """
        held = lookup.hidden if lookup.held == key.sid else 0
        lost = session.learn_hidden(found, key.sid, held=held, generation=lookup.generation)
        session.learn_lookup(key.sid, lookup, found, revision)
        self.keep(key, session)
        return lost

    def keep_log(self, key: SessionKey, lane: str, log: EpochLog) -> EpochLog:
        """Store a lane's epochs and return the epochs then known.

        These are more than were given where another request of the session has added some in the meantime,
        unless the store may have lost those.
        """
        (session, entry), epochs = self.of_lane(key, lane), log.epochs
        before = entry.epoch_log.epochs if entry.epoch_log is not None else ()
        is_extended = len(before) > len(epochs) and before[: len(epochs)] == epochs
        if entry.epoch_log is not None and is_extended and entry.epoch_log.generation == log.generation:
            return entry.epoch_log
        is_longer = before == epochs[: len(before)]
        new = epochs[len(before) :] if is_longer else epochs
        weight = sum([_EPOCH_BYTES + 2 * len(msgspec.msgpack.encode(epoch)) for epoch in new])
        entry.epoch_log, entry.weight = log, weight + (entry.weight if is_longer else 0)
        self.keep(key, session)
        return log

    def forget(self, key: SessionKey) -> None:
        """Clear a deleted session's entry, also for requests that still hold it."""
        session, empty = self.of(key), CachedSession()
        for name in CachedSession.__struct_fields__:
            setattr(session, name, getattr(empty, name))
        self._sessions.drop(key)
