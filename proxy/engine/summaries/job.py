"""One summary to be written."""

import hashlib

import msgspec

from proxy.core.planning.exchanges import RunningSummary
from proxy.core.policy.sections import Summary
from proxy.core.summaries.prompt import Limit
from proxy.core.summaries.source import Piece, Source
from proxy.engine.models.asking import CallOptions
from proxy.engine.summaries.cached_view import CachedQuestion
from proxy.ports import SessionKey


class Job(msgspec.Struct, frozen=True):
    """What it is made of, for whom, and how long it may be."""

    address: str
    session: str
    """The session's id for operators."""
    terms: str
    """The address of the terms (with the tenant), from which those of a record's pieces are derived."""
    source: Source
    caller: CallOptions
    rules: Summary
    max_tokens: int
    key: SessionKey
    ttl: float
    room: int
    """Counted tokens that a call may have for its prompt."""
    rebuilds: bool = False
    """Whether earlier summaries are rewritten from their original messages."""
    record: RunningSummary | None = None
    """The text that the strategy writes of the gap itself; only its long parts are shortened."""
    cached: CachedQuestion | None = None
    """The question to try first, where the provider has cached the messages that it follows."""

    @property
    def limit(self) -> Limit:
        """The limit of the whole summary."""
        return Limit(self.max_tokens, self.rules.max_characters)

    def address_of(self, piece: Piece, limit: Limit) -> str:
        """Return the address of a piece's summary; in a record by content, so that none is paid for twice."""
        if self.record is None:
            return self.address
        most = f"{limit.bytes} bytes" if limit.bytes else f"{limit.tokens}"
        content = f"{self.terms}\0{most}\0{piece.text}".encode(errors="surrogatepass")
        return hashlib.sha256(content).hexdigest()[:40]
