"""Law 7: a fault of the proxy's own costs the pruning, never the answer."""

from collections.abc import Sequence

from proxy.app import build_engine
from proxy.cache import CacheMemory
from proxy.config import Settings
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Incoming
from proxy.engine.intake.naming import Envelope, Naming
from tests.support.world import outside

BODY = (
    b'{"model": "gpt-4o", "messages": ['
    + b",".join(
        b'{"role": "user", "content": "%b"}, {"role": "assistant", "content": "%b"}'
        % (b"word " * 40, b"word " * 40)
        for _ in range(20)
    )
    + b', {"role": "user", "content": "and now?"}]}'
)


class BrokenCounter:
    """Counts requests well, and breaks down when a note is to be counted."""

    def count(self, text: str) -> int:
        raise RuntimeError(f"cannot count {len(text)} characters")

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        return [len(text) // 4 + 1 for text in texts]

    async def ready(self) -> None:
        """Nothing is loaded."""


async def test_a_request_is_forwarded_untouched_when_planning_fails():
    headers = {b"x-unabridged-budget": b"400"}
    envelope = Envelope.read(Naming("secret", CacheMemory()), "/chat/completions", headers, [])
    pipeline = build_engine(Settings(upstream="http://127.0.0.1:9/v1"), outside(BrokenCounter())).pipeline
    exchange = await pipeline.prepare(Incoming(envelope, BODY, Policy(), 0.0))
    assert exchange.body == BODY
    told = dict(exchange.response_headers())
    assert told[b"x-unabridged-degraded"] == b"not-planned"
    assert told[b"x-unabridged-cut"] == b"0"
