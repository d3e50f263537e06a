"""A turn as it is written: the client's new messages and our answer, and the session as it is after them.

Keeps law 5 (nothing is lost): they become nodes of the session's tree, named by their chain hashes, so that
writing a turn twice writes it once.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.identity import read_message
from proxy.core.conversation.messages import Message
from proxy.core.conversation.records import Joint, Node, Reply, Session, Turn
from proxy.core.dialects.dialect import Content
from proxy.core.dialects.wire import Answer
from proxy.core.text.words import one_line
from proxy.engine.flow import Appended, Exchange

_FIRST_WORDS = 80
"""Characters that are kept of how a session began."""


class PlacedAnswer(msgspec.Struct):
    """Our answer at its place in the chain."""

    hash: bytes
    parent: bytes
    raw: bytes
    content: Content
    message: Message
    told: Answer
    joint: Joint | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it was not cut off."""
        return self.told.complete

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange."""
        return self.is_complete and not self.message.calls


def place(exchange: Exchange, answer: Answer) -> PlacedAnswer | None:
    """Place an answer; None where there is nothing to keep, or there are several to choose from."""
    if answer.message is None or answer.choices != 1:
        return None
    content = exchange.request.chain.dialect.read(answer.message)
    message = read_message(content)
    return PlacedAnswer(
        hash=exchange.hash_after(message),
        parent=exchange.history.tip,
        raw=answer.message,
        content=content,
        message=message,
        told=answer,
    )


def turn_of(
    exchange: Exchange, placed: PlacedAnswer | None, tokens: int, known: bytes | None, now: float
) -> Turn:
    """The turn of a request and its answer, if there is one, of so many counted ``tokens``.

    ``known`` is the deepest of its messages that the store has; ``now`` are seconds since 1970.
    """
    session, appended = exchange.request.session, exchange.incoming.appended
    nodes = _new_nodes(exchange, known, now)
    if placed is not None:
        nodes.append(_answer_node(exchange, placed, tokens, now))
    return Turn(
        session=_session(exchange, placed, now),
        nodes=tuple(nodes),
        advances_tip=placed is not None and placed.is_complete,
        headerless=session.is_headerless,
        begun_at=appended.begun_at if appended else None,
        joint=placed.joint if placed is not None else None,
        is_joined=session.is_joined,
    )


def _new_nodes(exchange: Exchange, known: bytes | None, now: float) -> list[Node]:
    chain, root = exchange.request.chain, exchange.history.root
    first = _last_place(chain.hashes, known) + 1 if known is not None else 0
    hashes, raws, tokens = [*chain.hashes[first:]], chain.raws[first:], chain.tokens[first:]
    parents = [chain.hashes[first - 1] if first else root, *hashes]
    return [
        Node(hash=own, parent=parent, raw=raw, tokens=size, at=now, sequence=place)
        for place, own, parent, raw, size in zip(count(first), hashes, parents, raws, tokens, strict=False)
    ]


def _last_place(hashes: Sequence[bytes], wanted: bytes) -> int:
    """Where a chain hash stands, looked for from the end: what the store knows is seldom far from it."""
    place = len(hashes) - 1
    while hashes[place] != wanted:
        place -= 1
    return place


def _answer_node(exchange: Exchange, placed: PlacedAnswer, tokens: int, now: float) -> Node:
    return Node(
        hash=placed.hash,
        parent=placed.parent,
        raw=placed.raw,
        tokens=MESSAGE_TOKENS + tokens,
        at=now,
        sequence=len(exchange.request.chain),
        answer=True,
        complete=placed.is_complete,
        reply=_reply(exchange.incoming.appended, placed.told) if exchange.incoming.appended else None,
    )


def _reply(appended: Appended, told: Answer) -> Reply | None:
    """What is kept for who sends the turn again under its key, if it has one."""
    if not appended.retry_key:
        return None
    return Reply(
        key=appended.retry_key,
        after=appended.after,
        id=told.id or "",
        model=told.model or "",
        finish_reason=told.finish_reason or "stop",
        usage=told.usage,
    )


def _session(exchange: Exchange, placed: PlacedAnswer | None, now: float) -> Session:
    decision, request, appended = exchange.decision, exchange.request, exchange.incoming.appended
    budget, session = request.budget, request.session
    before = session.found.session
    is_aside = session.found.known is None and not session.is_joined and appended is None
    if before is not None and before.tip and is_aside:
        return replace(before, updated=now)  # a line of its own, such as a request for a title
    return Session(
        name=session.name,
        tenant=session.tenant,
        created=before.created if before else now,
        updated=now,
        began_with=before.began_with if before else _first_words(exchange),
        tip=placed.hash if placed is not None else b"",
        head=exchange.history.head,
        lane=request.lane,
        model=request.model.name,
        policy=request.policy.name,
        chosen_by=exchange.incoming.chosen_by,
        stage=decision.stage.value,
        tokens=exchange.sent,
        full_tokens=exchange.full,
        budget=budget.tokens or 0,
        window=budget.window.tokens or 0,
        window_from=budget.window.source.value,
        ratio=budget.ratio,
        head_tokens=budget.head,
        exchanges=exchange.history.exchanges + (placed is not None and placed.is_final),
        **_newest(exchange),
    )


def _first_words(exchange: Exchange) -> str:
    """How the first user message of a request begins."""
    chain = exchange.request.chain
    asked = (raw for raw, message in zip(chain.raws, chain.messages, strict=True) if message.role == "user")
    return one_line(chain.dialect.read(next(asked, b"")).text, _FIRST_WORDS)


def _newest(exchange: Exchange) -> dict[str, Any]:
    """What tells a retry of an appended turn from a new one."""
    appended, hashes = exchange.incoming.appended, exchange.request.chain.hashes
    if appended is None or not hashes or hashes[-1] == appended.after:
        return {}
    return {
        "newest_from": appended.after,
        "newest_to": hashes[-1],
        "newest_key": appended.retry_key,
    }
