"""Vectors from the upstream's embeddings API, in the name of the caller, each text asked for once.

A user is waiting, so these calls do not stand back as summaries do; they are few, in batches, and bounded in
time by whoever asks. What was embedded before a fault or the end of that time stays, and the next search
goes on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from proxy.core.recall.vectors import Unreadable, Vector, batches_of, embedding_request, read_vectors
from proxy.lru import Lru, Memory
from proxy.ports import Upstream

_ANSWER_BYTES = 16 * 2**20
_OK = 200
Headers = Sequence[tuple[bytes, bytes]]


class Embeddings:
    """Asks for vectors; whoever calls bounds the time."""

    def __init__(self, upstream: Upstream, memory: Memory) -> None:
        self._upstream = upstream
        self._vectors: Lru[bytes, Vector] = Lru(memory, len)

    async def vectors(
        self, tenant: str, credentials: Headers, model: str, texts: Sequence[str]
    ) -> list[Vector]:
        """A vector for each text. Raises Unreadable and what the upstream port raises."""
        addresses = [_address(tenant, model, text) for text in texts]
        found = {address: self._vectors.get(address) for address in addresses}
        missing = {
            address: text for address, text in zip(addresses, texts, strict=True) if found[address] is None
        }
        for batch in batches_of(list(missing.values())):
            for text, vector in zip(batch, await self._ask(credentials, model, batch), strict=True):
                address = _address(tenant, model, text)
                found[address] = vector
                self._vectors.put(address, vector)
        vectors = [vector for address in addresses if (vector := found[address]) is not None]
        if len({len(vector) for vector in vectors}) > 1:
            raise Unreadable("vectors of several lengths")
        return vectors

    async def _ask(self, credentials: Headers, model: str, texts: Sequence[str]) -> list[Vector]:
        headers = [*credentials, (b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
        response = await self._upstream.send("POST", "/embeddings", headers, embedding_request(model, texts))
        content = bytearray()
        try:
            if response.status != _OK:
                raise Unreadable("refused")
            async for chunk in response.chunks():
                content += chunk
                if len(content) > _ANSWER_BYTES:
                    raise Unreadable("too long")
        finally:
            await response.aclose()
        return read_vectors(bytes(content), len(texts))


def _address(tenant: str, model: str, text: str) -> bytes:
    said = f"{tenant}\0{model}\0{text}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).digest()
