"""Where sessions are kept: what is asked of a store, and what it answers."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, Protocol

import msgspec

from proxy.core.conversation.records import HiddenCalls, Node, Session, Turn
from proxy.core.planning.plan import Epoch
from proxy.errors import StoreUnavailable


class UnreadableRecord(StoreUnavailable):
    """The store answers, with something that cannot be read. `reason` is a word for it."""

    default_message = "A record of the store cannot be read."
    reason: ClassVar[str] = "damaged"


NAMED: Final = "named"
"""The sid of a session that a header names: it is alone under its tag. Other sids are hex."""


COMPACTOR: Final = "compact"
"""What the tickets of compactions in a session's queue begin with."""


class SessionKey(NamedTuple):
    """Where a session is kept: ``tag`` (hex) groups all keys of its bucket, ``sid`` names it within."""

    tag: str
    sid: str

    def id_for(self, tenant: str) -> str:
        """By what operators know the session, in the admin API and in the log."""
        return f"{tenant}.{self.tag}.{self.sid}"


class Lookup(msgspec.Struct, frozen=True):
    """The one question that a request asks of the store before it is forwarded."""

    tag: str
    sid: str | None
    """The session, where a header names it; None: find it by its chain."""
    newest: tuple[bytes, ...]
    """Chain hashes of the request, newest first (at most 64), for recognition."""
    uncounted: tuple[bytes, ...]
    """Chain hashes whose token counts this process does not know."""
    lane: str
    seen: tuple[str, int] = ("", 0)
    """(sid, how many of the lane's epochs this process already holds for it)."""
    hidden_seen: tuple[str, int] = ("", 0)
    """(sid, how many of its answers with hidden calls this process already knows)."""
    injected: bytes = b""
    """Digest of what was handed in for the session, as far as this process knows."""
    joints: tuple[bytes, ...] = ()
    """Beside each of ``newest``, where that is an answer, what names it by its place alone; else empty."""
    first: str = ""
    """The tag under which the first answer may be noted, for a session that is kept under another tag."""

    def epochs_from(self, sid: str | None) -> int:
        """From which number on the lane's epochs are asked for, if the session is this one."""
        return self.seen[1] if self.seen[0] == sid else 0

    def hidden_from(self, sid: str | None) -> int:
        """From which number on answers with hidden calls are asked for, if the session is this one."""
        return self.hidden_seen[1] if self.hidden_seen[0] == sid else 0


class Found(msgspec.Struct, frozen=True):
    """The answer to a :class:`Lookup`; everything empty where nothing is known."""

    sid: str | None = None
    tag: str = ""
    """Its tag, where that is not the one that was asked about."""
    session: Session | None = None
    known: bytes | None = None
    """The newest of the asked chain hashes that the session holds."""
    counts: dict[bytes, int] = {}
    """Counted tokens by chain hash, of those asked for and known."""
    epochs: tuple[Epoch, ...] = ()
    """The lane's epochs in the order written, those after ``seen`` (all, if ``seen`` names another sid)."""
    hidden: tuple[HiddenCalls, ...] = ()
    """The answers with hidden calls in the order written, those after ``hidden_seen``."""
    was_here: bool = False
    """Whether there was such a session that has expired, or was deleted."""
    injected: bytes = b""
    """Digest of what was handed in for the session; empty where nothing was."""
    injection: bytes | None = None
    """What was handed in; None where it is what the question named by its digest."""
    joint: bytes = b""
    """By which of the joints it was found, where by one of them."""
    user: Node | None = None
    """The user message that was answered there; it may have changed."""


class Recorded(StrEnum):
    """What became of a turn."""

    KEPT = "kept"
    TORN = "torn"
    """Not written: messages before it are not there, as after a session has expired or was deleted."""
    MOVED = "moved"
    """Not written: appended to a session that has gone on from elsewhere in the meantime."""


class Standing(StrEnum):
    """How a place in a session's line stands."""

    GO = "go"
    WAIT = "wait"
    FULL = "full"
    """There is no place: too many wait already."""


class Mark(NamedTuple):
    """Up to where a session's messages were read."""

    life: bytes
    """Says that those read before still are what they were; another one that they may not be."""
    messages: int
    """How many there were."""


class Stored(msgspec.Struct, frozen=True):
    """What is stored of a session's messages, for clients that send only what is new."""

    session: Session | None = None
    nodes: dict[bytes, Node] = {}
    was_here: bool = False
    """Whether there was such a session that has expired, or was deleted."""
    mark: Mark | None = None
    """Where these messages end; None where that cannot be told."""
    is_news: bool = False
    """Whether they are those alone that were written since the mark that was asked about."""


class Listed(msgspec.Struct, frozen=True):
    """The sessions used last, newest first."""

    sessions: list[tuple[SessionKey, Session]]
    left_out: Counter[str]
    """How many between them cannot be read, by :attr:`UnreadableRecord.reason`."""


class MessageStore(Protocol):
    """What is stored of a session and its messages."""

    async def session(self, key: SessionKey) -> Session | None:
        """One session's own record."""
        ...

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        """Every message of the session by chain hash: the whole tree (for the admin API; O(n))."""
        ...

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        """The session with every message, or where that is known with those alone that are new ``since``."""
        ...

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        """The client of this ``answer`` (its chain hash) was told that it is not saved, be it or not.

        Holds until the session's next appended turn.
        """
        ...


class TurnStore(Protocol):
    """What a request asks, and what it and its turn write. Every write can be repeated unharmed."""

    def revision(self) -> int | None:
        """Another number once anything but turns may have changed what :meth:`find` tells of any session.

        That a session is being compacted holds until it is looked up again: it ends without another number.

        None where others may write, too.
        """
        ...

    async def find(self, lookup: Lookup) -> Found:
        """The session, its epochs and counts: one round trip."""
        ...

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        """Append ``epoch`` to its lane if the lane still holds exactly ``seen`` epochs (compare and set).

        Answers the lane's epochs from number ``seen`` on: ``(epoch,)`` alone when it was written (also by
        an earlier attempt whose reply was lost), what others wrote instead otherwise.
        """
        ...

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        """Write a turn, idempotently, and renew all keys of the session.

        Nothing is written where the messages before it are missing (TORN).

        A node that is there already stays as it is. The tip moves to ``turn.session.tip`` only where
        ``advances_tip``, and the session has no tip yet or a parent of the turn's nodes was known before
        (so that a title request under a chat's id does not become its transcript). ``turns`` counts the
        completed answers that were new.

        The tip of an appended turn (``begun_at``) moves from there alone; from elsewhere nothing is written
        (MOVED).
        """
        ...

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        """Pin messages of the session by their chain hashes, each once; :class:`Session` tells of them.

        A pin lives as long as the session. It may come before the first turn is recorded.
        """
        ...

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        """Keep what stands upstream for an answer, unless something does already: the first counts.

        It lives as long as the session. Where it ``begins`` one it comes before the first turn is recorded;
        else nothing is kept, and False told, where the session is not there any more.
        """
        ...

    async def inject(
        self, key: SessionKey, digest: bytes, injection: bytes, ttl: float, *, after: bytes = b""
    ) -> bytes:
        """Keep what the session begins with, unless something was before; answers what stands.

        What has the digest ``after`` gives way. It lives as long as the session, and may come before the
        first turn is recorded.
        """
        ...

    async def injection(self, key: SessionKey) -> bytes | None:
        """What was handed in for the session."""
        ...

    async def move(self, former: str, tag: str, tenant: str, first: str = "") -> bool:
        """Take the sessions under the tag ``former`` to ``tag``, as those of ``tenant``.

        Where there are none, those that are noted under the tag ``first``. Answers whether anything was known
        there. A session that has begun under ``tag`` stays as it is.
        """
        ...


class QueueStore(Protocol):
    """The line in which appended turns and compactions of a session wait for each other."""

    async def stand(self, key: SessionKey, ticket: str, most: int, lease: float) -> Standing:
        """Take a place in the session's line for a ``lease`` (seconds), or ask again how it stands.

        At most ``most`` may wait behind the first. A place whose lease has run out is given up. Tickets that
        begin with COMPACTOR show the session as compacting while they are first. In a paused session they
        alone go, before all others.
        """
        ...

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        """Keep a place in the session's line for another ``lease`` (seconds), if it is still held."""
        ...

    async def leave(self, key: SessionKey, ticket: str) -> None:
        """Give up a place in the session's line."""
        ...


class SummaryStore(MessageStore, Protocol):
    """Summaries by content address and who writes which, beside the messages that they are of."""

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        """The ready summaries among these content addresses."""
        ...

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        """Take or renew the lease (seconds) on writing the summary at ``address``; whether ``token`` has it.

        While it lasts nobody else gets it; once it has run out anybody may.
        """
        ...

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        """Give up the lease, if it is still held."""
        ...

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        """Keep a summary under its content address, and give up the lease of ``token``.

        False where it is not kept: the session was deleted meanwhile, or a ``token`` was given and has lost
        its lease, and another worker has it or has written.
        """
        ...


class SessionAdmin(Protocol):
    """What operators see of sessions beside their messages, and do to them."""

    async def sessions(self, limit: int) -> Listed:
        """The sessions used last, newest first."""
        ...

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        """All epochs of a lane, in the order written."""
        ...

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        """The lanes of the session that have epochs, sorted."""
        ...

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        """All answers of the session with hidden calls, in the order written."""
        ...

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        """Let appended turns of a session wait, or go on; whether there is such a session."""
        ...

    async def delete(self, key: SessionKey) -> bool:
        """Forget a session, all but that there was one; whether there was."""
        ...


class SessionStore(TurnStore, QueueStore, SummaryStore, SessionAdmin, Protocol):
    """Sessions, kept for at least their time to live (seconds): all that is asked of a store.

    Every method of every protocol here raises :class:`proxy.errors.StoreUnavailable` when the store cannot be
    reached in time, refuses, or answers with something that cannot be read.
    """

    async def knows_secret(self) -> bool:
        """Whether the store was written with one of our secrets; asked once, at the start.

        False says that none of its sessions will be found. True where nobody can tell.
        """
        ...

    async def ping(self) -> None:
        """Return when the store answers."""
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...
