"""Summaries from the upstream model: written in the background, found by what they cover, never in the way.

Each piece of a source is one call and is remembered under its content address, so a summary that was
interrupted goes on where it stopped, and the same cut is never paid for twice. A call carries the auth
headers of the request that caused it, in memory only, and nothing else of the client's.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.completion import Answer, read_completion
from proxy.core.policy_sections import Summary
from proxy.core.summary import Refused, Source, judge, request_body
from proxy.engine.foreground import Foreground
from proxy.engine.lru import Lru
from proxy.errors import StoreUnavailable, UnabridgedError
from proxy.ports import Clock, SessionKey, SessionStore, TokenCounter, Upstream
from proxy.telemetry import Metrics

_REMEMBERED = 4_096
_WRITING = 64
"""Summaries that may be on their way at once; beyond, gaps get notices."""
_ATTEMPTS = 3
"""How often a call may be cut off by users before it is left until the summary is needed again."""
QUIET = 1.0
"""Seconds without a user's request after which a summary that nobody waits for is begun."""
_FAULT_PAUSE, _REFUSED_PAUSE = 60.0, 3_600.0
"""Seconds after which a summary is tried again that a fault prevented, or that was no good."""
_ANSWER_BYTES = 2**20
_REFUSED_PARAMETERS = (400, 422)


@dataclass(frozen=True)
class Job:
    """One summary to be written."""

    address: str
    source: Source
    model: str
    rules: Summary
    max_tokens: int
    headers: Sequence[tuple[bytes, bytes]]
    """Of the call: the caller's credentials."""
    key: SessionKey
    ttl: float


class _Interrupted(Exception):  # noqa: N818 - no error: users came first, and it may be tried again
    """A call was cut off too often."""


class _Unanswered(Exception):  # noqa: N818 - no bad answer, which may be better a second time
    """The upstream did not answer a call with a completion; the message is the metric's label."""


class Summaries:
    """Writes summaries, at most one at a time for each address."""

    def __init__(
        self,
        upstream: Upstream,
        store: SessionStore,
        counter: TokenCounter,
        foreground: Foreground,
        clock: Clock,
        metrics: Metrics,
        quiet: float = QUIET,
    ) -> None:
        self._upstream = upstream
        self._quiet = quiet
        self._store = store
        self._counter = counter
        self._foreground = foreground
        self._clock = clock
        self._metrics = metrics
        self._texts: Lru[str, str] = Lru(_REMEMBERED)
        self._failed: Lru[str, float] = Lru(_REMEMBERED)
        """When what failed may be tried again, in monotonic seconds."""
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._hurry: dict[str, asyncio.Event] = {}
        self._plain: Lru[str, bool] = Lru(_REMEMBERED)
        """Models that refused schema or temperature."""

    def ready(self, address: str) -> str | None:
        """A summary that this process holds."""
        return self._texts.get(address)

    def has_failed(self, address: str) -> bool:
        """Whether it was tried, could not be had, and need not be tried again yet."""
        until = self._failed.get(address)
        return until is not None and self._clock.monotonic() < until

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

    def start(self, job: Job) -> None:
        """Begin to write in the background, unless it is done, being done, or has failed."""
        known = self.ready(job.address) is not None or self.has_failed(job.address)
        if known or job.address in self._writing or len(self._writing) >= _WRITING:
            return
        task = asyncio.create_task(self._write(job), name="summary")
        self._writing[job.address] = task
        self._hurry[job.address] = asyncio.Event()
        task.add_done_callback(lambda _: self._done(job.address))

    def _done(self, address: str) -> None:
        self._writing.pop(address, None)
        self._hurry.pop(address, None)

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

    async def _write(self, job: Job) -> None:
        try:
            texts = [await self._piece(job, number) for number in range(len(job.source.pieces))]
        except _Interrupted:
            self._metrics.summaries.labels(result="interrupted").inc()
            return
        except (Refused, _Unanswered) as refusal:
            self._fail(job, str(refusal), _REFUSED_PAUSE)
            return
        except TimeoutError:
            self._fail(job, "timeout", _FAULT_PAUSE)
            return
        except UnabridgedError:
            self._fail(job, "unreachable", _FAULT_PAUSE)
            return
        text = "\n".join(texts)
        self._texts.put(job.address, text)
        self._metrics.summaries.labels(result="written").inc()
        try:
            await self._store.keep_summary(job.key, job.address, text, job.ttl)
        except StoreUnavailable:
            return  # it is in this process, and in the note once an epoch begins

    def _fail(self, job: Job, reason: str, pause: float) -> None:
        self._failed.put(job.address, self._clock.monotonic() + pause)
        self._metrics.summaries.labels(result=reason).inc()

    async def _piece(self, job: Job, number: int) -> str:
        text = job.source.pieces[number].encode(errors="surrogatepass")
        address = f"{job.address}/{hashlib.sha256(text).hexdigest()}"
        found = self._texts.get(address)
        if found is None:
            try:
                found = await self._attempt(job, number)
            except Refused:
                if not job.rules.temperature:
                    raise  # it would say the same again
                found = await self._attempt(job, number)
            self._texts.put(address, found)
        return found

    async def _attempt(self, job: Job, number: int) -> str:
        """One summary of a piece, judged. Raises Refused, or _Interrupted where users came first."""
        hurry = self._hurry[job.address]
        answer = await self._foreground.when_idle(self._call_of(job, number), _ATTEMPTS, self._quiet, hurry)
        if answer is None:
            raise _Interrupted
        return judge(answer, job.source.tokens // len(job.source.pieces), self._counter.count)

    def _call_of(self, job: Job, number: int) -> Callable[[], Coroutine[Any, Any, Answer]]:
        async def call() -> Answer:
            async with asyncio.timeout(job.rules.timeout):
                return await self._ask(job, job.source.pieces[number])

        return call

    async def _ask(self, job: Job, piece: str) -> Answer:
        """One call, made once more in plain words where the model refuses a parameter."""
        plain = bool(self._plain.get(job.model))
        limit = max(job.max_tokens // len(job.source.pieces), 1)
        body = request_body(piece, job.model, limit, job.rules.temperature, job.rules.prompt, plain=plain)
        status, content = await self._post(job, body)
        if status in _REFUSED_PARAMETERS and not plain:
            self._plain.put(job.model, value=True)
            return await self._ask(job, piece)
        if status != 200:
            raise _Unanswered("refused")
        return read_completion(content)

    async def _post(self, job: Job, body: bytes) -> tuple[int, bytes]:
        headers = [*job.headers, (b"content-type", b"application/json")]
        response = await self._upstream.send("POST", "/chat/completions", headers, body)
        content = bytearray()
        try:
            async for chunk in response.chunks():
                content += chunk
                if len(content) > _ANSWER_BYTES:
                    raise _Unanswered("too_long")
        finally:
            await response.aclose()
        return response.status, bytes(content)
