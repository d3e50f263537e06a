"""What a lane sent last, which its provider has kept: a summary can be asked for behind it."""

import sys
from dataclasses import dataclass

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.dialects.answers import Answer, Ask
from proxy.core.economics.economy import cheaper_reading
from proxy.core.planning.plan import EMPTY, Epoch, Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.cached_view import absent_from, may_be_read, question_behind
from proxy.core.summaries.extractive import EARLIER
from proxy.core.summaries.prompt import Limit
from proxy.core.summaries.source import Block, Piece, Source, blocks_of
from proxy.engine.flow import Request
from proxy.engine.intake.history import NAME
from proxy.engine.models.asking import Asking, Caller, Unanswered
from proxy.ports import Clock

_SHOWN = 0.5
"""Of the tokens that a provider should have kept: with fewer in `usage`, it has not."""
_REST = 3_600.0
"""Seconds for which a model is asked no such question of a tenant after one went wrong."""
_LONGER = 150
"""Counted tokens by which the question is longer than one about the cut part alone."""
_AROUND = 400
"""Counted tokens of the question, and of what surrounds the answer."""


class CachedQuestion(msgspec.Struct, frozen=True):
    """The question for one summary behind what was sent last."""

    tenant: str
    ask: Ask
    body: bytes
    """A request that has the messages of what was sent last."""
    cache_key: str
    """How it named the provider's cache; empty where the client did, or nobody."""
    cut_part: Piece
    """What the summary is checked against, and nothing else that the model sees."""
    cached: int
    """Tokens of it that the provider has kept."""
    until: float
    """How long one may count on that, in monotonic seconds."""

    @property
    def weight(self) -> int:
        """Bytes that it holds, about."""
        return len(self.body) + sum(sys.getsizeof(block.transcript) for block in self.cut_part.blocks)


class PromptCache:
    """Asks such questions, and learns of which models the provider keeps what was sent.

    Each holds a whole request while it waits for its turn. So they are kept among all else that is cached,
    and what has no room there is read afresh.
    """

    def __init__(self, asking: Asking, clock: Clock, memory: Memory, bodies: Memory) -> None:
        """``bodies`` is room for questions that wait, ``memory`` for what is learned."""
        self.asking = asking
        self._clock = clock
        self._waiting: Lru[str, CachedQuestion] = Lru(bodies, lambda question: question.weight)
        """By the address of the summary."""
        self._rests: Lru[tuple[str, str], float] = Lru(memory)
        """By tenant and model, until when it is asked none, in monotonic seconds."""

    def put(self, address: str, question: CachedQuestion) -> None:
        """Keep the question for a summary until it is its turn."""
        self._waiting.put(address, question)

    def drop(self, address: str) -> None:
        """Let go of it."""
        self._waiting.drop(address)

    def question(self, caller: Caller, address: str) -> CachedQuestion | None:
        """The question for a summary, where the provider should have kept what it takes."""
        question = self._waiting.get(address)
        if question is None:
            return None
        rest = self._rests.get((question.tenant, caller.model[:NAME])) or 0.0
        return question if rest <= self._clock.monotonic() < question.until else None

    async def answer(self, caller: Caller, question: CachedQuestion) -> Answer:
        """The answer, an empty one where it is refused.

        A model that goes on with the conversation, refuses, or shows that its provider has not kept it, is
        not asked so again for this tenant for a while. Raises Unanswered where it may answer a minute later,
        and as :meth:`Asking.answer` does.
        """
        body, key = question.body, question.cache_key
        behind = self.asking.wire.with_cache_key(body, key) if key else body
        try:
            answer = await self.asking.answer(caller, question.ask, behind)
        except Unanswered as refusal:
            if refusal.is_passing:
                raise
            answer = Answer()
        shown = (answer.usage and answer.usage.cached_tokens) or 0
        if answer.tool_calls or shown < _SHOWN * question.cached:
            rest = self._clock.monotonic() + _REST
            self._rests.put((question.tenant, caller.model[:NAME]), rest)
        return answer


@dataclass(frozen=True)
class CachedView:
    """The messages that a lane's last request held, as the request that comes now tells them.

    They went out under the plan that is in force before anything is decided for this one (law 3), so that
    they can be written again, byte for byte, on any worker.
    """

    request: Request
    situation: Situation
    """Under that plan."""
    epoch: Epoch | None
    """The one in force."""
    at: float
    """When it was looked at, in monotonic seconds."""

    def question(self, now: Situation, span: Span, source: Source, limit: Limit) -> CachedQuestion | None:
        """That for the summary of a gap; None where it is cheaper, or alone possible, to read it afresh.

        ``now`` has the summaries that there are by now; ``source`` is what would be read afresh, and
        ``limit`` what the summary may have.
        """
        request, situation = self.request, self.situation
        rules, plan, history = situation.policy.summary, situation.plan, request.history
        is_plain = history.body.leaves_answer_open and not request.alternates(self.epoch)
        if self.epoch is not None and self.epoch.without_reasoning:
            return None
        if not is_plain or rules.model not in ("", request.model.name) or len(source.pieces) != 1:
            return None
        absent = absent_from(situation, now, span)
        told = sum(situation.count(block.transcript) for block in absent)
        reading = cheaper_reading(situation, source.tokens - told - _LONGER)
        if reading is None or not self._has_room(reading.prompt.tokens, told + limit.tokens):
            return None
        if not may_be_read(situation, span, history.outgoing):
            return None
        ledgers = (Block(EARLIER, gap.ledger) for gap in plan.gaps_within(*span) if gap.ledger)
        length = situation.chain.sent_before
        return CachedQuestion(
            tenant=request.session.tenant,
            ask=question_behind(situation, span, absent, source.language, limit),
            body=history.edited_body(plan, alternates=False, tool=request.tool_under(plan), length=length),
            cache_key=request.cache_key if plan != EMPTY else "",
            cut_part=Piece((*blocks_of(now, span, in_full=True), *ledgers)),
            cached=reading.prompt.cached,
            until=self.at + reading.seconds,
        )

    def _has_room(self, sent: int, counted: int) -> bool:
        """Whether the model takes so many tokens, and so many counted ones, prompt and answer together."""
        budget = self.request.budget
        most = budget.window.limit or budget.tokens
        return most is None or sent + budget.real(counted + _AROUND) <= most
