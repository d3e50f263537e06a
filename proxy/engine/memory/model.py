"""Ask the model for items, texts of a scope, and compressed sentences for archived items.

Users' requests come first: every call waits until :mod:`proxy.engine.foreground` lets it through.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
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
from proxy.core.summaries.prompt import Refused, said_in
from proxy.engine.foreground import Foreground
from proxy.engine.models.asking import CallOptions, ModelClient, Unanswered
from proxy.errors import UnabridgedError
from proxy.ports import TokenCounter
from proxy.telemetry import log_warning
from proxy.tracing import MEMORY, step

FAILURES = (Unanswered, Refused, TimeoutError, UnabridgedError)
"""What is raised where a model does not answer, or not with what it was asked for."""


@contextmanager
def logged_failure(what: str, **details: str) -> Generator[None]:
    """Go on after the block where one of :data:`FAILURES` ends it, and log what was not done and why."""
    try:
        yield
    except FAILURES as failure:
        log_warning(what, why=str(failure) or type(failure).__name__, **details)


class ModelAccess(NamedTuple):
    """The caller and the policy with which a model is asked to write a memory."""

    caller: CallOptions
    policy: Policy


@dataclass(frozen=True)
class MemoryModel:
    """Asks the upstream model. Raises :data:`FAILURES`."""

    asking: ModelClient
    foreground: Foreground
    counter: TokenCounter

    async def items(
        self, access: ModelAccess, lines: Sequence[Utterance], known: Sequence[Item]
    ) -> list[VerifiedItem]:
        """Ask for the items of these lines, and return the verified ones; ``known`` items are shown to it."""
        ask = ask_for_items(lines, known, language_of_utterances(lines), access.policy.summary.temperature)
        answer = await self._answer(access, ask)
        return await asyncio.to_thread(lambda: verified_items(proposed_items_in(answer), Statements(lines)))

    async def text(self, access: ModelAccess, wanted: TextRequest) -> str:
        """Ask for a text of a scope; if there is nothing to summarise, no model is asked."""
        if (unasked := wanted.unasked) is not None:
            return unasked
        rules = access.policy.memory
        most = rules.long_max_tokens if wanted.is_long else rules.short_max_tokens
        language = language_of_utterances(wanted.source)
        answer = await self._answer(access, wanted.ask(most, language, access.policy.summary.temperature))
        return await asyncio.to_thread(wanted.read, answer, most, language, self.counter.count)

    async def compression(self, access: ModelAccess, content: str) -> str:
        """Ask for the one or two sentences that replace an item in the archive."""
        ask = ask_for_compression(content, access.policy.summary.temperature)
        return compression_of(await self._answer(access, ask, is_waited_for=True), content)

    async def _answer(self, access: ModelAccess, ask: Ask, *, is_waited_for: bool = False) -> str:
        hurry = asyncio.Event()
        if is_waited_for:
            hurry.set()
        caller = replace(access.caller, purpose="memory")
        with step(MEMORY, is_aside=True):
            answer = await self.foreground.run(lambda: self.asking.answer(caller, ask), caller.headers, hurry)
        return said_in(answer, self.asking.dialect)


def pieces_of(lines: Sequence[Utterance], counter: TokenCounter, most: int) -> list[Sequence[Utterance]]:
    """Split lines into pieces for one call each; return the newest ``most`` pieces, the oldest first."""
    pieces: list[Sequence[Utterance]] = []
    while lines and len(pieces) < most:
        pieces.append(newest(lines, counter.count) or lines[-1:])
        lines = lines[: -len(pieces[-1])]
    return pieces[::-1]
