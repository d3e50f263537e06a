"""How an answer begins: as much of it as tells a refusal from an answer, and no more."""

from proxy.core.sse import Decoder
from proxy.core.unpacking import Unpacker, UnpackingError
from proxy.engine.exchange import Sent
from proxy.ports import UpstreamResponse

_OK = 200
_BEGUN_BYTES = 2**20
_REFUSALS = frozenset({400, 413, 422, 500})


async def begin(response: UpstreamResponse) -> Sent:
    """Read all of an error, or the first event of a stream."""
    if response.status == _OK:
        return await _begin_stream(response) if _is_stream(response) else Sent(response, b"", is_over=False)
    begun = bytearray()
    async for chunk in response.chunks():
        begun += chunk
        if response.status not in _REFUSALS or len(begun) > _BEGUN_BYTES:
            return Sent(response, bytes(begun), is_over=False)
    return Sent(response, bytes(begun), is_over=True, told=_unpacked(response, bytes(begun)))


async def _begin_stream(response: UpstreamResponse) -> Sent:
    """Read the first event; comments (keep-alives) are not held back for it."""
    decoder, begun = Decoder(), bytearray()
    async for chunk in response.chunks():
        begun += chunk
        events = decoder.feed(chunk)
        if events:
            return Sent(response, bytes(begun), is_over=False, told=events[0].data)
        if len(begun) > _BEGUN_BYTES or not _has_begun_an_event(bytes(begun)):
            return Sent(response, bytes(begun), is_over=False)
    return Sent(response, bytes(begun), is_over=True)


def _has_begun_an_event(text: bytes) -> bool:
    return any(line and not line.startswith(b":") for line in text.splitlines())


def _is_stream(response: UpstreamResponse) -> bool:
    return _header(response, b"content-type").startswith(b"text/event-stream")


def _unpacked(response: UpstreamResponse, body: bytes) -> bytes:
    """What a refusal says, though it was compressed and nobody had asked for that."""
    coding = _header(response, b"content-encoding")
    if not Unpacker.knows(coding):
        return body
    try:
        return Unpacker(coding, _BEGUN_BYTES).feed(body)
    except UnpackingError:
        return body


def _header(response: UpstreamResponse, wanted: bytes) -> bytes:
    found = (value.strip().lower() for name, value in response.headers if name.lower() == wanted)
    return next(found, b"")
