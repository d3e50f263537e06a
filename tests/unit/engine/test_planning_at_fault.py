"""Law 7: a fault of the proxy's own costs the pruning, never the answer."""

from collections.abc import AsyncIterator, Sequence

from proxy.adapters.memory import MemoryStore
from proxy.adapters.sqlite_search import SqliteSearch
from proxy.app import SystemClock
from proxy.core.policy import Policy
from proxy.core.prices import UNKNOWN_PRICES
from proxy.engine.background import Background
from proxy.engine.bodies import Bodies
from proxy.engine.deciding import Decisions
from proxy.engine.embeddings import Embeddings
from proxy.engine.envelope import read_envelope
from proxy.engine.epochs import Epochs
from proxy.engine.exchange import Incoming
from proxy.engine.extras import Extras
from proxy.engine.foreground import Foreground
from proxy.engine.history import Reader
from proxy.engine.injections import Injections
from proxy.engine.models import Models
from proxy.engine.naming import Naming
from proxy.engine.pins import Pins
from proxy.engine.recall import Recall
from proxy.engine.recognition import Recognition
from proxy.engine.request import Engine
from proxy.engine.summaries import Summaries
from proxy.engine.summary_jobs import SummaryJobs
from proxy.engine.tools import Tools
from proxy.engine.warmth import Warmth
from proxy.errors import UpstreamUnreachable
from proxy.lru import Memory
from proxy.ports import UpstreamResponse
from proxy.telemetry import Metrics

BODY = (
    b'{"model": "gpt-4o", "messages": ['
    + b",".join(
        b'{"role": "user", "content": "%b"}, {"role": "assistant", "content": "%b"}'
        % (b"word " * 40, b"word " * 40)
        for _ in range(20)
    )
    + b', {"role": "user", "content": "and now?"}]}'
)


class NoUpstream:
    """Nobody is there."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> UpstreamResponse:
        raise UpstreamUnreachable

    async def aclose(self) -> None:
        """Nothing is open."""


class BrokenCounter:
    """Counts requests well, and breaks down when a note is to be counted."""

    def count(self, text: str) -> int:
        raise RuntimeError(f"cannot count {len(text)} characters")

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 + 1 for text in texts]

    async def ready(self) -> None:
        """Nothing is loaded."""


def engine() -> Engine:
    clock, metrics, store, upstream = SystemClock(), Metrics(), MemoryStore(SystemClock()), NoUpstream()
    counter, naming, foreground = BrokenCounter(), Naming("secret", Memory()), Foreground()
    summaries = Summaries(upstream, store, counter, foreground, clock, metrics, Memory())
    models = Models(upstream, lambda _: 128_000, clock, Memory())
    reader, recognition = Reader(counter, Memory()), Recognition(store, naming, Memory())
    decisions = Decisions(
        reader=reader,
        models=models,
        recognition=recognition,
        epochs=Epochs(store, SummaryJobs(summaries, naming, Memory()), counter, clock, metrics, Memory()),
        recall=Recall(SqliteSearch(), counter, Embeddings(upstream, Memory()), metrics, Memory()),
    )
    return Engine(
        upstream=upstream,
        bodies=Bodies(Memory()),
        reader=reader,
        models=models,
        recognition=recognition,
        decisions=decisions,
        pins=Pins(store, Memory()),
        injections=Injections(store, Memory()),
        naming=naming,
        foreground=foreground,
        background=Background(),
        extras=Extras(models, naming),
        warmth=Warmth(lambda _: UNKNOWN_PRICES, clock, Memory()),
        tools=Tools(metrics, Memory()),
        policies=lambda _: Policy(),
        clock=clock,
    )


async def test_a_request_is_forwarded_untouched_when_planning_fails():
    headers = {b"x-unabridged-budget": b"400"}
    envelope = read_envelope(Naming("secret", Memory()), "/chat/completions", headers, [])
    prepared = await engine().prepare(Incoming(envelope, BODY), Policy())
    assert prepared.body == BODY
    told = dict(prepared.response_headers())
    assert told[b"x-unabridged-degraded"] == b"not-planned"
    assert told[b"x-unabridged-cut"] == b"0"
