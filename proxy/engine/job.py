"""One summary to be written: what of, on which terms, and in whose name."""

import hashlib

import msgspec

from proxy.core.policy_sections import Summary
from proxy.core.source import Piece, Source
from proxy.engine.asking import Caller
from proxy.engine.compactors import Compaction
from proxy.ports import SessionKey


class Job(msgspec.Struct, frozen=True):
    """One summary to be written."""

    address: str
    terms: str
    """What its pieces' addresses are derived from: the tenant's, and equal where the terms are equal."""
    source: Source
    caller: Caller
    rules: Summary
    max_tokens: int
    key: SessionKey
    ttl: float
    room: int
    """Counted tokens that a call may have for its prompt."""
    rebuilds: bool = False
    """Whether it is made from the originals of what has been summarised before; its pieces are reused."""
    compaction: Compaction | None = None

    @property
    def pieces(self) -> int:
        return len(self.source.pieces)

    @property
    def piece_tokens(self) -> int:
        """Tokens that the summary of one piece may have; those of a rebuild are put together by the model."""
        return self.max_tokens if self.rebuilds else max(self.max_tokens // max(self.pieces, 1), 1)

    @property
    def is_one_call(self) -> bool:
        """Whether its only piece is all of it, kept under its own address."""
        return self.pieces == 1

    def address_of(self, piece: Piece, limit: int) -> str:
        """Where a piece's summary is kept: by its content, so that no piece is paid for twice."""
        if self.is_one_call:
            return self.address
        told = f"{self.terms}\0{limit}\0{piece.text}".encode(errors="surrogatepass")
        return hashlib.sha256(told).hexdigest()[:40]
