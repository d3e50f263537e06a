"""Letting a compactor work: it gets the units, their times and the means to ask, and its text is judged."""

import asyncio
from collections.abc import Awaitable

from proxy.core.compaction import dated
from proxy.core.messages import Content
from proxy.core.source import Source
from proxy.core.summary import Ask, Refused, judge, text_of
from proxy.engine.asking import Asking, Unanswered
from proxy.engine.compactors import Compaction, Context
from proxy.engine.job import Job
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import SessionStore, TokenCounter
from proxy.telemetry import log_fault

_MOST_ASKS = 8
"""Calls that one compaction may make."""
_TIMEOUTS = 2
"""How many timeouts of one call a compaction may take."""


class Compacting:
    """Runs compactors."""

    def __init__(self, asking: Asking, store: SessionStore, counter: TokenCounter) -> None:
        self._asking = asking
        self._store = store
        self._counter = counter

    async def text(self, job: Job, compaction: Compaction) -> str | None:
        """What stands in the gap's place; None where the compactor fails, or its text will not do.

        Raises Unanswered, TimeoutError and UnabridgedError where it is the upstream that failed.
        """
        units = dated(compaction.units, await self._arrivals(job, compaction))
        context = await self._context(job, compaction)
        try:
            async with asyncio.timeout(_TIMEOUTS * job.caller.timeout):
                said = await compaction.compactor.compact(units, context)
                text = await asyncio.to_thread(self._judge, job.source, said.strip())
        except (Unanswered, TimeoutError, UnabridgedError):
            raise
        except Refused:
            return None
        except Exception as error:  # noqa: BLE001 - foreign code; the built-in summary does it
            log_fault("a compactor failed", error)
            return None
        return text if self._counter.count(text) <= job.max_tokens else None

    def _judge(self, source: Source, said: str) -> str:
        return judge(said, source.whole.evidence(), self._counter.count)

    async def _context(self, job: Job, compaction: Compaction) -> Context:
        return Context(
            task_goal=compaction.goal,
            progress_summary=compaction.progress,
            system_context=await self._system(job),
            language=job.source.language,
            max_tokens=job.max_tokens,
            room=job.room,
            count=self._counter.count,
            ask=_Asker(self._asking, job),
        )

    async def _system(self, job: Job) -> str:
        """The leading system messages, as the session's newest recorded turn has them."""
        try:
            session = await self._store.session(job.key)
        except StoreUnavailable:
            return ""
        return "\n\n".join(Content.of(raw).text for raw in session.head) if session else ""

    async def _arrivals(self, job: Job, compaction: Compaction) -> dict[int, float]:
        """When the units' messages arrived, by number, of those that are recorded."""
        try:
            nodes = await self._store.nodes(job.key)
        except StoreUnavailable:
            return {}
        known = ((number, nodes.get(each)) for number, each in compaction.hashes.items())
        return {number: node.at for number, node in known if node is not None}


class _Asker:
    """The model, for one compaction; credentials stay inside."""

    def __init__(self, asking: Asking, job: Job) -> None:
        self.__asking = asking
        self.__job = job
        self.__left = _MOST_ASKS

    def __call__(self, task: str, text: str, *, max_tokens: int, temperature: float) -> Awaitable[str]:
        return self.__answer(Ask(task, text, max_tokens, temperature))

    async def __answer(self, ask: Ask) -> str:
        self.__left -= 1
        if self.__left < 0:
            raise Refused("too_many_calls")
        return text_of(await self.__asking.answer(self.__job.caller, ask))
