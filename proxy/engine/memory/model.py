"""What a model is asked for a memory: items, texts, and a sentence for what is put away.

Users come first: every call is made when :mod:`proxy.engine.foreground` lets it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from proxy.core.dialects.answers import Ask
from proxy.core.memory.items import VerifiedItem, ask_for_items, proposed_items_in, verified_items
from proxy.core.memory.lifecycle import ask_for_compression, compression_of
from proxy.core.memory.records import Item
from proxy.core.memory.statements import Statements
from proxy.core.memory.texts import TextRequest
from proxy.core.memory.utterances import Utterance, language_of_utterances, newest
from proxy.core.policy.policy import Policy
from proxy.core.summaries.prompt import Refused
from proxy.engine.foreground import Foreground
from proxy.engine.models.asking import Asking, Caller, Unanswered
from proxy.errors import UnabridgedError
from proxy.ports import TokenCounter
from proxy.telemetry import log_warning
from proxy.tracing import MEMORY, step

FAILURES = (Unanswered, Refused, TimeoutError, UnabridgedError)
"""What comes of a model that does not answer, or not with what was asked for."""


def log_failure(what: str, failure: Exception, **details: str) -> None:
    """Say in the log what was not done, and which of :data:`FAILURES` is why."""
    log_warning(what, why=str(failure) or type(failure).__name__, **details)


class ModelAccess(NamedTuple):
    """By whom, and by which rules, a memory is written."""

    caller: Caller
    policy: Policy

    @property
    def temperature(self) -> float:
        """That at which it is asked."""
        return self.policy.summary.temperature


@dataclass(frozen=True)
class MemoryModel:
    """Asks the upstream model. Raises :data:`FAILURES`."""

    asking: Asking
    foreground: Foreground
    counter: TokenCounter

    async def items(
        self, access: ModelAccess, lines: Sequence[Utterance], known: Sequence[Item]
    ) -> list[VerifiedItem]:
        """What of these lines is to be remembered, and was said; ``known`` is what is shown beside them."""
        ask = ask_for_items(lines, known, language_of_utterances(lines), access.temperature)
        answer = await self._answer(access, ask)
        return await asyncio.to_thread(lambda: verified_items(proposed_items_in(answer), Statements(lines)))

    async def text(self, access: ModelAccess, wanted: TextRequest) -> str:
        """A text of a scope; nobody is asked where there is nothing to be summarised."""
        if (unasked := wanted.unasked) is not None:
            return unasked
        rules = access.policy.memory
        most = rules.long_max_tokens if wanted.is_long else rules.short_max_tokens
        language = language_of_utterances(wanted.source)
        answer = await self._answer(access, wanted.ask(most, language, access.temperature))
        return await asyncio.to_thread(wanted.read, answer, most, language, self.counter.count)

    async def compression(self, access: ModelAccess, content: str) -> str:
        """One or two sentences in the place of an item."""
        ask = ask_for_compression(content, access.temperature)
        return compression_of(await self._answer(access, ask, is_waited_for=True), content)

    async def _answer(self, access: ModelAccess, ask: Ask, *, is_waited_for: bool = False) -> str:
        hurry = asyncio.Event()
        if is_waited_for:
            hurry.set()
        caller = replace(access.caller, purpose="memory")
        with step(MEMORY, is_aside=True):
            answer = await self.foreground.run(lambda: self.asking.answer(caller, ask), hurry)
        if answer.tool_calls or answer.message is None:
            raise Refused("tool_call" if answer.tool_calls else "empty")
        return self.asking.wire.read(answer.message).text


def pieces_of(lines: Sequence[Utterance], counter: TokenCounter, most: int) -> list[Sequence[Utterance]]:
    """Lines in pieces of which one call is asked each, the newest ``most`` of them, oldest first."""
    pieces: list[Sequence[Utterance]] = []
    while lines and len(pieces) < most:
        pieces.append(newest(lines, counter.count) or lines[-1:])
        lines = lines[: -len(pieces[-1])]
    return pieces[::-1]
