"""What the stores in this process hold: a session, how a turn is recorded in it, and leases."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import msgspec

from proxy.core.conversation.records import HiddenCalls, Node, Session, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import Clock, Mark, SessionKey


@dataclass(slots=True)
class StoredSession:
    """All that is stored of one session."""

    expires: float = 0.0
    """By the monotonic clock."""
    session: Session | None = None
    nodes: dict[bytes, Node] = field(default_factory=dict[bytes, Node])
    """By chain hash, in the order written."""
    life: bytes = field(default_factory=partial(secrets.token_bytes, 8))
    """Replaced whenever a complete answer takes the place of one that was cut off."""
    epochs: dict[str, list[Epoch]] = field(default_factory=dict[str, list[Epoch]])
    hidden: dict[bytes, HiddenCalls] = field(default_factory=dict[bytes, HiddenCalls])
    """By chain hash of the answer, in the order written."""
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    beside: set[bytes] = field(default_factory=set[bytes])
    late: set[bytes] = field(default_factory=set[bytes])
    """Answers that arrived in the history of a request before their own turns were recorded."""
    tips: list[bytes] = field(default_factory=list[bytes])
    """Chain hashes and joints by which the session is found."""
    firsts: set[str] = field(default_factory=set[str])
    """Tags of first answers under which the session is noted."""
    suffixes: set[str] = field(default_factory=set[str])
    """Tags under which places of the session are noted."""
    paused: bool = False
    unsaved: bytes = b""
    pins: dict[bytes, None] = field(default_factory=dict[bytes, None])
    injected: bytes = b""
    """Digest of the injection."""
    injection: bytes | None = None

    def record(self, turn: Turn) -> None:
        """Write a turn. The caller has checked that it may be recorded (neither TORN nor MOVED)."""
        before, tip, is_appended = self.session, turn.session.tip, turn.begun_at is not None
        outer, asked = turn.outer_parents, {node.hash for node in turn.nodes if not node.answer}
        is_joined = turn.is_joined or bool((outer | asked & self.nodes.keys()) - self.beside)
        fresh: dict[bytes, Node] = {}
        replaces = has_tip = False
        answers = 0  # complete now, and not before this turn
        for node in turn.nodes:
            stored, is_complete = self.nodes.get(node.hash), node.answer and node.complete
            if stored is None or (is_complete and not stored.complete):
                fresh[node.hash] = node  # new, or the complete form of an answer that was cut off
                answers += is_complete
                replaces = replaces or stored is not None
                has_tip = has_tip or node.hash == tip
            if stored and is_complete and not stored.answer and node.hash not in self.late:
                self.late.add(node.hash)  # a later request's history was recorded before this turn
                answers += 1
        if replaces:
            self.life = secrets.token_bytes(8)
        self.nodes |= fresh
        if is_appended and not turn.advances_tip:
            self.unsaved = b""
        is_first = before is None or not before.tip
        moves = turn.advances_tip and bool(tip) and (is_first or is_appended or (is_joined and has_tip))
        self.session = msgspec.structs.replace(
            turn.session if fresh or is_appended or before is None else before,
            created=before.created if before else turn.session.created,
            turns=(before.turns if before else 0) + answers,
            tip=tip if moves else before.tip if before else b"",
        )
        if moves:
            self.beside -= outer | asked
        elif not is_joined:
            self.beside |= asked

    def since(self, mark: Mark) -> dict[bytes, Node] | None:
        """Return the messages written since ``mark``; None if all must be read again."""
        news = len(self.nodes) - mark.messages
        if mark.life != self.life or news < 0:
            return None
        return dict(islice(reversed(self.nodes.items()), news))


# --- leases ---


LeaseKey = tuple[SessionKey | str, str]
"""A session and the content address of a summary, or a scope's tag and the name of a piece of work."""


class Leases:
    """Leases on pieces of work, such as writing a summary. They end by ``clock``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[LeaseKey, tuple[str, float]] = {}

    def take(self, place: LeaseKey, token: str, lease: float) -> bool:
        """Take or renew a lease of ``lease`` seconds; return whether ``token`` holds it."""
        now = self._clock.monotonic()
        self._held = {each: held for each, held in self._held.items() if held[1] > now}
        if self.holder(place) not in ("", token):
            return False
        self._held[place] = (token, now + lease)
        return True

    def holder(self, place: LeaseKey) -> str:
        """Return the token that holds the lease; empty if none does."""
        token, ends = self._held.get(place, ("", 0.0))
        return token if ends > self._clock.monotonic() else ""

    def give_up(self, place: LeaseKey, token: str) -> None:
        """End a lease if ``token`` holds it."""
        if token and self.holder(place) == token:
            del self._held[place]
