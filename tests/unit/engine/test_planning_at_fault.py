"""Law 7: a fault of the proxy's own costs the pruning, never the answer."""

from collections.abc import AsyncIterator, Sequence

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.watcher import WatchedPolicies
from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores.memory import MemoryStore
from proxy.app import Outside, SystemClock, assembled
from proxy.cache import Memory
from proxy.config import Settings
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Envelope, Incoming
from proxy.engine.intake.naming import Naming
from proxy.errors import UpstreamUnreachable
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
        *,
        at_root: bool = False,
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


def outside() -> Outside:
    """A world whose upstream is away, and whose counter breaks down."""
    clock, metrics, memory = SystemClock(), Metrics(), Memory()
    return Outside(
        memory=memory,
        learned=memory,
        clock=clock,
        metrics=metrics,
        store=MemoryStore(clock),
        upstream=NoUpstream(),
        counter=BrokenCounter(),
        search=SqliteSearch(),
        policies=WatchedPolicies(PolicyLibrary(), "default", metrics),
    )


async def test_a_request_is_forwarded_untouched_when_planning_fails():
    headers = {b"x-unabridged-budget": b"400"}
    envelope = Envelope.read(Naming("secret", Memory()), "/chat/completions", headers, [])
    pipeline = assembled(Settings(upstream="http://127.0.0.1:9/v1"), outside()).pipeline
    exchange = await pipeline.prepare(Incoming(envelope, BODY, Policy(), 0.0))
    assert exchange.body == BODY
    told = dict(exchange.response_headers())
    assert told[b"x-unabridged-degraded"] == b"not-planned"
    assert told[b"x-unabridged-cut"] == b"0"
