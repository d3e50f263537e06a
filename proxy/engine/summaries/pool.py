"""Summaries from the upstream model: written in the background, found by what they cover.

:mod:`proxy.engine.summaries.writer` writes one summary; this module knows which are being written, which are
ready and which have failed. Nothing waits for one longer than it was told to.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from proxy.cache import CacheMemory, Lru
from proxy.core.planning.plan import Plan, Span
from proxy.core.summaries.prompt import Refused
from proxy.engine.foreground import Foreground
from proxy.engine.models.asking import Unanswered
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.job import Job
from proxy.engine.summaries.writer import Writer
from proxy.errors import UnabridgedError
from proxy.ports import Clock, SessionKey, SummaryStore, TokenCounter
from proxy.telemetry import Metrics, log_error, log_fault
from proxy.tracing import SUMMARY, step

_WRITING = 64
"""Most summaries being written at once; beyond that, the oldest that nobody waits for is cancelled."""
_FAULT_PAUSE, _REFUSED_PAUSE = 60.0, 3_600.0
"""Seconds until a summary is tried again after a fault, and after an unusable answer."""


class _Failure(NamedTuple):
    """Why a summary could not be written."""

    until: float
    """When it may be tried again, in monotonic seconds."""
    reason: str


class _Writing(NamedTuple):
    task: asyncio.Task[None]
    hurry: asyncio.Event
    """Set once a request waits for the summary."""


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
        memory: CacheMemory,
    ) -> None:
        self._prompt_cache = prompt_cache
        self._clock = clock
        self._metrics = metrics
        self._writer = Writer(prompt_cache, store, counter, foreground, metrics, memory)
        self._texts = self._writer.texts
        self._failed: Lru[str, _Failure] = Lru(memory)
        self._writing: dict[str, _Writing] = {}

    async def recall(self, key: SessionKey, addresses: Collection[str]) -> dict[str, str]:
        """Return those of these summaries that some worker has written before, by address."""
        return await self._writer.recall(key, addresses)

    def ready(self, address: str) -> str | None:
        return self._texts.get(address)

    def is_writing(self, address: str) -> bool:
        return address in self._writing

    def has_failed(self, address: str) -> bool:
        """Whether the summary has failed and is not to be tried again yet."""
        failure = self._failed.get(address)
        return failure is not None and self._clock.monotonic() < failure.until

    def failure(self, address: str) -> str | None:
        """Return why the summary's last try failed, as in the metric; None if it did not fail."""
        failure = self._failed.get(address)
        return None if failure is None or self.is_writing(address) else failure.reason

    def may_start(self, address: str) -> bool:
        """Whether the summary is neither ready nor being written, and may be tried (again)."""
        is_known = self.ready(address) is not None or self.is_writing(address)
        return not is_known and not self.has_failed(address)

    def start(self, address: str, job: Callable[[], Job | None]) -> None:
        """Start writing in the background, unless it is done, being done, or has failed.

        ``job`` is called in a thread, since it reads the whole gap; it returns None if nothing is to be
        written.
        """
        if not self.may_start(address):
            return
        if len(self._writing) >= _WRITING:
            # Where users never pause, summaries that wait for a pause would hold every place for good.
            oldest = next(
                (each for each, writing in self._writing.items() if not writing.hurry.is_set()), None
            )
            if oldest is None:
                return
            self._writing.pop(oldest).task.cancel()
        hurry = asyncio.Event()
        task = asyncio.create_task(self._write(job, hurry), name="summary")
        self._writing[address] = _Writing(task, hurry)

        def done(ended: asyncio.Task[None]) -> None:
            writing = self._writing.get(address)
            if writing is not None and writing.task is ended:
                del self._writing[address]
            fault = None if ended.cancelled() else ended.exception()
            if fault is not None:
                log_fault("writing a summary failed", fault)

        task.add_done_callback(done)

    async def wait(self, addresses: Iterable[str], seconds: float) -> None:
        """Wait until these are written or have failed, or the time is over; writing goes on after that."""
        writing = [self._writing[address] for address in addresses if address in self._writing]
        for each in writing:
            each.hurry.set()
        if writing and seconds > 0:
            await asyncio.wait([each.task for each in writing], timeout=seconds)

    async def aclose(self) -> None:
        tasks = [each.task for each in self._writing.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, prepare: Callable[[], Job | None], hurry: asyncio.Event) -> None:
        job = await asyncio.to_thread(prepare)
        del prepare  # it refers to the whole request
        if job is None:
            return
        if job.cached is not None:  # while it waits, the question is kept as far as memory allows
            self._prompt_cache.put(job.address, job.cached)
            job = replace(job, cached=None)
        try:
            with step(SUMMARY, is_aside=True):
                await self._writer.write(job, hurry)
        except Refused as refusal:
            self._fail(job, str(refusal), _REFUSED_PAUSE)
        except Unanswered as refusal:
            self._fail(job, str(refusal), _FAULT_PAUSE if refusal.is_transient else _REFUSED_PAUSE)
        except TimeoutError:
            self._fail(job, "timeout", _FAULT_PAUSE)
        except UnabridgedError:
            self._fail(job, "unreachable", _FAULT_PAUSE)
        else:
            self._metrics.summaries.labels(result="rebuilt" if job.rebuilds else "written").inc()
        finally:
            self._prompt_cache.drop(job.address)

    def _fail(self, job: Job, reason: str, pause: float) -> None:
        self._failed.put(job.address, _Failure(self._clock.monotonic() + pause, reason))
        self._metrics.summaries.labels(result=reason).inc()
        self._prompt_cache.asking.accounts.failed(job.caller, reason)
        log_error("a summary failed", session=job.session, reason=reason)


class GapSummaries(NamedTuple):
    """The summaries of some gaps: which are ready, which are being written, which have failed."""

    summaries: Summaries
    addresses: Mapping[Span, str]
    job: Callable[[Span], Job]
    """Makes the job for a gap, which reads it."""

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(self.addresses)

    @property
    def under_way(self) -> list[Span]:
        """The gaps whose summary is being written."""
        return [span for span, address in self.addresses.items() if self.summaries.is_writing(address)]

    def start_missing(self) -> bool:
        """Start those that are not ready and have not failed; return whether any is still missing."""
        missing = self.addresses.keys() - self.texts().keys()
        for span in sorted(missing):
            self.summaries.start(self.addresses[span], partial(self.job, span))
        return bool(missing)

    async def wait(self, seconds: float) -> None:
        """Wait for the summaries being written, at most so many seconds."""
        await self.summaries.wait(self.addresses.values(), seconds)

    def texts(self) -> dict[Span, str | None]:
        """Return the settled gaps: with their text, or None where there will be none."""
        ready, has_failed = self.summaries.ready, self.summaries.has_failed
        found = ((span, ready(address), address) for span, address in self.addresses.items())
        return {span: text for span, text, address in found if text is not None or has_failed(address)}

    def outcome(self, plan: Plan, *, waited: bool) -> str:
        """Return the value of the summary header for the plan that was made."""
        texts = self.texts()
        if any(texts.get(span) is None for span in self.addresses if waited or span in texts):
            return "failed"
        if waited:
            return "waited"
        return "ready" if plan.anchors else "none"
