"""What else the engine needs of the world: a search, a counter of tokens, an upstream, a clock."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be searched."""

    key: bytes
    """Equal for equal texts alone."""
    read: Callable[[], str]
    """The text; called where the search does not hold it yet."""


class Search(Protocol):
    """Finds passages. What was searched before on the same shelf is not read again."""

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> Sequence[int]:
        """Indexes of the ``most`` passages that say most of what is asked, best first; off the event loop.

        The answer rests on these passages alone, whatever the shelf has held before.
        Raises :class:`proxy.errors.SearchUnavailable`.
        """
        ...

    async def aclose(self) -> None:
        """Forget all shelves."""
        ...


class TokenCounter(Protocol):
    """Counts tokens of text in one encoding; what the model makes of it is learned as a ratio."""

    def count(self, text: str) -> int:
        """Tokens of ``text``; special tokens count as the text they are; never raises."""
        ...

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, off the event loop where they are large together."""
        ...

    async def ready(self) -> None:
        """Load the vocabulary, once."""
        ...


class UpstreamResponse(Protocol):
    """An upstream's answer, its body still to come."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body's bytes as they arrive, undecoded; there is one such iterator.

        Raises UpstreamTimeout, UpstreamUnreachable (reset), UpstreamInvalidResponse (framing, too short).
        """
        ...

    async def aclose(self) -> None:
        """Close the connection if the body was not read to its end; give it back otherwise."""
        ...


class Upstream(Protocol):
    """The model API behind the proxy."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        """Send one request; ``target`` is the path and query after the client's ``/v1``.

        ``at_root``: after what stands before the ``/v1`` of the upstream's URL, where servers have what is
        no part of that API.

        Raises UpstreamUnreachable (no connection), UpstreamTimeout.
        """
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...


class Clock(Protocol):
    """The time; an argument, so that no rule rests on a clock read elsewhere."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps."""
        ...
