"""The port of the session store: its protocols, and the values they take and return."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, Protocol, Self

import msgspec

from proxy.core.conversation.records import HiddenCalls, Node, Session, Suffix, Turn
from proxy.core.planning.plan import Epoch
from proxy.errors import StoreUnavailable


class UnreadableRecord(StoreUnavailable):
    """Raised if a stored record cannot be read. `reason` says why, in one word."""

    default_message = "A record of the store cannot be read."
    reason: ClassVar[str] = "damaged"


UNRECORDED: Final = 86_400.0
"""The most seconds for which what was written of a session lives before its first turn."""


NAMED: Final = "named"
"""The sid of a session that is named by a header; it is the only one under its tag. Other sids are hex."""


SUFFIXES: Final = 8
"""The most places noted under one tag: the same words may stand in several sessions."""


COMPACTOR: Final = "compact"
"""Prefix of the tickets that compactions take in a session's queue."""


class SessionKey(NamedTuple):
    """Identifies a stored session: ``tag`` (hex) is common to all keys of a bucket, ``sid`` unique in it."""

    tag: str
    sid: str

    @classmethod
    def of_id(cls, name: str) -> Self:
        """Return the key of the session that has this id."""
        _, tag, sid = name.split(".")
        return cls(tag, sid)

    def id_for(self, tenant: str) -> str:
        """Return the id of the session in the admin API and in the log."""
        return f"{tenant}.{self.tag}.{self.sid}"


class Lookup(msgspec.Struct, frozen=True):
    """Everything a request looks up in the store, in one query, before it is forwarded."""

    tag: str
    sid: str | None
    """The session's sid if a header names the session; None to find the session by its chain."""
    newest: tuple[bytes, ...]
    """Chain hashes of the request, newest first (at most 64), by which the session is recognised."""
    uncounted: tuple[bytes, ...]
    """Chain hashes whose token counts this process does not have."""
    lane: str
    held: str = ""
    """The sid of the session of which this process already holds epochs and hidden calls."""
    epochs: int = 0
    """How many of that session's epochs in the lane are held."""
    hidden: int = 0
    """How many of its answers with hidden calls are held."""
    generation: int = 0
    """The store's generation when the look-up was made, in which those epochs and answers were read."""
    injected: bytes = b""
    """Digest of the session's injection that this process holds, if any."""
    joints: tuple[bytes, ...] = ()
    """For each of ``newest`` that is an answer, the hash of its joint (see `Joint`); otherwise empty."""
    first: str = ""
    """The tag of the conversation's first answer; a session kept under another tag may be noted there."""


class LookupResult(msgspec.Struct, frozen=True):
    """The answer to a :class:`Lookup`; all fields are empty if no session was found."""

    sid: str | None = None
    tag: str = ""
    """The session's tag if it differs from the one in the lookup."""
    place: int | None = None
    """How many of the lookup's ``newest`` come before the newest answer or joint that any session has; None
    if none has any, or if the lookup has a sid. No session is found if several have it."""
    session: Session | None = None
    known: bytes | None = None
    """The newest chain hash of the lookup that the session holds."""
    counts: dict[bytes, int] = {}
    """Counted tokens by chain hash, for those of ``uncounted`` that the store knows."""
    epochs: tuple[Epoch, ...] = ()
    """The lane's epochs, in the order written, without those that the lookup says are held."""
    hidden: tuple[HiddenCalls, ...] = ()
    """The answers with hidden calls, in the order written, without those that the lookup says are held."""
    has_ended: bool = False
    """Whether there was such a session that has expired or was deleted."""
    injected: bytes = b""
    """Digest of the session's injection; empty if it has none."""
    injection: bytes | None = None
    """The injection; None if it has the digest given in the lookup."""
    joint: bytes = b""
    """The joint by which the session was found; empty if it was found otherwise."""
    user: Node | None = None
    """The user message that was answered at the joint; the client's version of it may differ."""


class Recorded(StrEnum):
    """The result of recording a turn."""

    KEPT = "kept"
    TORN = "torn"
    """Not written: messages before it are missing, or its session has expired or was deleted."""
    MOVED = "moved"
    """Not written: the turn was appended to a tip that is no longer the tip of the session."""


class PlaceState(StrEnum):
    """The state of a place in a session's queue."""

    GO = "go"
    WAIT = "wait"
    FULL = "full"
    """No place was taken: too many turns are waiting already."""


class Mark(NamedTuple):
    """How far a session's messages have been read."""

    life: bytes
    """While it is the same, the messages read before are unchanged; a new value means they may differ."""
    messages: int
    """How many messages there were."""


class Stored(msgspec.Struct, frozen=True):
    """A session and its stored messages, for clients that send only new messages."""

    session: Session | None = None
    nodes: dict[bytes, Node] = {}
    was_here: bool = False
    """Whether there was such a session that has expired or was deleted."""
    mark: Mark | None = None
    """Where these messages end; None if that is not known."""
    is_news: bool = False
    """Whether ``nodes`` holds only the messages written since the mark that the caller gave."""


class Listed(msgspec.Struct, frozen=True):
    """The sessions used last, newest first."""

    sessions: list[tuple[SessionKey, Session]]
    left_out: Counter[str]
    """How many sessions could not be read, by :attr:`UnreadableRecord.reason`."""


class MessageStore(Protocol):
    """Reads a session and its messages."""

    async def session(self, key: SessionKey) -> Session | None:
        """Return the session's own record."""
        ...

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        """Return every message of the session by chain hash: the whole tree (for the admin API; O(n))."""
        ...

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        """Return the session with the messages written after ``since`` if these are known, else with all."""
        ...

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        """Record that the client was told that ``answer`` (a chain hash) is not saved, whether it is or not.

        The mark holds until the session's next appended turn.
        """
        ...

    async def mark_ended(self, key: SessionKey) -> None:
        """Record that there was such a session, if the store does not know that: it has lost the session."""
        ...


class TurnStore(Protocol):
    """The lookup of a request, and the writes of a request and its turn. Every write is idempotent."""

    def revision(self) -> int | None:
        """Return a number that changes once a write other than a turn may have changed a :meth:`find` result.

        It covers all sessions. The end of a compaction does not change it: a session found compacting counts
        as such until it is looked up again.

        Returns None if other processes may write to the store too.
        """
        ...

    def generation(self) -> int:
        """Return a number that changes when the store may have lost its newest writes (it was reached anew).

        What a look-up says is held counts only if the generation is still the same when its answer is there:
        else others may have been written in the place of what was lost.
        """
        ...

    async def find(self, lookup: Lookup) -> LookupResult:
        """Return the session, its epochs and its token counts, in one round trip."""
        ...

    async def suffixes(self, tag: str) -> list[Suffix]:
        """Return the places that turns have noted under this tag, the newest first.

        They are the :data:`SUFFIXES` newest; their sessions may be gone.
        """
        ...

    async def begin_epoch(
        self, key: SessionKey, epoch: Epoch, seen: int, ttl: float, *, begins: bool = False
    ) -> tuple[Epoch, ...]:
        """Append ``epoch`` to its lane if the lane still holds exactly ``seen`` epochs (compare and set).

        Returns the lane's epochs from number ``seen`` on: ``(epoch,)`` if it was written (also by an earlier
        attempt whose reply was lost), otherwise the epochs that others wrote instead. With ``begins`` the
        session need not exist yet; without it, nothing is stored or returned if the session is gone.
        """
        ...

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        """Write a turn, idempotently, and renew the life of the session, which no other write does.

        Writes nothing if the messages before the turn are missing, if its session ``may_have_ended`` and has
        expired or was deleted, or if the turn ``is_late`` and its session was deleted after it was answered
        (TORN). A session that the store has lost is begun anew.

        A node that exists already stays as it is. The tip moves to ``turn.session.tip`` only if
        ``advances_tip`` is set, and the session has no tip yet or a parent of the turn's nodes was known
        before (so that a title request under a chat's id does not become its transcript). ``turns`` counts
        the completed answers that were new.

        An appended turn moves the tip only from ``begun_at``; if the tip is elsewhere, nothing is written
        (MOVED).
        """
        ...

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        """Pin messages of the session by their chain hashes, each once; :class:`Session` lists the pins.

        It may be set before the first turn is recorded.
        """
        ...

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        """Store the messages that stand for an answer upstream, unless the answer has some already.

        With ``begins`` the session need not exist yet, because its first turn is recorded later; without it,
        nothing is stored and False returned if the session is gone.
        """
        ...

    async def inject(
        self, key: SessionKey, digest: bytes, injection: bytes, ttl: float, *, after: bytes = b""
    ) -> bytes:
        """Store the session's injection unless it has one already; return the one in force.

        An injection whose digest is ``after`` is replaced. It may be stored before the first turn is
        recorded.
        """
        ...

    async def injection(self, key: SessionKey) -> bytes | None:
        """Return the session's injection."""
        ...

    async def move(self, former: str, tag: str, tenant: str, first: str = "") -> bool:
        """Move the sessions stored under the tag ``former`` to ``tag``, as sessions of ``tenant``.

        If there are none, move those noted under the tag ``first``. Returns whether anything was stored
        there. A copy that already exists under ``tag`` is joined with the former one; another session that
        has begun there stays as it is.
        """
        ...


class QueueStore(Protocol):
    """The queue in which appended turns and compactions of a session wait for each other."""

    async def take_place(self, key: SessionKey, ticket: str, most: int, lease: float) -> PlaceState:
        """Take a place in the session's queue for ``lease`` seconds, or return the state of the place held.

        At most ``most`` tickets may wait behind the first. A place whose lease has run out is given up. While
        a ticket that begins with COMPACTOR is first, the session is shown as compacting. In a paused session
        only such tickets may go, before all others.
        """
        ...

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        """Renew a place in the session's queue for another ``lease`` seconds, if it is still held."""
        ...

    async def leave(self, key: SessionKey, ticket: str) -> None:
        """Give up a place in the session's queue."""
        ...


class SummaryStore(MessageStore, Protocol):
    """Summaries by content address, leases on writing them, and the messages they summarize."""

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        """Return the finished summaries among these content addresses."""
        ...

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        """Take or renew a lease of ``lease`` seconds on writing the summary at ``address``.

        Returns whether ``token`` holds it. Until the lease runs out no other token can take it.
        """
        ...

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        """Give up the lease if ``token`` still holds it."""
        ...

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        """Store a summary under its content address, and give up the lease of ``token``.

        Returns False if it was not stored: the session was deleted meanwhile, or ``token`` has lost its lease
        and another worker holds it or has written the summary.
        """
        ...


class SessionAdmin(Protocol):
    """What operators read of sessions besides their messages, and the changes they make to them."""

    async def sessions(self, limit: int) -> Listed:
        """Return the sessions used last, newest first."""
        ...

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        """Return all epochs of a lane, in the order written."""
        ...

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        """Return the lanes of the session that have epochs, sorted."""
        ...

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        """Return all answers of the session with hidden calls, in the order written."""
        ...

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        """Make appended turns of a session wait, or let them go on; return whether the session exists."""
        ...

    async def delete(self, key: SessionKey) -> bool:
        """Delete a session, except the mark that it existed; return whether anything was stored of it."""
        ...


class SessionStore(TurnStore, QueueStore, SummaryStore, SessionAdmin, Protocol):
    """The whole session store. A session lives for the ``ttl`` (seconds) of its newest turn at least.

    All else that is written of it lives as long as it does, or before its first turn for its own ``ttl``, a
    day (:data:`UNRECORDED`) at most.

    Every method of every protocol here raises :class:`proxy.errors.StoreUnavailable` if the store cannot be
    reached in time, refuses, or returns something that cannot be read.
    """

    async def ping(self) -> None:
        """Return when the store answers and takes writes."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
