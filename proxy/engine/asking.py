"""One question to the upstream model: it carries nothing of the client's but its auth.

A model that refuses schema or temperature is asked again in plain words. When a call may be made is the
business of :mod:`proxy.engine.foreground`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.completion import Answer, read_completion
from proxy.core.summary import Ask
from proxy.engine.known import known_by
from proxy.lru import Lru, Memory
from proxy.ports import Upstream

_ANSWER_BYTES = 2**20
_REFUSED_PARAMETERS = (400, 422)


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

    def __init__(self, upstream: Upstream, memory: Memory) -> None:
        self._upstream = upstream
        self._plain: Lru[str, bool] = Lru(memory)
        """Models that refused schema or temperature."""

    async def answer(self, caller: Caller, ask: Ask) -> Answer:
        """What the model answers. Raises Unanswered, TimeoutError and what the upstream port raises."""
        async with asyncio.timeout(caller.timeout):
            return await self._answer(caller, ask)

    async def _answer(self, caller: Caller, ask: Ask) -> Answer:
        plain = bool(self._plain.get(known_by(caller.model)))
        status, content = await self._post(caller, ask.body(caller.model, plain=plain))
        if status in _REFUSED_PARAMETERS and not plain:
            self._plain.put(known_by(caller.model), value=True)
            return await self._answer(caller, ask)
        if status != 200:
            raise Unanswered("refused")
        return read_completion(content)

    async def _post(self, caller: Caller, body: bytes) -> tuple[int, bytes]:
        headers = [*caller.headers, (b"content-type", b"application/json")]
        response = await self._upstream.send("POST", "/chat/completions", headers, body)
        content = bytearray()
        try:
            async for chunk in response.chunks():
                content += chunk
                if len(content) > _ANSWER_BYTES:
                    raise Unanswered("too_long")
        finally:
            await response.aclose()
        return response.status, bytes(content)
