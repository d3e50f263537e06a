"""A turn as it is written: the client's new messages and our answer, and the session as it is after them.

Keeps law 5 (nothing is lost): they become nodes of the session's tree, named by their chain hashes, so that
writing a turn twice writes it once.
"""

from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import Message, extend, read_message
from proxy.core.conversation.records import Joint, Node, Session, Turn
from proxy.core.dialects.answers import Answer, Reply
from proxy.core.dialects.dialect import Content
from proxy.core.text.words import one_line
from proxy.engine.flow import Exchange

_FIRST_WORDS = 80
"""Characters that are kept of how a session began."""


class ChainedAnswer(msgspec.Struct):
    """Our answer at its place in the chain."""

    hash: bytes
    raw: bytes
    content: Content
    message: Message
    answer: Answer
    joint: Joint | None = None


def chained(exchange: Exchange, answer: Answer) -> ChainedAnswer | None:
    """An answer at its place; None where there is nothing to keep, or there are several to choose from."""
    if answer.message is None or answer.choices != 1:
        return None
    content = exchange.request.chain.dialect.read(answer.message)
    message = read_message(content)
    return ChainedAnswer(
        extend(exchange.history.tip, message.identity), answer.message, content, message, answer
    )


def turn_of(
    exchange: Exchange, answered: ChainedAnswer | None, tokens: int, known: bytes | None, now: float
) -> Turn:
    """The turn of a request and its answer, if there is one, of so many counted ``tokens``.

    ``known`` is the deepest of its messages that the store has; ``now`` are seconds since 1970.
    """
    chain, appended, session = exchange.request.chain, exchange.incoming.appended, exchange.request.session
    first = len(chain.hashes) if known is not None else 0
    while first and chain.hashes[first - 1] != known:  # what the store knows is seldom far from the end
        first -= 1
    hashes, raws, sizes = [*chain.hashes[first:]], chain.raws[first:], chain.tokens[first:]
    parents = [chain.hashes[first - 1] if first else exchange.history.root, *hashes]
    nodes = [
        Node(hash=own, parent=parent, raw=raw, tokens=size, at=now, sequence=place)
        for place, own, parent, raw, size in zip(count(first), hashes, parents, raws, sizes, strict=False)
    ]
    if answered is not None:
        nodes.append(_answer_node(exchange, answered, tokens, now, first + len(nodes)))
    return Turn(
        session=_session_after(exchange, answered, now),
        nodes=tuple(nodes),
        advances_tip=answered is not None and answered.answer.complete,
        headerless=session.is_headerless,
        begun_at=appended.begun_at if appended else None,
        joint=answered.joint if answered is not None else None,
        is_joined=session.is_joined,
    )


def _answer_node(exchange: Exchange, answered: ChainedAnswer, tokens: int, now: float, sequence: int) -> Node:
    reply, answer, appended = None, answered.answer, exchange.incoming.appended
    if appended is not None and appended.retry_key:  # who sends the turn again gets it again
        reply = Reply(
            key=appended.retry_key,
            after=appended.after,
            id=answer.id or "",
            model=answer.model or "",
            finish_reason=answer.finish_reason or "stop",
            usage=answer.usage,
        )
    return Node(
        hash=answered.hash,
        parent=exchange.history.tip,
        raw=answered.raw,
        tokens=MESSAGE_TOKENS + tokens,
        at=now,
        sequence=sequence,
        answer=True,
        complete=answer.complete,
        reply=reply,
    )


def _session_after(exchange: Exchange, answered: ChainedAnswer | None, now: float) -> Session:
    decision, request, appended = exchange.decision, exchange.request, exchange.incoming.appended
    budget, session, chain = request.budget, request.session, request.chain
    before = session.found.session
    is_aside = session.found.known is None and not session.is_joined and appended is None
    if before is not None and before.tip and is_aside:
        return replace(before, updated=now)  # a branch of its own, such as a request for a title
    began_with = before.began_with if before else ""
    if before is None:
        users = (
            raw for raw, message in zip(chain.raws, chain.messages, strict=True) if message.role == "user"
        )
        began_with = one_line(chain.dialect.read(next(users, b"")).text, _FIRST_WORDS)
    is_final = answered is not None and answered.answer.complete and not answered.message.calls
    newest: dict[str, Any] = {}
    if appended is not None and chain.hashes and chain.hashes[-1] != appended.after:
        # What tells a retry of an appended turn from a new one.
        newest = {
            "newest_from": appended.after,
            "newest_to": chain.hashes[-1],
            "newest_key": appended.retry_key,
        }
    return Session(
        name=session.name,
        tenant=session.tenant,
        created=before.created if before else now,
        updated=now,
        began_with=began_with,
        tip=answered.hash if answered is not None else b"",
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
        exchanges=exchange.history.exchanges + is_final,
        **newest,
    )
