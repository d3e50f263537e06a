"""A turn on its way into Redis: its messages encoded, in pieces where they are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.adapters.redis import keys
from proxy.adapters.redis.codec import Codec
from proxy.adapters.redis.scripts import ANSWER, MESSAGE, PARTIAL, Argument, TurnFields
from proxy.core.records import Node, Turn

PIECE_NODES: Final = 500
PIECE_BYTES: Final = 4 * 1024 * 1024
"""A turn of more than this is written in pieces: no one step holds up the server, or runs out of time."""


def fields(codec: Codec, turn: Turn, nodes: Sequence[Node], *, with_session: bool) -> TurnFields:
    """What the script is told of a turn, or of a piece of it."""
    return TurnFields(
        record=codec.encode(turn.session, keys.RECORD_PLACE) if with_session else b"",
        created=turn.session.created,
        tip=turn.session.tip if turn.advances_tip else b"",
        headerless=turn.headerless,
        appended=turn.begun_at is not None,
        begun_at=turn.begun_at or b"",
        outer_parents=sorted(turn.outer_parents),
        nodes=[argument for node in nodes for argument in _node_fields(codec, node)],
    )


def _node_fields(codec: Codec, node: Node) -> tuple[Argument, ...]:
    kind = MESSAGE if not node.answer else ANSWER if node.complete else PARTIAL
    return node.hash, codec.encode(node, keys.node_place(node.hash)), node.tokens, kind


def pieces(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """The nodes in pieces, answers in the last one: it counts them. There is always a last one."""
    piece: list[Node] = []
    size = 0
    for node in sorted(nodes, key=lambda node: node.answer):
        if piece and not node.answer and (len(piece) == PIECE_NODES or size + len(node.raw) > PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(node)
        size += len(node.raw)
    yield piece
