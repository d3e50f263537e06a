"""Asking for a summary behind what a lane sent last: its provider has kept that, and rereads it for little.

The question is one more user message after the conversation as it was last forwarded, so that the model sees
in full what is to be cut. It is told which part that is, and what of it is cut there already.
"""

import sys
from dataclasses import dataclass

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.dialects.answers import Answer, Ask
from proxy.core.economics.economy import cheaper_reading
from proxy.core.formats.json import dumps
from proxy.core.planning.plan import EMPTY, Epoch, Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.extractive import EARLIER
from proxy.core.summaries.prompt import Limit, ask_behind
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
_QUOTED = 160
"""Characters of a message by which it is known."""


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
        request, situation, epoch = self.request, self.situation, self.epoch
        rules, plan, history = situation.policy.summary, situation.plan, request.history
        is_plain = history.body.leaves_answer_open and not request.alternates(epoch)
        if not is_plain or (epoch is not None and epoch.without_reasoning):
            return None
        if rules.model not in ("", request.model.name) or len(source.pieces) != 1:
            return None
        gaps = plan.gaps_within(*span)
        absent: list[Block] = []  # what of it that request did not hold, as it was cut already
        for gap in gaps:
            absent += blocks_of(now, (max(gap.start, span[0]), min(gap.end, span[1])))
        told = sum(situation.count(block.transcript) for block in absent)
        reading = cheaper_reading(situation, source.tokens - told - _LONGER)
        if reading is None or not self._has_room(reading.prompt.tokens, told + limit.tokens):
            return None
        if not self._may_be_read(span):
            return None
        count = span[1] - span[0] - sum(gap.count - 1 for gap in gaps)
        ends = self._beginning(span[0]), self._beginning(span[1] - 1)
        ledgers = (Block(EARLIER, gap.ledger) for gap in gaps if gap.ledger)
        length = situation.chain.sent_before
        return CachedQuestion(
            tenant=request.session.tenant,
            ask=ask_behind(*ends, count, Piece(tuple(absent)).text, source.language, limit, rules),
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

    def _may_be_read(self, span: Span) -> bool:
        """Whether the summary of a gap may be written by who sees all that the request before held.

        Not where that ended before the gap does, and not where there is reasoning, or text that must stand in
        no summary.
        """
        situation, outgoing = self.situation, self.request.history.outgoing
        chain, plan = situation.chain, situation.plan
        if max(span[1], plan.depth) > chain.sent_before:
            return False
        shown = [place for run in plan.uncut(chain.sent_before) for place in run]
        if not all(map(situation.classes.may_be_summarised, shown)):
            return False
        return not any(chain.dialect.holds_reasoning(outgoing[place]) for place in shown)

    def _beginning(self, place: int) -> str:
        """How the message begins that stands in the view at a place, or for it."""
        situation = self.situation
        plan, dialect = situation.plan, situation.chain.dialect
        if gaps := plan.gaps_within(place, place + 1):
            content = dialect.read(gaps[0].note)
        else:
            edit = plan.edit_at(place)
            content = situation.content(place) if edit is None else dialect.read(edit.raw)
        said = " ".join([content.text, *(f"{name} {arguments}" for _, name, arguments in content.calls)])
        role = "tool" if content.role in TOOL_ROLES else content.role
        return f"[{role}] {dumps(' '.join(said.split())[:_QUOTED]).decode()}"
