"""Whether streamed answers come as they are made: something on the way may collect them first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from proxy.cli.doctor.findings import Finding, fail, ok, warn
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import dumps
from proxy.core.formats.sse import Decoder
from proxy.errors import UnabridgedError
from proxy.ports import Upstream

_QUESTION = "Count from 1 to 40, separated by commas. Write nothing else."
_SECONDS = 120.0
"""Seconds that the whole answer may take."""
_PAUSE = 0.003
"""Seconds between two arrivals from which they are two: below it one piece was merely read in parts."""
_TELLING = 10
"""Events without which nothing can be told."""
_PIECES = 3
"""At most so many pieces come of an answer that was collected: what a network sends at once is bounded."""
_OK = 200


class _Arrived(NamedTuple):
    status: int
    is_stream: bool
    events: int
    pieces: int


async def of_streaming(upstream: Upstream, credentials: Sequence[tuple[bytes, bytes]], model: str) -> Finding:
    """Have a model count, and look at when the parts of its answer come."""
    try:
        async with asyncio.timeout(_SECONDS):
            arrived = await _arrived(upstream, credentials, model)
    except (UnabridgedError, TimeoutError) as error:
        why = error.message if isinstance(error, UnabridgedError) else "no answer in time"
        return fail("streaming", f"{model} did not answer: {why}", "see the upstream's line")
    if arrived.status != _OK:
        advice = "name a chat model that the key may use; see the key's line"
        return fail("streaming", f"{model} refused to answer ({arrived.status})", advice)
    if not arrived.is_stream:
        return warn("streaming", "the answer was no stream", "this upstream does not stream: clients wait")
    told = f"{arrived.events} events in {arrived.pieces} pieces"
    if arrived.events < _TELLING:
        return warn("streaming", f"{told}: too few to tell", "name a model that writes more")
    if arrived.pieces <= _PIECES:
        advice = (
            "turn buffering off before the upstream (nginx: `proxy_buffering off`), and scanners of answers"
        )
        return warn("streaming", f"{told}: something on the way collects answers", advice)
    return ok("streaming", told)


async def _arrived(upstream: Upstream, credentials: Sequence[tuple[bytes, bytes]], model: str) -> _Arrived:
    """Raises UnabridgedError."""
    body = dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": _QUESTION}]})
    headers = [*credentials, (b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
    response = await upstream.send("POST", CHAT.path, headers, body)
    kinds = {value for name, value in response.headers if name.lower() == b"content-type"}
    is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
    decoder, events, pieces, last = Decoder(), 0, 0, 0.0
    async with aclosing(response):
        async for chunk in response.chunks():
            now = asyncio.get_running_loop().time()
            pieces += now - last > _PAUSE
            last = now
            events += len(decoder.feed(chunk))
    return _Arrived(response.status, is_stream, events, pieces)
