"""A turn as it is written: the client's new messages and our answer, and the session as it is after them.

Keeps law 5 (nothing is lost): they become nodes of the session's tree, named by their chain hashes, so that
writing a turn twice writes it once.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.completion import Answer
from proxy.core.identity import read_message
from proxy.core.messages import Content, Message
from proxy.core.records import Node, Session, Turn
from proxy.engine.exchange import Prepared


class PlacedAnswer(msgspec.Struct, frozen=True):
    """Our answer at its place in the chain."""

    hash: bytes
    parent: bytes
    raw: bytes
    content: Content
    message: Message
    is_complete: bool

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange."""
        return self.is_complete and not self.message.calls


def place(prepared: Prepared, answer: Answer) -> PlacedAnswer | None:
    """Place an answer; None where there is nothing to keep, or there are several to choose from."""
    if answer.message is None or answer.choices != 1:
        return None
    content = Content.of(answer.message)
    message = read_message(content)
    return PlacedAnswer(
        hash=prepared.hash_after(message),
        parent=prepared.history.tip,
        raw=answer.message,
        content=content,
        message=message,
        is_complete=answer.complete,
    )


def turn_of(
    prepared: Prepared, placed: PlacedAnswer | None, tokens: int, known: bytes | None, now: float
) -> Turn:
    """The turn of a request and its answer, if there is one, of so many counted ``tokens``.

    ``known`` is the deepest of its messages that the store has; ``now`` are seconds since 1970.
    """
    nodes = _new_nodes(prepared, known, now)
    if placed is not None:
        nodes.append(_answer_node(prepared, placed, tokens, now))
    return Turn(
        session=_session(prepared, placed, now),
        nodes=tuple(nodes),
        advances_tip=placed is not None and placed.is_complete,
        headerless=prepared.recognised.is_headerless,
        begun_at=prepared.appended.begun_at if prepared.appended else None,
    )


def _new_nodes(prepared: Prepared, known: bytes | None, now: float) -> list[Node]:
    chain, root = prepared.case.chain, prepared.history.root
    hashes, raws, tokens = chain.hashes, chain.raws, chain.tokens
    first = _last_place(hashes, known) + 1 if known is not None else 0
    return [
        Node(
            hash=hashes[place],
            parent=hashes[place - 1] if place else root,
            raw=raws[place],
            tokens=tokens[place],
            at=now,
            sequence=place,
        )
        for place in range(first, len(hashes))
    ]


def _last_place(hashes: Sequence[bytes], wanted: bytes) -> int:
    """Where a chain hash stands, looked for from the end: what the store knows is seldom far from it."""
    place = len(hashes) - 1
    while hashes[place] != wanted:
        place -= 1
    return place


def _answer_node(prepared: Prepared, placed: PlacedAnswer, tokens: int, now: float) -> Node:
    return Node(
        hash=placed.hash,
        parent=placed.parent,
        raw=placed.raw,
        tokens=MESSAGE_TOKENS + tokens,
        at=now,
        sequence=len(prepared.case.chain),
        answer=True,
        complete=placed.is_complete,
    )


def _session(prepared: Prepared, placed: PlacedAnswer | None, now: float) -> Session:
    verdict, budget, case = prepared.verdict, prepared.budget, prepared.case
    recognised = prepared.recognised
    before = recognised.found.session
    is_aside = before is not None and before.tip and recognised.found.known is None
    if before is not None and is_aside and prepared.appended is None:
        return replace(before, updated=now)  # a line of its own, such as a request for a title
    return Session(
        name=recognised.name,
        tenant=recognised.tenant,
        created=before.created if before else now,
        updated=now,
        tip=placed.hash if placed is not None else b"",
        head=prepared.history.head,
        lane=case.lane,
        model=case.model,
        policy=prepared.policy.name,
        stage=verdict.stage.value,
        tokens=budget.real(prepared.sent_tokens),
        full_tokens=budget.real(case.counted),
        budget=budget.tokens,
        ratio=budget.ratio,
        head_tokens=budget.head,
        exchanges=prepared.history.exchanges + (placed is not None and placed.is_final),
        **_newest(prepared),
    )


def _newest(prepared: Prepared) -> dict[str, Any]:
    """What tells a retry of an appended turn from a new one."""
    appended, hashes = prepared.appended, prepared.case.chain.hashes
    if appended is None or not hashes or hashes[-1] == appended.after:
        return {}
    return {
        "newest_from": appended.after,
        "newest_to": hashes[-1],
        "newest_key": appended.retry_key,
    }
