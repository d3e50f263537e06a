"""Answers of an `Upstream`, read to their end."""

from __future__ import annotations

from contextlib import aclosing

from proxy.ports import Upstream, UpstreamResponse


async def whole(response: UpstreamResponse) -> bytes:
    async with aclosing(response):
        return b"".join([chunk async for chunk in response.chunks()])


async def get(upstream: Upstream) -> bytes:
    return await whole(await upstream.send("GET", "/models", [], None))
