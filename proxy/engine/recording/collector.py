"""Read an answer while it is passed on, for the record of its turn."""

from proxy.core.dialects.answers import Answer, AnswerStream
from proxy.core.dialects.dialect import Dialect
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.engine.flow import PeekedResponse
from proxy.ports import coding_of

ANSWER_BYTES = 64 * 2**20
"""Bytes of an answer that is not streamed beyond which it is not read."""
_READ_BYTES = 16 * 1024
"""Bytes of a stream that are parsed together: parsing each event by itself costs half as much again."""
_UNPACKED_BYTES = 16 * 2**20
"""Most bytes of a compressed answer: no more than the event loop can unpack between two chunks."""


class Collector:
    """Reads an answer while it passes; it never delays a byte, and gives up on what it cannot read."""

    def __init__(self, dialect: Dialect, sent: PeekedResponse) -> None:
        self.dialect = dialect
        self.is_stream = sent.is_stream
        coding = coding_of(sent.response)
        is_plain = coding == b"identity"
        self.is_plain_stream = self.is_stream and is_plain
        """Whether the answer is an uncompressed stream, in which events can be held back or added."""
        self._unpacker = Unpacker(coding, _UNPACKED_BYTES) if coding in CODINGS else None
        self.is_readable = is_plain or self._unpacker is not None
        self._events: AnswerStream | None = None
        self._body = bytearray()
        """The body; of a stream, the part that was not parsed yet."""

    def feed(self, chunk: bytes) -> None:
        if not self.is_readable:
            return
        if self._unpacker is not None:
            try:
                chunk = self._unpacker.feed(chunk)
            except UnpackingError:
                self.is_readable = False
                return
        if len(self._body) <= ANSWER_BYTES:
            self._body += chunk
        if self.is_stream and len(self._body) >= _READ_BYTES:
            self._read()

    def _read(self) -> AnswerStream:
        if self._events is None:
            self._events = self.dialect.answer_stream()
        if self._body:
            self._events.feed(bytes(self._body))
            self._body.clear()
        return self._events

    @property
    def has_given_up(self) -> bool:
        """Whether the answer is too large to be read, or compressed in a way that is not understood."""
        is_large = self._read().overflowed if self.is_stream else len(self._body) > ANSWER_BYTES
        return is_large or not self.is_readable

    @property
    def can_tell(self) -> bool:
        """Whether it is known how the stream ends: it is neither compressed nor too large to be read."""
        return self.is_plain_stream and not self._read().overflowed

    @property
    def separator(self) -> bytes:
        return self._read().separator

    @property
    def is_truncated(self) -> bool:
        """Whether a stream ended without its final event; False for compressed ones, where it is unknown."""
        return self.is_plain_stream and self._read().truncated

    def answer(self) -> Answer:
        if not self.is_readable:
            return Answer()
        return self._read().answer() if self.is_stream else self.dialect.read_answer(bytes(self._body))
