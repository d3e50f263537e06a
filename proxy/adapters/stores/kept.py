"""What the store in memory keeps of one session, and how a turn joins it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import msgspec

from proxy.core.conversation.records import HiddenCalls, Node, Session, Turn
from proxy.core.planning.plan import Epoch
from proxy.ports import Clock, Mark, Recorded, SessionKey


@dataclass(slots=True)
class Kept:
    """All that is kept of one session; times are of the monotonic clock."""

    due: float
    """When to look whether it has expired."""
    expires: float
    session: Session | None = None
    nodes: dict[bytes, Node] = field(default_factory=dict[bytes, Node])
    """By chain hash, in the order written."""
    texts: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """The bytes of its messages, each once."""
    life: bytes = field(default_factory=partial(secrets.token_bytes, 8))
    """Another one from when a message took the place of one that was cut off."""
    epochs: dict[str, list[Epoch]] = field(default_factory=dict[str, list[Epoch]])
    hidden: dict[bytes, HiddenCalls] = field(default_factory=dict[bytes, HiddenCalls])
    """By chain hash of the answer, in the order written."""
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    beside: set[bytes] = field(default_factory=set[bytes])
    late: set[bytes] = field(default_factory=set[bytes])
    """Answers that were told of, in a history, before their own turns came."""
    tips: list[bytes] = field(default_factory=list[bytes])
    """Chain hashes and joints by which it is found."""
    firsts: set[str] = field(default_factory=set[str])
    """Tags under which its own is noted."""
    paused: bool = False
    unsaved: bytes = b""
    pins: dict[bytes, None] = field(default_factory=dict[bytes, None])
    injected: bytes = b""
    """Digest of the injection."""
    injection: bytes | None = None

    def take(self, turn: Turn) -> None:
        """Write a turn that may join (:func:`admits`)."""
        outer = turn.outer_parents
        if turn.begun_at is not None and not turn.advances_tip:
            self.unsaved = b""
        said = {node.hash for node in turn.nodes if not node.answer}
        joined = turn.is_joined or bool((outer | said & self.nodes.keys()) - self.beside)
        fresh = [node for node in turn.nodes if _is_news(node, self.nodes.get(node.hash))]
        late = {node.hash for node in turn.nodes if _comes_late(node, self.nodes.get(node.hash))} - self.late
        self.late |= late
        if any(node.hash in self.nodes for node in fresh):
            self.life = secrets.token_bytes(8)
        for node in fresh:
            raw = self.texts.setdefault(node.raw, node.raw)
            self.nodes[node.hash] = node if raw is node.raw else msgspec.structs.replace(node, raw=raw)
        moves = _moves_tip(self.session, turn, fresh, joined=joined)
        self.session = _merged(self.session, turn, fresh, moves=moves, late=len(late))
        if moves:
            self.beside -= outer | said
        elif not joined:
            self.beside |= said

    def since(self, mark: Mark) -> dict[bytes, Node] | None:
        """The messages that were written since others were read; None where all are to be read again."""
        news = len(self.nodes) - mark.messages
        if mark.life != self.life or news < 0:
            return None
        return dict(islice(reversed(self.nodes.items()), news))

    def shown(self, first_in_line: str = "") -> Session | None:
        """The session's record, and why its appended turns wait."""
        compacting = "compacting" if first_in_line.startswith("compact") else ""
        blocked = "paused" if self.paused else compacting
        return self.session and msgspec.structs.replace(
            self.session, blocked=blocked, unsaved=self.unsaved, pins=tuple(self.pins)
        )


def admits(before: Kept | None, turn: Turn) -> Recorded:
    """Whether a turn can join what is kept of its session; it is written nowhere yet."""
    nodes = before.nodes if before else {}
    if any(parent not in nodes for parent in turn.outer_parents):
        return Recorded.TORN
    tip = before.session.tip if before and before.session else b""
    has_moved = turn.begun_at is not None and tip not in (turn.begun_at, turn.session.tip)
    return Recorded.MOVED if has_moved else Recorded.KEPT


def _is_news(node: Node, stored: Node | None) -> bool:
    """Whether the node is new, or the completed answer in place of one that was cut off."""
    return stored is None or (node.answer and node.complete and not stored.complete)


def _comes_late(node: Node, stored: Node | None) -> bool:
    """Whether this is an answer whose node came with a history that overtook its turn."""
    return node.answer and node.complete and stored is not None and not stored.answer


def _moves_tip(before: Session | None, turn: Turn, fresh: Sequence[Node], *, joined: bool) -> bool:
    if not (turn.advances_tip and turn.session.tip):
        return False
    is_first = before is None or not before.tip
    is_new = any(node.hash == turn.session.tip for node in fresh)
    return is_first or turn.begun_at is not None or (joined and is_new)


def _merged(before: Session | None, turn: Turn, fresh: Sequence[Node], *, moves: bool, late: int) -> Session:
    """The session after the turn; as it was before, where the turn brought nothing new."""
    appended = turn.begun_at is not None
    after = turn.session if fresh or appended or before is None else before
    tip = turn.session.tip if moves else before.tip if before else b""
    return msgspec.structs.replace(
        after,
        created=before.created if before else turn.session.created,
        turns=(before.turns if before else 0) + late + sum(node.answer and node.complete for node in fresh),
        tip=tip,
    )


# --- leases on writing summaries, for the store in memory ---


Place = tuple[SessionKey, str]
"""A session, and the address of a summary."""


class Claims:
    """Who writes which summary, and until when by ``clock``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[Place, tuple[str, float]] = {}

    def take(self, place: Place, token: str, lease: float) -> bool:
        """Take or renew a lease (seconds); whether ``token`` has it."""
        now = self._clock.monotonic()
        self._held = {each: held for each, held in self._held.items() if held[1] > now}
        if self.holder(place) not in ("", token):
            return False
        self._held[place] = (token, now + lease)
        return True

    def holder(self, place: Place) -> str:
        """The token that has the lease; empty where none has."""
        token, ends = self._held.get(place, ("", 0.0))
        return token if ends > self._clock.monotonic() else ""

    def give_up(self, place: Place, token: str) -> None:
        """End a lease, if ``token`` has it."""
        if token and self.holder(place) == token:
            del self._held[place]
