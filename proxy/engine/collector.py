"""Reading along: what a turn's record needs of an answer, taken while its bytes go by."""

from proxy.core.completion import Answer, StreamCollector, read_completion
from proxy.ports import UpstreamResponse

_ANSWER_BYTES = 64 * 2**20


class Collector:
    """Reads along while an answer goes by; it never holds a byte up, and gives up where it cannot read."""

    def __init__(self, response: UpstreamResponse) -> None:
        headers = {name.lower(): value.lower() for name, value in response.headers}
        self.is_stream = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        self.is_readable = headers.get(b"content-encoding", b"identity") == b"identity"
        self._stream = StreamCollector()
        self._body = bytearray()

    def feed(self, chunk: bytes) -> None:
        """See a chunk of the body."""
        if not self.is_readable:
            return
        if self.is_stream:
            self._stream.feed(chunk)
        elif len(self._body) <= _ANSWER_BYTES:
            self._body += chunk

    @property
    def is_truncated(self) -> bool:
        """Whether a stream ended without saying that it was over."""
        return self.is_stream and self.is_readable and self._stream.truncated

    def answer(self) -> Answer:
        """What was said so far."""
        if not self.is_readable:
            return Answer()
        return self._stream.answer() if self.is_stream else read_completion(bytes(self._body))
