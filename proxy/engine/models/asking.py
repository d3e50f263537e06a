"""Questions of our own to the upstream: they carry nothing of the client's but its auth.

A model that refuses schema or temperature is asked again in plain words. When a call may be made is the
business of :mod:`proxy.engine.background`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.cache import Lru, Memory
from proxy.core.dialects.answers import Answer, Ask
from proxy.core.dialects.wire import WireFormat
from proxy.ports import Upstream

_ANSWER_BYTES = 2**20
_REFUSED_PARAMETERS = (400, 422)
_NAME = 256
"""Characters of a model's name by which it is remembered: clients choose names of any length."""


@dataclass(frozen=True)
class Caller:
    """In whose name the model is asked."""

    model: str
    headers: Sequence[tuple[bytes, bytes]]
    """The caller's credentials; held in memory only."""
    timeout: float
    """Seconds that one call may take."""


class Unanswered(Exception):  # noqa: N818 - no bad answer, which may be better a second time
    """The upstream did not answer with a completion; the message is the metric's label."""


class Asking:
    """Asks the upstream model."""

    def __init__(self, wire: WireFormat, upstream: Upstream, memory: Memory) -> None:
        self.wire = wire
        self._upstream = upstream
        self._plain: Lru[str, bool] = Lru(memory)
        """Models that refused schema or temperature."""

    async def answer(self, caller: Caller, ask: Ask) -> Answer:
        """What the model answers. Raises Unanswered, TimeoutError and what the upstream port raises."""
        async with asyncio.timeout(caller.timeout):
            return await self._answer(caller, ask)

    async def _answer(self, caller: Caller, ask: Ask) -> Answer:
        name = caller.model[:_NAME]
        plain = bool(self._plain.get(name))
        body = self.wire.question(ask, caller.model, plain=plain)
        asked = "POST", self.wire.path, caller.headers, body
        status, content = await fetch(self._upstream, *asked, _ANSWER_BYTES)
        if content is None:
            raise Unanswered("too_long")
        if status in _REFUSED_PARAMETERS and not plain:
            self._plain.put(name, value=True)
            return await self._answer(caller, ask)
        if status != 200:
            raise Unanswered("refused")
        return self.wire.read_answer(content)


async def fetch(
    upstream: Upstream,
    method: str,
    place: str,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes | None,
    most: int,
    *,
    at_root: bool = False,
) -> tuple[int, bytes | None]:
    """Ask something of our own: status and body of the answer, None for a body of more than ``most`` bytes.

    Raises what the upstream port raises; whoever asks bounds the time.
    """
    kind = [(b"content-type", b"application/json")] if body is not None else []
    response = await upstream.send(method, place, [*headers, *kind], body, at_root=at_root)
    content = bytearray()
    try:
        async for chunk in response.chunks():
            content += chunk
            if len(content) > most:
                return response.status, None
    finally:
        await response.aclose()
    return response.status, bytes(content)
