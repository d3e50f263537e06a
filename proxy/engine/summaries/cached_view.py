"""Ask for a summary after the messages that a lane sent last: the provider has cached them.

The question is one more user message after the conversation as it was last forwarded, so that the model sees
in full what is to be cut, at the price of cached tokens. It is told which part that is, and which messages of
it are cut there already.
"""

import sys
from dataclasses import dataclass

import msgspec

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.dialects.answers import Answer, Ask
from proxy.core.dialects.dialect import MODEL_NAME_CHARACTERS
from proxy.core.economics.economy import cheaper_reading
from proxy.core.formats.json import dumps
from proxy.core.planning.plan import EMPTY, Epoch, Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.extractive import EARLIER
from proxy.core.summaries.prompt import Limit, ask_after
from proxy.core.summaries.source import Block, Piece, Source, blocks_of
from proxy.engine.flow import Request
from proxy.engine.models.asking import CallOptions, ModelClient, Unanswered
from proxy.ports import Clock

_SHOWN = 0.5
"""Share of the expected cached tokens; if `usage` shows fewer, the provider has not cached the prefix."""
_REST = 3_600.0
"""Seconds for which a model gets no such question of a tenant after one failed."""
_LONGER = 150
"""Counted tokens by which the question is longer than one about the cut part alone."""
_AROUND = 400
"""Counted tokens of the question, and of the text around the answer."""
_QUOTED = 160
"""Characters of a message that are quoted to identify it."""


class CachedQuestion(msgspec.Struct, frozen=True):
    """The question for one summary, to be sent after the messages of the last request."""

    tenant: str
    ask: Ask
    body: bytes
    """A request body with the messages of the last request."""
    cache_key: str
    """The prompt cache key of the last request; empty where the client set one, or there was none."""
    cut_part: Piece
    """The cut part: the summary is checked against this only, not all that the model sees."""
    cached: int
    """Tokens of the prompt that the provider should have cached."""
    until: float
    """Until when the provider should keep them, in monotonic seconds."""

    @property
    def weight(self) -> int:
        return len(self.body) + sum(sys.getsizeof(block.transcript) for block in self.cut_part.blocks)


class PromptCache:
    """Asks such questions, and learns for which models the provider caches prefixes.

    Each question holds a whole request while it waits. So questions share memory with other cached values,
    and if one is evicted, its gap is read afresh.
    """

    def __init__(self, asking: ModelClient, clock: Clock, memory: CacheMemory, bodies: CacheMemory) -> None:
        """``bodies`` is the memory for waiting questions, ``memory`` that for what is learned."""
        self.asking = asking
        self._clock = clock
        self._waiting: Lru[str, CachedQuestion] = Lru(bodies, lambda question: question.weight)
        """Waiting questions by the address of the summary."""
        self._rests: Lru[tuple[str, str], float] = Lru(memory)
        """By tenant and model, until when no question is asked, in monotonic seconds."""

    def put(self, address: str, question: CachedQuestion) -> None:
        """Keep the question for a summary until its turn."""
        self._waiting.put(address, question)

    def drop(self, address: str) -> None:
        self._waiting.drop(address)

    def question(self, caller: CallOptions, address: str) -> CachedQuestion | None:
        """Return the question for a summary, if the provider should still have its prefix cached."""
        question = self._waiting.get(address)
        if question is None:
            return None
        rest = self._rests.get((question.tenant, caller.model[:MODEL_NAME_CHARACTERS])) or 0.0
        return question if rest <= self._clock.monotonic() < question.until else None

    async def answer(self, caller: CallOptions, question: CachedQuestion) -> Answer:
        """Return the answer, an empty one where the question is refused.

        A model that continues the conversation with tool calls, refuses, or shows that its provider has not
        cached the prefix gets no such question from this tenant for a while. Raises Unanswered where it may
        answer a minute later, and as :meth:`ModelClient.answer` does.
        """
        body, key = question.body, question.cache_key
        after = self.asking.dialect.with_cache_key(body, key) if key else body
        try:
            answer = await self.asking.answer(caller, question.ask, after)
        except Unanswered as refusal:
            if refusal.is_transient:
                raise
            answer = Answer()
        shown = (answer.usage and answer.usage.cached_tokens) or 0
        if answer.tool_calls or shown < _SHOWN * question.cached:
            rest = self._clock.monotonic() + _REST
            self._rests.put((question.tenant, caller.model[:MODEL_NAME_CHARACTERS]), rest)
        return answer


@dataclass(frozen=True)
class CachedView:
    """The messages of a lane's last request, reconstructed from the current request.

    They were sent under the plan that is in force before anything is decided for the current request (law 3),
    so that any worker can write them again, byte for byte.
    """

    request: Request
    situation: Situation
    """The situation under that plan."""
    epoch: Epoch | None
    """The one in force."""
    at: float
    """When the view was taken, in monotonic seconds."""

    def question(self, now: Situation, span: Span, source: Source, limit: Limit) -> CachedQuestion | None:
        """Return the question for a gap's summary; None where reading it afresh is cheaper, or the only way.

        ``now`` has the summaries that exist by now; ``source`` is what would be read afresh, and ``limit`` is
        that of the summary.
        """
        request, situation, epoch = self.request, self.situation, self.epoch
        rules, plan, history = situation.policy.summary, situation.plan, request.history
        is_plain = history.body.leaves_answer_open and not request.alternates(epoch)
        if not (is_plain and request.model.shows_cache) or (epoch is not None and epoch.without_reasoning):
            return None
        if rules.model not in ("", request.model.name):
            return None
        gaps = plan.gaps_within(*span)
        if not all(gap.note for gap in gaps):
            return None
        absent: list[Block] = []  # the part that the last request did not hold, as it was cut already
        for gap in gaps:
            absent += blocks_of(now, (max(gap.start, span[0]), min(gap.end, span[1])))
        absent_tokens = sum(situation.count(block.transcript) for block in absent)
        reading = cheaper_reading(situation, source.tokens - absent_tokens - _LONGER)
        if reading is None or not self._may_ask(span, reading.prompt.tokens, absent_tokens + limit.tokens):
            return None
        count = span[1] - span[0] - sum(gap.count - 1 for gap in gaps)
        ends = self._beginning(span[0]), self._beginning(span[1] - 1)
        ledgers = (Block(EARLIER, gap.ledger) for gap in gaps if gap.ledger)
        length = situation.conditions.sent_before(situation.chain, plan)
        return CachedQuestion(
            tenant=request.session.tenant,
            ask=ask_after(*ends, count, Piece(tuple(absent)).text, source.language, limit, rules),
            body=history.edited_body(plan, alternates=False, tool=request.tool_under(plan), length=length),
            cache_key=request.cache_key if plan != EMPTY else "",
            cut_part=Piece((*blocks_of(now, span, in_full=True), *ledgers)),
            cached=reading.prompt.cached,
            until=self.at + reading.seconds,
        )

    def _may_ask(self, span: Span, sent: int, counted: int) -> bool:
        """Whether a model that sees all of the last request may write the summary of a gap.

        Not if its window has no room for ``sent`` tokens and ``counted`` more, with the answer; not if that
        request ended before the gap does, and not if it holds reasoning, or text that no summary may contain.
        """
        budget = self.request.budget
        most = budget.window.limit or budget.tokens
        if most is not None and sent + budget.real(counted + _AROUND) > most:
            return False
        situation, outgoing = self.situation, self.request.history.outgoing
        chain, plan = situation.chain, situation.plan
        length = situation.conditions.sent_before(chain, plan)
        if max(span[1], plan.depth) > length:
            return False
        shown = [place for run in plan.uncut(length) for place in run]
        if not all(map(situation.classes.may_be_summarised, shown)):
            return False
        return not any(chain.dialect.holds_reasoning(outgoing[place]) for place in shown)

    def _beginning(self, place: int) -> str:
        """Return the beginning of the message that is at a place in the view, or replaces it."""
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
