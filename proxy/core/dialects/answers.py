"""What an answer is, whatever API it comes by: what is asked and kept of it, how it is read and edited.

These are the words in which a :class:`~proxy.core.dialects.dialect.Dialect` speaks of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """What the upstream counted, in tokens. Cached tokens are part of the prompt's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    """Those of the prompt that were written to the provider's cache, where it bills them."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How an answer was told whose turn had an Idempotency-Key: who sends that again gets it again."""

    key: str
    """Digest of the key."""
    after: bytes
    """Chain hash of the message after which the turn stands."""
    id: str = ""
    model: str = ""
    finish_reason: str = "stop"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the upstream model."""

    task: str
    """What is to be done: the system message, where it goes on from no conversation."""
    text: str
    """What it is to be done with."""
    max_tokens: int
    temperature: float
    is_structured: bool = False
    """Whether the answer is asked for as JSON with one member, `summary`."""


class Answer(msgspec.Struct, frozen=True):
    """What is kept of an answer.

    `message` is that of the first choice as bytes, such as a client sends it back, and `error` the error
    object; None where there was none. `choices` counts the distinct ones seen.
    """

    message: bytes | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    complete: bool = False
    is_odd: bool = False
    """Whether some of it is nothing that an answer may say, and missing in the message."""
    tool_calls: bool = False
    choices: int = 0
    error: bytes | None = None
    id: str | None = None
    model: str | None = None


class Overflow(msgspec.Struct, frozen=True):
    """A context window that was exceeded, in tokens; None where the refusal does not say."""

    window: int | None = None
    prompt_tokens: int | None = None


class Refusal(msgspec.Struct, frozen=True):
    """What a refusal says that another request may heed; nothing where it is about anything else."""

    overflow: Overflow | None = None
    """The request is too long for the model's context window."""
    wants_alternation: bool = False
    """One user message is taken after each assistant message, and no other."""
    takes_no_tools: bool = False
    """No tools are taken, or not so many."""
    is_of_reasoning: bool = False
    """Signed reasoning in its messages is not taken back: it was made in another conversation."""
    is_invalid: bool = False
    """The request is called invalid: whatever was added to it may be why."""
    is_of_parameter: bool = False
    """One of its parameters is not known, whichever that is."""
    is_of_cache_key: bool = False
    """The parameter that names the provider's cache is spoken of."""


class AnswerStream(Protocol):
    """Collects the answer out of a stream's bytes while they pass."""

    @property
    def overflowed(self) -> bool:
        """Whether it gave up: the stream went on, but how the answer ends is not known."""
        ...

    @property
    def truncated(self) -> bool:
        """At the end of the stream: whether it broke off, so that the client must be told."""
        ...

    @property
    def separator(self) -> bytes:
        """What must stand before an event that is appended, so that it is one of its own."""
        ...

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, cut anywhere."""
        ...

    def answer(self) -> Answer:
        """What has been collected so far."""
        ...


class StreamFilter(Protocol):
    """Lets a stream's bytes pass, but for something: the usage, or the event that says that it is over."""

    has_found: bool
    """Whether that has begun, or cannot be found any more."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        ...

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        ...


# --- calls that the proxy answers by itself: an answer without them, as if they had never been made ---


@dataclass(frozen=True)
class Rules:
    """Which calls the proxy may answer by itself."""

    holds: Callable[[str], bool]
    """Whether calls of a tool are held until it is known who answers them."""
    is_ours: Callable[[str], bool]
    """Whether only the proxy knows a tool: its calls never reach the client, answered or not."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in an answer that is whole."""

    place: int
    """Among the calls of its message, in the order in which they began."""
    id: str
    tool: str
    arguments: str | None
    """None where they are no readable text."""


class AnswerEditor(Protocol):
    """Makes one answer of several, streamed or not, without the calls in them that the proxy has answered.

    Of a stream, what is no held call passes at once; an answer in one piece is told at its end.
    """

    has_given_up: bool
    """Whether the newest answer cannot be edited to its end: it broke off, is too large or cannot be read."""
    has_ended: bool
    """Whether the round has said that it is over."""
    is_over: bool
    """Whether nothing of the round is to come."""

    @property
    def visible(self) -> bytes:
        """The message that the client is told."""
        ...

    @property
    def spent(self) -> Usage:
        """What the answers before the newest have used."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the round, all of one in one piece: those that the client gets now."""
        ...

    def rest(self) -> bytes:
        """The round's bytes are at their end: what goes to the client now."""
        ...

    def requested(self) -> list[ToolCall]:
        """The calls of the round that the proxy may answer, in their order."""
        ...

    def shown(self) -> list[ToolCall]:
        """The calls of the round that are the client's without asking."""
        ...

    def message(self, without: Collection[ToolCall] = ()) -> bytes:
        """The round's message as the upstream said it, ``without`` these calls."""
        ...

    def go_on(self, *, may_ask: bool) -> None:
        """All calls of the round have been answered: what is fed next is the upstream's next answer.

        ``may_ask`` says whether its calls may be answered, too.
        """
        ...

    def settle(self, hidden: Collection[ToolCall]) -> None:
        """The answer ends with this round. ``hidden`` calls were answered; the others are the client's."""
        ...

    def end(self, comment: bytes = b"") -> bytes:
        """The last bytes of a settled answer, or all of one in one piece.

        Of a stream what follows passes, and a ``comment`` stands before its final event.
        """
        ...
