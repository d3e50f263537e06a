"""How an answer begins: as much of it as tells a refusal from an answer, and no more."""

import asyncio
from collections.abc import AsyncIterator

from proxy.core.sse import Decoder
from proxy.core.unpacking import Unpacker, UnpackingError
from proxy.engine.exchange import Sent, header_of, is_stream
from proxy.ports import UpstreamResponse

_OK = 200
_BEGUN_BYTES = 2**20
_COMMENTS = 1.0
"""Seconds for which comments are held back: they keep a client waiting who would leave otherwise."""
_REFUSALS = frozenset({400, 413, 422, 500})


async def begin(response: UpstreamResponse) -> Sent:
    """Read all of an error, or the first event of a stream."""
    if response.status == _OK:
        return await _begin_stream(response) if is_stream(response) else Sent(response, b"", is_over=False)
    begun = bytearray()
    async for chunk in response.chunks():
        begun += chunk
        if response.status not in _REFUSALS or len(begun) > _BEGUN_BYTES:
            return Sent(response, bytes(begun), is_over=False)
    return Sent(response, bytes(begun), is_over=True, told=_unpacked(response, bytes(begun)))


async def _begin_stream(response: UpstreamResponse) -> Sent:
    """Read the first event. Comments before it (keep-alives) are held back for it, but not for long."""
    decoder, begun = Decoder(), bytearray()
    async for chunk in response.chunks():
        begun += chunk
        events = decoder.feed(chunk)
        if events:
            return Sent(response, bytes(begun), is_over=False, told=events[0].data)
        if len(begun) > _BEGUN_BYTES:
            return Sent(response, bytes(begun), is_over=False)
        if _is_comment(bytes(begun)):
            return await _after_comments(response, decoder, begun)
    return Sent(response, bytes(begun), is_over=True)


async def _after_comments(response: UpstreamResponse, decoder: Decoder, begun: bytearray) -> Sent:
    chunks, loop = response.chunks(), asyncio.get_running_loop()
    until = loop.time() + _COMMENTS
    while True:
        waited = _Waited(response, asyncio.ensure_future(anext(chunks, b"")))
        try:
            chunk = await waited.chunk(until - loop.time())
        except BaseException:
            await waited.aclose()
            raise
        if chunk is None:
            return Sent(waited, bytes(begun), is_over=False)
        begun += chunk
        events = decoder.feed(chunk)
        if events or not chunk or len(begun) > _BEGUN_BYTES:
            told = events[0].data if events else b""
            return Sent(response, bytes(begun), is_over=not chunk, told=told)


class _Waited:
    """An answer whose next chunk is waited for already."""

    def __init__(self, response: UpstreamResponse, following: asyncio.Future[bytes]) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._following = following

    async def chunk(self, seconds: float) -> bytes | None:
        """The next chunk, empty at the end; None where it does not come in time."""
        await asyncio.wait({self._following}, timeout=max(seconds, 0.0))
        return self._following.result() if self._following.done() else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The rest of the body."""
        if chunk := await self._following:
            yield chunk
        async for chunk in self._response.chunks():
            yield chunk

    async def aclose(self) -> None:
        """End the waiting, and close the answer."""
        self._following.cancel()
        await asyncio.wait({self._following})
        await self._response.aclose()


def _is_comment(text: bytes) -> bool:
    """Whether a stream has begun with nothing but comments."""
    return all(not line or line.startswith(b":") for line in text.splitlines())


def _unpacked(response: UpstreamResponse, body: bytes) -> bytes:
    """What a refusal says, though it was compressed and nobody had asked for that."""
    coding = header_of(response, b"content-encoding")
    if not Unpacker.knows(coding):
        return body
    try:
        return Unpacker(coding, _BEGUN_BYTES).feed(body)
    except UnpackingError:
        return body
