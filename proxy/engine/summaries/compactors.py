"""Compactors: custom rules for the text in place of a gap, tried before the built-in summary.

`[[compactors]]` names them in order, and the first that can takes the gap. Those of other distributions are
found by the entry-point group `unabridged.compactors`; they need not import anything from this one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from proxy.core.dialects.answers import Ask
from proxy.core.policy.sections import Compactor as Named
from proxy.core.policy.values import COMPACTORS
from proxy.core.summaries.compaction import (
    GapUnit,
    ask_for_report,
    dated,
    given_to,
    is_working_flow,
    report_in,
)
from proxy.core.summaries.prompt import LANGUAGES, Refused, judge, text_of
from proxy.engine.background import is_being_cancelled
from proxy.engine.models.asking import ModelClient, Unanswered
from proxy.engine.summaries.job import Job
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import SummaryStore, TokenCounter
from proxy.telemetry import log_fault


class AskModel(Protocol):
    """Asks the conversation's model, with the caller's credentials, for at most ``max_tokens``."""

    def __call__(self, task: str, text: str, *, max_tokens: int, temperature: float) -> Awaitable[str]: ...


@dataclass(frozen=True)
class Context:
    """The context that a compactor gets beside the units."""

    task_goal: str
    """The conversation's first user message."""
    progress_summary: str
    """Earlier summaries of the same gap; the new text replaces them too."""
    system_context: str
    """The leading system messages, as far as they are stored."""
    language: str
    """The conversation's language: `en`, `de`, `fr`, `es`, `ja` or `zh`."""
    max_tokens: int
    room: int
    """Counted tokens that a prompt may have."""
    count: Callable[[str], int]
    ask: AskModel


class Compactor(Protocol):
    """The interface of a compactor."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether it can compact these units; must be quick and without side effects."""
        ...

    async def compact(self, units: Sequence[GapUnit], context: Context) -> str:
        """Return the text in place of the units. If it raises, the built-in summary is used."""
        ...


class CompactorJob(Job, frozen=True, kw_only=True):
    """The job for a gap that a compactor has taken; if its text is unusable, the summary is written."""

    compactor: Compactor
    units: tuple[GapUnit, ...]
    hashes: Mapping[int, bytes] = {}
    """Chain hashes of the units' messages, by number."""
    goal: str = ""
    progress: str = ""


class WorkingFlow:
    """An agent's working steps as a report of progress (:mod:`proxy.core.summaries.compaction`)."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether the units are mostly working steps."""
        return is_working_flow(units)

    async def compact(self, units: Sequence[GapUnit], context: Context) -> str:
        about = {
            "task_goal": context.task_goal,
            "progress_summary": context.progress_summary,
            "system_context": context.system_context,
        }
        language, most = LANGUAGES[context.language], context.max_tokens
        ask = ask_for_report(units, about, language, most, context.room, context.count)
        report = await context.ask(ask.task, ask.text, max_tokens=ask.max_tokens, temperature=ask.temperature)
        return report_in(report)


_BUILT_IN: Mapping[str, Compactor] = {"working_flow": WorkingFlow()}


def first_for(named: Sequence[Named], units: Sequence[GapUnit]) -> Compactor | None:
    """Return the first of the policy's compactors that can compact these units."""
    for each in named:
        compactor = _BUILT_IN.get(each.name) or COMPACTORS[each.name]
        try:
            if units and compactor.can_compact(units):
                return compactor
        except Exception as error:  # noqa: BLE001 - foreign code; the next compactor, or the summary, does it
            log_fault(f"the compactor {each.name} failed", error)
    return None


# --- running a compactor ---


_MOST_ASKS = 8
"""Most calls of the model in one compaction."""
_TIMEOUTS = 2
"""Time limit of a compaction, in timeouts of one call."""


class Compacting:
    """Runs compactors."""

    def __init__(self, asking: ModelClient, store: SummaryStore, counter: TokenCounter) -> None:
        self._asking = asking
        self._store = store
        self._counter = counter

    async def text(self, job: CompactorJob) -> str | None:
        """Return the text in the gap's place; None where the compactor fails, or its text is unusable.

        Raises Unanswered, TimeoutError and UnabridgedError if it is the upstream that failed.
        """
        failures = list[Exception]()
        units, context = await self._given(job, failures)
        try:
            async with asyncio.timeout(_TIMEOUTS * job.caller.timeout):
                made = (await job.compactor.compact(units, context)).strip()
                given = given_to(units, context.task_goal, context.progress_summary, context.system_context)
                limit, count = job.limit, self._counter.count
                return await asyncio.to_thread(lambda: judge(made, limit, given.evidence(), count))
        except Refused:
            return None
        except (Exception, asyncio.CancelledError) as error:  # foreign code; the built-in summary does it
            if error in failures or is_being_cancelled():
                raise
            log_fault(f"the compactor {type(job.compactor).__name__} failed", error)
            return None

    async def _given(self, job: CompactorJob, failures: list[Exception]) -> tuple[Sequence[GapUnit], Context]:
        """Return a compactor's input: the units, dated by the arrival of their messages, and the context.

        The system messages are those of the session's newest recorded turn. If the store is away, there are
        none, and no dates. The function that asks the model exposes no credentials; what the upstream fails
        with is added to ``failures``.
        """
        arrivals, system, left = dict[int, float](), "", _MOST_ASKS
        with suppress(StoreUnavailable):
            nodes = await self._store.nodes(job.key)
            recorded = ((number, nodes.get(each)) for number, each in job.hashes.items())
            arrivals = {number: node.at for number, node in recorded if node is not None}
            session = await self._store.session(job.key)
            head = session.head if session else ()
            system = "\n\n".join(self._asking.dialect.read(raw).text for raw in head)

        async def ask(task: str, text: str, *, max_tokens: int, temperature: float) -> str:
            nonlocal left
            left -= 1
            if left < 0:
                raise Refused("too_many_calls")
            try:
                answer = await self._asking.answer(job.caller, Ask(task, text, max_tokens, temperature))
            except (Unanswered, TimeoutError, UnabridgedError) as error:
                failures.append(error)
                raise
            return text_of(answer, self._asking.dialect)

        context = Context(
            task_goal=job.goal,
            progress_summary=job.progress,
            system_context=system,
            language=job.source.language,
            max_tokens=job.max_tokens,
            room=job.room,
            count=self._counter.count,
            ask=ask,
        )
        return dated(job.units, arrivals), context
