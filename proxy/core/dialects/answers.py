"""Types for answers of any API: what is read from them, what is stored, and how they are edited.

A :class:`~proxy.core.dialects.dialect.Dialect` takes and returns these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """The upstream's token counts. Cached tokens are included in the prompt's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    """Prompt tokens that were written to the provider's cache, if it bills them."""
    reasoning_tokens: int | None = None
    """Those of the completion that the model thought with."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How an answer was sent whose turn had an Idempotency-Key, so that a retry gets the same answer."""

    key: str
    """Digest of the Idempotency-Key."""
    after: bytes
    """Chain hash of the message that the turn follows."""
    id: str = ""
    model: str = ""
    finish_reason: str = "stop"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the upstream model."""

    task: str
    """The instructions: the system message, unless the question continues a conversation."""
    text: str
    """The text that the instructions apply to."""
    max_tokens: int
    temperature: float
    is_structured: bool = False
    """Whether the answer is requested as JSON with one member, `summary`."""


class Answer(msgspec.Struct, frozen=True):
    """What is read from an answer.

    `message` is the message of the first choice as bytes, in the form in which a client sends it back.
    `error` is the error object as JSON. Both are None where there was none. `choices` counts the distinct
    choices seen.
    """

    message: bytes | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    complete: bool = False
    is_malformed: bool = False
    """Whether some of the answer was not valid and is missing in the message."""
    tool_calls: bool = False
    choices: int = 0
    error: bytes | None = None
    id: str | None = None
    model: str | None = None


class Overflow(msgspec.Struct, frozen=True):
    """A context window that was exceeded, in tokens; None where the refusal does not state a number."""

    window: int | None = None
    prompt_tokens: int | None = None


REFUSED = frozenset({400, 413, 422, 500, 502, 503})
"""Statuses of refusals that a changed request may avoid."""


class Refusal(msgspec.Struct, frozen=True):
    """The reasons for a refusal that a changed request can avoid; all unset for any other reason."""

    overflow: Overflow | None = None
    """The request is too long for the model's context window."""
    wants_alternation: bool = False
    """The upstream accepts only strictly alternating user and assistant messages."""
    rejects_tools: bool = False
    """The upstream accepts no tools, or fewer."""
    mentions_tools: bool = False
    """The refusal mentions tools; of a request with a response format some upstreams accept none."""
    rejects_reasoning: bool = False
    """The upstream rejects signed reasoning in the messages: it was made in another conversation."""
    refused_members: frozenset[str] = frozenset()
    """Members of messages, of reasoning that is not signed, that the upstream does not take."""
    is_invalid: bool = False
    """The upstream calls the request invalid; something that the proxy added may be the reason."""
    has_unknown_parameter: bool = False
    """The upstream does not know one of the parameters; it need not say which."""
    mentions_cache_key: bool = False
    """The refusal mentions the parameter with the prompt cache key."""


class AnswerStream(Protocol):
    """Collects the answer from a stream's bytes as they pass through."""

    @property
    def overflowed(self) -> bool:
        """Whether collecting was given up: the stream went on, but the end of the answer is not known."""
        ...

    @property
    def truncated(self) -> bool:
        """At the end of the stream, whether it broke off and the client must be told."""
        ...

    @property
    def separator(self) -> bytes:
        """The bytes to send before an appended event, so that it is an event of its own."""
        ...

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream, which may be split anywhere."""
        ...

    def answer(self) -> Answer:
        """The answer as collected so far."""
        ...


class StreamFilter(Protocol):
    """Passes a stream's bytes on without one thing: the usage, or the final event."""

    has_found: bool
    """Whether that thing has begun, or can no longer be found."""

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk and return the bytes that may go to the client now."""
        ...

    def rest(self) -> bytes:
        """The remaining bytes when the stream has ended."""
        ...


# --- tool calls that the proxy answers itself: they are removed from the answer that the client gets ---


@dataclass(frozen=True)
class HiddenCallRules:
    """Which tool calls the proxy may answer itself."""

    may_answer: Callable[[str], bool]
    """Whether calls of this tool are held back until it is known who answers them."""
    is_own_tool: Callable[[str], bool]
    """Whether this tool is the proxy's own: its calls never reach the client, answered or not."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete tool call of an answer."""

    place: int
    """Index among the calls of its message, in the order in which they began."""
    id: str
    tool: str
    arguments: str | None
    """None where they are not readable text."""


class AnswerEditor(Protocol):
    """Joins several answers of the upstream into one, without the tool calls that the proxy has answered.

    Each of the upstream's answers is a round. In a stream, everything but held calls passes at once; an
    answer that is not streamed is returned at its end.
    """

    has_given_up: bool
    """Whether the newest answer cannot be edited to its end: it broke off, is too large or cannot be read."""
    has_ended: bool
    """Whether the upstream has said that the round is over."""
    is_over: bool
    """Whether no more bytes of the round are to come."""

    @property
    def visible(self) -> bytes:
        """The message that the client gets."""
        ...

    @property
    def earlier_usage(self) -> Usage:
        """The summed usage of all answers before the newest."""
        ...

    @property
    def total_usage(self) -> Usage:
        """The same with that of the newest, as far as it has come."""
        ...

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the round, and return those that the client gets now.

        An answer that is not streamed is given as a whole.
        """
        ...

    def rest(self) -> bytes:
        """Take note that the round's bytes have ended, and return what goes to the client now."""
        ...

    def answerable_calls(self) -> list[ToolCall]:
        """The round's tool calls that the proxy may answer, in order."""
        ...

    def client_calls(self) -> list[ToolCall]:
        """The round's tool calls that go to the client without the proxy trying to answer them."""
        ...

    def message(self, without: Collection[ToolCall] = ()) -> bytes:
        """The round's message as the upstream wrote it, ``without`` these tool calls."""
        ...

    def go_on(self, *, may_ask: bool) -> None:
        """Begin the next round, all calls of this one being answered: the next bytes are its answer.

        ``may_ask`` says whether the proxy may answer its calls too.
        """
        ...

    def settle(self, hidden: Collection[ToolCall]) -> None:
        """End the answer with this round. ``hidden`` calls were answered; the client gets the others."""
        ...

    def end(self, comment: bytes = b"") -> bytes:
        """Return the last bytes of a settled answer, or all of one that is not streamed.

        In a stream, a ``comment`` goes before the final event, and later bytes pass unchanged.
        """
        ...
