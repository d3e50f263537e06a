"""Whether an upstream's URL lacks its `/v1`, as many have it: asked of the upstream itself, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from proxy.adapters.upstream.client import Header
from proxy.errors import UnabridgedError
from proxy.ports import Upstream, UpstreamResponse
from proxy.telemetry import log_warning

_SECONDS: Final = 10.0
"""For both questions."""
_NOT_FOUND: Final = 404
_FAILED: Final = 500


class DoubtedUpstream:
    """Passes requests on. The first answer 404 raises the question, beside it: nobody waits for the answer.

    `credentials` are the operator's: no client's key is spent on it.
    """

    def __init__(self, upstream: Upstream, url: str, credentials: Sequence[Header]) -> None:
        self._upstream = upstream
        self._url = url
        self._credentials = credentials
        self._asking: asyncio.Task[None] | None = None

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        response = await self._upstream.send(method, target, headers, body, at_root=at_root)
        if response.status == _NOT_FOUND and self._asking is None and not at_root:
            self._asking = asyncio.create_task(self._ask(), name="upstream URL")
        return response

    async def _ask(self) -> None:
        """Tell the operator where the list of models is found below `/v1` alone."""
        with suppress(UnabridgedError, TimeoutError):
            async with asyncio.timeout(_SECONDS):
                if await self._status("/models") != _NOT_FOUND:
                    return
                below = await self._status("/v1/models")
            if below < _FAILED and below != _NOT_FOUND:
                log_warning("the upstream's URL seems to lack its /v1", use=f"--upstream {self._url}/v1")

    async def _status(self, target: str) -> int:
        response = await self._upstream.send("GET", target, self._credentials, None)
        await response.aclose()
        return response.status

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        await self._upstream.aclose()
