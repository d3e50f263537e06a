"""How an answer begins: as much of it as tells a refusal from an answer, and no more."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from proxy.core.formats.sse import Decoder
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.engine.flow import Sent, header_of, is_stream
from proxy.errors import UpstreamInvalidResponse
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
    told, coding = bytes(begun), header_of(response, b"content-encoding")
    if coding in CODINGS:  # a refusal that was compressed, though nobody had asked for that
        with suppress(UnpackingError):
            told = Unpacker(coding, _BEGUN_BYTES).feed(told)
    return Sent(response, bytes(begun), is_over=True, told=told)


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
        if all(not line or line.startswith(b":") for line in begun.splitlines()):
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


# --- answers that come compressed though nobody has asked for that ---


_BYTES = 64 * 2**20
_ABOUT_BYTES = (b"content-encoding", b"content-length")


def unpacked(sent: Sent) -> Sent:
    """The same answer, plain; as it is where it is plain already, or packed in a way that is not known."""
    coding = header_of(sent.response, b"content-encoding")
    if coding not in CODINGS:
        return sent
    return Sent(_Unpacked(sent, Unpacker(coding, _BYTES)), b"", is_over=False, told=sent.told)


class _Unpacked:
    """Stands where the upstream's answer would."""

    def __init__(self, sent: Sent, unpacker: Unpacker) -> None:
        self.status = sent.response.status
        self.headers: Sequence[tuple[bytes, bytes]] = [
            pair for pair in sent.response.headers if pair[0].lower() not in _ABOUT_BYTES
        ]
        self._sent = sent
        self._unpacker = unpacker
        self.aclose = sent.response.aclose

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. Raises UpstreamInvalidResponse where it cannot be unpacked."""
        async for chunk in self._sent.chunks():
            try:
                plain = self._unpacker.feed(chunk)
            except UnpackingError as error:
                raise UpstreamInvalidResponse from error
            if plain:
                yield plain
