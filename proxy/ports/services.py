"""Ports other than the stores: search, token counter, upstream, clock, policies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Protocol

from proxy.core.policy.policy import PolicySet


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be searched."""

    key: bytes
    """Identifies the text: two passages have the same key only if their texts are equal."""
    read: Callable[[], str]
    """Returns the text; called only if the search has not indexed it yet."""


class Search(Protocol):
    """Full-text search over passages. A *shelf* names an index, kept between searches.

    Passages that are already indexed on a shelf are not read again.
    """

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> Sequence[int]:
        """Return the indexes of at most ``most`` passages that match the query, best first.

        The search runs off the event loop. Its result depends on these passages only, not on what the shelf
        held before. Raises :class:`proxy.errors.SearchUnavailable`.
        """
        ...

    async def aclose(self) -> None:
        """Drop all shelves."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of text in one encoding. The ratio to a model's own count is learned elsewhere."""

    def count(self, text: str) -> int:
        """Return the token count of ``text``. Special tokens are counted as plain text. Never raises."""
        ...

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the token count of each text; counts off the event loop if the texts are large in total."""
        ...

    async def ready(self) -> None:
        """Load the vocabulary, once."""
        ...


Header = tuple[bytes, bytes]
"""Name and value of a header, in the bytes that were sent."""


def header_of(headers: Sequence[Header], name: bytes) -> bytes | None:
    """Return the first value of a header, None where it is absent; ``name`` is in lower case."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


class UpstreamResponse(Protocol):
    """An upstream's response whose body has not been read yet."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[Header]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body's bytes as they arrive, still encoded. There is only one such iterator.

        Raises UpstreamTimeout, UpstreamUnreachable (connection reset) and UpstreamInvalidResponse (wrong
        framing, or a body that is too short).
        """
        ...

    async def aclose(self) -> None:
        """Return the connection to the pool if the body was read to its end; otherwise close it."""
        ...


@dataclass(frozen=True, slots=True)
class ChangedResponse:
    """A response that has another body than the upstream's, or whose body is read in another way."""

    status: int
    headers: Sequence[Header]
    chunks: Callable[[], AsyncIterator[bytes]]
    aclose: Callable[[], CoroutineType[Any, Any, None]]


def coding_of(response: UpstreamResponse) -> bytes:
    """Return how the response's body is compressed, in lower case; `identity` where it is plain."""
    return (header_of(response.headers, b"content-encoding") or b"").strip().lower() or b"identity"


def is_stream(response: UpstreamResponse) -> bool:
    """Whether the response's content type is a stream of events."""
    kind = header_of(response.headers, b"content-type") or b""
    return kind.strip().lower().startswith(b"text/event-stream")


class Upstream(Protocol):
    """The model API behind the proxy."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        """Send one request; ``target`` is the path and query after the client's ``/v1``.

        With ``at_root``, ``target`` is appended to the part of the upstream's URL before ``/v1``, where
        servers have endpoints outside that API.

        Raises UpstreamUnreachable (no connection) and UpstreamTimeout.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Clock(Protocol):
    """The time. Passed as an argument, so that no code reads a clock of its own."""

    def now(self) -> float:
        """Return the seconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that never jumps."""
        ...


class Policies(Protocol):
    """The policies of a server, whose files may be edited while it runs."""

    @property
    def in_force(self) -> PolicySet:
        """The policies that requests get now."""
        ...

    def stale(self) -> list[str]:
        """Policies whose files cannot be used now."""
        ...
