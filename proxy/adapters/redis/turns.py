"""A turn on its way into Redis: its messages encoded, in pieces where they are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from proxy.adapters.redis import keys
from proxy.adapters.redis.codec import Codec
from proxy.adapters.redis.scripts import ANSWER, MESSAGE, PARTIAL, Argument, TurnFields
from proxy.core.records import Node, Turn

_NODE: Final = 4
"""Arguments of a node."""

PIECE_NODES: Final = 500
PIECE_BYTES: Final = 4 * 1024 * 1024
"""A turn of more than this is written in pieces: no one step holds up the server, or runs out of time."""


def pieces(codec: Codec, turn: Turn) -> Iterator[TurnFields]:
    """What the script is told of a turn; where its messages are many, in pieces.

    The session and our answer come last, for the answer is counted there. There is always a last piece.
    """
    piece: list[Argument] = []
    outer_parents, size = sorted(turn.outer_parents), 0
    for node in sorted(turn.nodes, key=attrgetter("answer")):
        is_full = len(piece) == _NODE * PIECE_NODES or size + len(node.raw) > PIECE_BYTES
        if piece and is_full and not node.answer:
            yield _fields(turn, b"", outer_parents, piece)
            piece, size = [], 0
        piece += _node_fields(codec, node)
        size += len(node.raw)
    yield _fields(turn, codec.encode(turn.session, keys.RECORD_PLACE), outer_parents, piece)


def _fields(
    turn: Turn, record: bytes, outer_parents: Sequence[bytes], nodes: Sequence[Argument]
) -> TurnFields:
    return TurnFields(
        record=record,
        created=turn.session.created,
        tip=turn.session.tip if turn.advances_tip else b"",
        headerless=turn.headerless,
        appended=turn.begun_at is not None,
        begun_at=turn.begun_at or b"",
        is_urgent=not record or turn.is_late or turn.begun_at is not None,  # somebody waits for it
        outer_parents=outer_parents,
        nodes=nodes,
    )


def _node_fields(codec: Codec, node: Node) -> tuple[Argument, ...]:
    kind = MESSAGE if not node.answer else ANSWER if node.complete else PARTIAL
    return node.hash, codec.encode(node, keys.node_place(node.hash)), node.tokens, kind
