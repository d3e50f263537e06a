"""An answer that came compressed though nobody had asked for that, made plain so that it can be edited."""

from collections.abc import AsyncIterator, Sequence

from proxy.core.unpacking import Unpacker, UnpackingError
from proxy.engine.exchange import Sent, header_of
from proxy.errors import UpstreamInvalidResponse

_BYTES = 64 * 2**20
_ABOUT_BYTES = (b"content-encoding", b"content-length")


def unpacked(sent: Sent) -> Sent:
    """The same answer, plain; as it is where it is plain already, or packed in a way that is not known."""
    coding = header_of(sent.response, b"content-encoding")
    if not Unpacker.knows(coding):
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
