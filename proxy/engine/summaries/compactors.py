"""Compactors: rules of their own for what stands in place of a gap, before the built-in summary.

`[[compactors]]` names them in order, and the first that can takes the gap. Those of other distributions are
found by the entry-point group `unabridged.compactors`; they need to import nothing of this one.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from proxy.core.dialects.answers import Ask
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.policy.sections import Compactor as Named
from proxy.core.policy.sections import Summary
from proxy.core.policy.values import COMPACTORS
from proxy.core.summaries.compaction import GapUnit, ask_for_report, dated, is_working_flow, report_in
from proxy.core.summaries.prompt import LANGUAGES, Limit, Refused, judge, text_of
from proxy.core.summaries.source import Piece, Source
from proxy.engine.models.asking import Asking, Caller, Unanswered
from proxy.engine.summaries.cached_view import CachedQuestion
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import SessionKey, SummaryStore, TokenCounter
from proxy.telemetry import log_fault


class AskModel(Protocol):
    """Asks the conversation's model, with the caller's credentials, for at most ``max_tokens``."""

    def __call__(self, task: str, text: str, *, max_tokens: int, temperature: float) -> Awaitable[str]: ...


@dataclass(frozen=True)
class Context:
    """All that a compactor gets beside the units."""

    task_goal: str
    """The conversation's first user message."""
    progress_summary: str
    """What earlier summaries say of the same gap; the new text takes their place too."""
    system_context: str
    """The leading system messages, as far as they are kept."""
    language: str
    """Of the conversation: `en`, `de`, `fr`, `es`, `ja` or `zh`."""
    max_tokens: int
    room: int
    """Counted tokens that a prompt may have."""
    count: Callable[[str], int]
    ask: AskModel


class Compactor(Protocol):
    """What a compactor must have."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether it is made for these units; quick, and without side effects."""
        ...

    async def compact(self, units: Sequence[GapUnit], context: Context) -> str:
        """The text in their place. What it raises leaves the gap to the built-in summary."""
        ...


@dataclass(frozen=True)
class Compaction:
    """A gap that a compactor has taken."""

    compactor: Compactor
    units: tuple[GapUnit, ...]
    hashes: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    """Chain hashes of the units' messages, by number."""
    goal: str = ""
    progress: str = ""


class WorkingFlow:
    """An agent's working steps as a report of progress (:mod:`proxy.core.summaries.compaction`)."""

    def can_compact(self, units: Sequence[GapUnit]) -> bool:
        """Whether these are mostly working steps."""
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


BUILT_IN: Mapping[str, Compactor] = {"working_flow": WorkingFlow()}


def first_for(named: Sequence[Named], units: Sequence[GapUnit]) -> Compactor | None:
    """The first of the compactors that a policy names that can compact these units."""
    for each in named:
        compactor = BUILT_IN.get(each.name) or COMPACTORS[each.name]
        try:
            if units and compactor.can_compact(units):
                return compactor
        except Exception as error:  # noqa: BLE001 - foreign code; the next compactor, or the summary, does it
            log_fault("a compactor failed", error)
    return None


# --- one summary to be written ---


class Job(msgspec.Struct, frozen=True):
    """One summary to be written."""

    address: str
    session: str
    """By what operators know the session."""
    terms: str
    """What its pieces' addresses are derived from: the tenant's, and equal where the terms are equal."""
    source: Source
    caller: Caller
    rules: Summary
    max_tokens: int
    key: SessionKey
    ttl: float
    room: int
    """Counted tokens that a call may have for its prompt."""
    rebuilds: bool = False
    """Whether it is made from the originals of what has been summarised before; its pieces are reused."""
    compaction: Compaction | None = None
    record: RunningSummary | None = None
    """What the strategy writes itself of the gap: only what is long in it is shortened."""
    cached: CachedQuestion | None = None
    """How it is asked for first, where the provider has kept what it needs for that."""

    @property
    def limit(self) -> Limit:
        """How long all of it may be."""
        return Limit(self.max_tokens, self.rules.max_characters)

    @property
    def piece_limit(self) -> Limit:
        """Of the summary of one piece an even part; those of a rebuild are put together by the model."""
        tokens, most = self.max_tokens, self.rules.max_characters
        if not self.rebuilds:
            tokens = max(tokens // max(len(self.source.pieces), 1), 1)
        return Limit(tokens, most and max(most * tokens // self.max_tokens, 1))

    @property
    def is_one_call(self) -> bool:
        """Whether its only piece is all of it, kept under its own address."""
        return len(self.source.pieces) == 1 and self.record is None

    def address_of(self, piece: Piece, limit: Limit) -> str:
        """Where a piece's summary is kept: by its content, so that no piece is paid for twice."""
        if self.is_one_call:
            return self.address
        most = f"{limit.bytes} bytes" if limit.bytes else f"{limit.tokens}"
        content = f"{self.terms}\0{most}\0{piece.text}".encode(errors="surrogatepass")
        return hashlib.sha256(content).hexdigest()[:40]


# --- letting a compactor work ---


_MOST_ASKS = 8
"""Calls that one compaction may make."""
_TIMEOUTS = 2
"""How many timeouts of one call a compaction may take."""


class Compacting:
    """Runs compactors."""

    def __init__(self, asking: Asking, store: SummaryStore, counter: TokenCounter) -> None:
        self._asking = asking
        self._store = store
        self._counter = counter

    async def text(self, job: Job, compaction: Compaction) -> str | None:
        """What stands in the gap's place; None where the compactor fails, or its text will not do.

        Raises Unanswered, TimeoutError and UnabridgedError where it is the upstream that failed.
        """
        units, context = await self._given(job, compaction)
        try:
            async with asyncio.timeout(_TIMEOUTS * job.caller.timeout):
                made = (await compaction.compactor.compact(units, context)).strip()
                evidence, count = job.source.whole.evidence, self._counter.count
                return await asyncio.to_thread(lambda: judge(made, job.limit, evidence(), count))
        except (Unanswered, TimeoutError, UnabridgedError):
            raise
        except Refused:
            return None
        except Exception as error:  # noqa: BLE001 - foreign code; the built-in summary does it
            log_fault("a compactor failed", error)
            return None

    async def _given(self, job: Job, compaction: Compaction) -> tuple[Sequence[GapUnit], Context]:
        """What a compactor is given: the units, dated by when their messages arrived, and what is around.

        The system messages are those of the session's newest recorded turn. Where the store is away, there
        are none, and no dates.
        """
        arrivals, system = dict[int, float](), ""
        with suppress(StoreUnavailable):
            nodes = await self._store.nodes(job.key)
            recorded = ((number, nodes.get(each)) for number, each in compaction.hashes.items())
            arrivals = {number: node.at for number, node in recorded if node is not None}
            session = await self._store.session(job.key)
            head = session.head if session else ()
            system = "\n\n".join(self._asking.wire.read(raw).text for raw in head)
        context = Context(
            task_goal=compaction.goal,
            progress_summary=compaction.progress,
            system_context=system,
            language=job.source.language,
            max_tokens=job.max_tokens,
            room=job.room,
            count=self._counter.count,
            ask=self._ask(job),
        )
        return dated(compaction.units, arrivals), context

    def _ask(self, job: Job) -> AskModel:
        """Asks the model for one compaction; credentials stay inside."""
        left = _MOST_ASKS

        async def ask(task: str, text: str, *, max_tokens: int, temperature: float) -> str:
            nonlocal left
            left -= 1
            if left < 0:
                raise Refused("too_many_calls")
            answer = await self._asking.answer(job.caller, Ask(task, text, max_tokens, temperature))
            return text_of(answer, self._asking.wire)

        return ask
