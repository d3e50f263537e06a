"""Compactors: custom rules for the text in place of a gap, tried before the built-in summary.

`[[compactors]]` names them in order, and the first that can takes the gap. Those of other distributions are
found by the entry-point group `unabridged.compactors`; they need not import anything from this one.
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
            log_fault("a compactor failed", error)
    return None


# --- one summary to be written ---


class Job(msgspec.Struct, frozen=True):
    """One summary to be written."""

    address: str
    session: str
    """The session's id for operators."""
    terms: str
    """The address of the terms (with the tenant), from which the pieces' addresses are derived."""
    source: Source
    caller: Caller
    rules: Summary
    max_tokens: int
    key: SessionKey
    ttl: float
    room: int
    """Counted tokens that a call may have for its prompt."""
    rebuilds: bool = False
    """Whether earlier summaries are rewritten from their original messages; their pieces are reused."""
    compaction: Compaction | None = None
    record: RunningSummary | None = None
    """The text that the strategy writes of the gap itself; only its long parts are shortened."""
    cached: CachedQuestion | None = None
    """The question to try first, where the provider has cached the messages that it follows."""

    @property
    def limit(self) -> Limit:
        """The limit of the whole summary."""
        return Limit(self.max_tokens, self.rules.max_characters)

    @property
    def piece_limit(self) -> Limit:
        """The limit of one piece's summary: an even share of the tokens.

        In a rebuild it is the whole limit, because the model joins the pieces later.
        """
        tokens, most = self.max_tokens, self.rules.max_characters
        if not self.rebuilds:
            tokens = max(tokens // max(len(self.source.pieces), 1), 1)
        return Limit(tokens, most and max(most * tokens // self.max_tokens, 1))

    @property
    def is_one_call(self) -> bool:
        """Whether it has a single piece, which is stored under the summary's own address."""
        return len(self.source.pieces) == 1 and self.record is None

    def address_of(self, piece: Piece, limit: Limit) -> str:
        """Return the address of a piece's summary: by content, so that no piece is paid for twice."""
        if self.is_one_call:
            return self.address
        most = f"{limit.bytes} bytes" if limit.bytes else f"{limit.tokens}"
        content = f"{self.terms}\0{most}\0{piece.text}".encode(errors="surrogatepass")
        return hashlib.sha256(content).hexdigest()[:40]


# --- running a compactor ---


_MOST_ASKS = 8
"""Most calls of the model in one compaction."""
_TIMEOUTS = 2
"""Time limit of a compaction, in timeouts of one call."""


class Compacting:
    """Runs compactors."""

    def __init__(self, asking: Asking, store: SummaryStore, counter: TokenCounter) -> None:
        self._asking = asking
        self._store = store
        self._counter = counter

    async def text(self, job: Job, compaction: Compaction) -> str | None:
        """Return the text in the gap's place; None where the compactor fails, or its text is unusable.

        Raises Unanswered, TimeoutError and UnabridgedError if it is the upstream that failed.
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
        """Return a compactor's input: the units, dated by the arrival of their messages, and the context.

        The system messages are those of the session's newest recorded turn. If the store is away, there are
        none, and no dates.
        """
        arrivals, system = dict[int, float](), ""
        with suppress(StoreUnavailable):
            nodes = await self._store.nodes(job.key)
            recorded = ((number, nodes.get(each)) for number, each in compaction.hashes.items())
            arrivals = {number: node.at for number, node in recorded if node is not None}
            session = await self._store.session(job.key)
            head = session.head if session else ()
            system = "\n\n".join(self._asking.dialect.read(raw).text for raw in head)
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
        """Return the function that asks the model for one compaction; it does not expose credentials."""
        left = _MOST_ASKS

        async def ask(task: str, text: str, *, max_tokens: int, temperature: float) -> str:
            nonlocal left
            left -= 1
            if left < 0:
                raise Refused("too_many_calls")
            answer = await self._asking.answer(job.caller, Ask(task, text, max_tokens, temperature))
            return text_of(answer, self._asking.dialect)

        return ask
