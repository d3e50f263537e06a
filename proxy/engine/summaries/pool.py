"""Summaries from the upstream model: written in the background, found by what they cover, never in the way.

How one is written is next door (:mod:`proxy.engine.summaries.writer`); here is which are on their way, which
are there and which could not be had. Nothing waits for one longer than it was told to.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from proxy.cache import Lru, Memory
from proxy.core.summaries.prompt import Refused
from proxy.engine.foreground import Foreground
from proxy.engine.models.asking import Unanswered
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.compactors import Job
from proxy.engine.summaries.writer import Writer
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import Clock, SessionKey, SummaryStore, TokenCounter
from proxy.telemetry import Metrics, log_error, log_fault
from proxy.tracing import SUMMARY, step

_WRITING = 64
"""Summaries that may be on their way at once; beyond, the oldest that nobody waits for gives way."""
_FAULT_PAUSE, _REFUSED_PAUSE = 60.0, 3_600.0
"""Seconds after which a summary is tried again that a fault prevented, or that was no good."""


class _Failure(NamedTuple):
    """Why a summary could not be had."""

    until: float
    """When it may be tried again, in monotonic seconds."""
    reason: str


class Summaries:
    """Has summaries written, at most one at a time for each address."""

    def __init__(
        self,
        prompt_cache: PromptCache,
        store: SummaryStore,
        counter: TokenCounter,
        foreground: Foreground,
        clock: Clock,
        metrics: Metrics,
        memory: Memory,
    ) -> None:
        self._accounts = prompt_cache.asking.accounts
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._writer = Writer(prompt_cache, store, counter, foreground, metrics, memory)
        self._texts = self._writer.texts
        self._failed: Lru[str, _Failure] = Lru(memory)
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._hurry: dict[str, asyncio.Event] = {}

    def ready(self, address: str) -> str | None:
        """A summary that this process holds."""
        return self._texts.get(address)

    def is_writing(self, address: str) -> bool:
        """Whether it is on its way."""
        return address in self._writing

    def has_failed(self, address: str) -> bool:
        """Whether it was tried, could not be had, and need not be tried again yet."""
        failure = self._failed.get(address)
        return failure is not None and self._clock.monotonic() < failure.until

    def failure(self, address: str) -> str | None:
        """Why it could not be had when it was tried last, as the metric has it; None where it could."""
        failure = self._failed.get(address)
        return None if failure is None or self.is_writing(address) else failure.reason

    def may_start(self, address: str) -> bool:
        """Whether it is neither there nor on its way, and may be tried, if need be again."""
        is_known = self.ready(address) is not None or self.is_writing(address)
        return not is_known and not self.has_failed(address)

    async def recall(self, key: SessionKey, addresses: Sequence[str]) -> None:
        """Fetch what other workers, or an earlier life of this one, have written."""
        missing = [address for address in addresses if self._texts.get(address) is None]
        if not missing:
            return
        try:
            for address, text in (await self._store.summaries(key, missing)).items():
                self._texts.put(address, text)
        except StoreUnavailable:
            return  # then they are written anew, or the gap gets its notice

    def start(self, address: str, job: Callable[[], Job | None]) -> None:
        """Begin to write in the background, unless it is done, being done, or has failed.

        ``job`` is called in a thread, since it reads the whole gap; None where it is not to be written.
        """
        if not (self.may_start(address) and self._has_place()):
            return
        hurry = self._hurry[address] = asyncio.Event()
        task = asyncio.create_task(self._write(address, job, hurry), name="summary")
        self._writing[address] = task
        task.add_done_callback(lambda done: self._done(address, done))

    def _has_place(self) -> bool:
        """Whether one more may be written, once the oldest that nobody waits for has given way if need be.

        Where users never pause, those that wait for a pause would hold every place for good.
        """
        if len(self._writing) < _WRITING:
            return True
        oldest = next((each for each, hurry in self._hurry.items() if not hurry.is_set()), None)
        if oldest is None:
            return False
        self._hurry.pop(oldest)
        self._writing.pop(oldest).cancel()
        return True

    def _done(self, address: str, task: asyncio.Task[None]) -> None:
        if self._writing.get(address) is task:
            del self._writing[address], self._hurry[address]
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            log_fault("writing a summary failed", fault)

    async def wait(self, addresses: Iterable[str], seconds: float) -> None:
        """Wait until these are written, or have failed, or the time is over; writing goes on after that."""
        writing = [address for address in addresses if address in self._writing]
        for address in writing:
            self._hurry[address].set()
        tasks = [self._writing[address] for address in writing]
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)

    async def aclose(self) -> None:
        """Stop writing."""
        tasks = list(self._writing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, address: str, prepare: Callable[[], Job | None], hurry: asyncio.Event) -> None:
        job = await asyncio.to_thread(prepare)
        del prepare  # it has the whole request
        if job is None:
            return
        job = self._writer.accepted(job)
        try:
            with step(SUMMARY, is_aside=True):
                await self._writer.write(job, hurry)
        except Refused as refusal:
            self._fail(job, str(refusal), _REFUSED_PAUSE)
        except Unanswered as refusal:
            self._fail(job, str(refusal), _FAULT_PAUSE if refusal.is_passing else _REFUSED_PAUSE)
        except TimeoutError:
            self._fail(job, "timeout", _FAULT_PAUSE)
        except UnabridgedError:
            self._fail(job, "unreachable", _FAULT_PAUSE)
        else:
            self._metrics.summaries.labels(result="rebuilt" if job.rebuilds else "written").inc()
        finally:
            self._writer.let_go(job)

    def _fail(self, job: Job, reason: str, pause: float) -> None:
        self._failed.put(job.address, _Failure(self._clock.monotonic() + pause, reason))
        self._metrics.summaries.labels(result=reason).inc()
        self._accounts.failed(job.caller, reason)
        log_error("a summary failed", session=job.session, reason=reason)
