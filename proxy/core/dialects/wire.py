"""How one API writes requests and answers: what moves and records them knows no more of it than this.

A :class:`WireFormat` is a :class:`~proxy.core.dialects.dialect.Dialect` that can be spoken with an upstream.
The engine is given one, and reads every body, answer and refusal through it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from proxy.core.dialects.dialect import Dialect
from proxy.core.persistent import Grown

# --- requests ---


class Body(Protocol):
    """A request's body as the client wrote it; what is made of it keeps every other byte."""

    @property
    def raw(self) -> bytes:
        """All of it."""
        ...

    @property
    def messages(self) -> Grown[bytes]:
        """Each message's bytes, in order."""
        ...

    @property
    def members(self) -> Container[str]:
        """The names of what stands in it beside one another."""
        ...

    def get(self, name: str) -> Any:
        """The value of one of its members, decoded leniently; None where it is absent."""
        ...

    @property
    def model(self) -> str:
        """The model that is asked; empty where it names none."""
        ...

    @property
    def person(self) -> str:
        """Who is talking, where the client says so."""
        ...

    @property
    def is_streamed(self) -> bool:
        """Whether its answer is to be a stream of events."""
        ...

    @property
    def wants_usage(self) -> bool:
        """Whether a streamed answer is to tell its usage."""
        ...

    @property
    def wants_several(self) -> bool:
        """Whether several answers are asked for, to choose from."""
        ...

    @property
    def names_cache(self) -> bool:
        """Whether it names the provider's cache."""
        ...

    @property
    def output_limit(self) -> int | None:
        """Tokens that its answer may have; None where it does not say."""
        ...

    @property
    def has_tools(self) -> bool:
        """Whether the client offers tools."""
        ...

    @property
    def may_hide_calls(self) -> bool:
        """Whether calls may be answered out of the client's sight: one answer, which may call any tool."""
        ...

    def head_members(self) -> list[bytes]:
        """What stands in it beside messages and costs tokens: tools, the response format."""
        ...

    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> bytes:
        """A tool of ours as this body writes tools; ``parameters`` is a JSON schema."""
        ...

    def may_offer(self, name: str) -> bool:
        """Whether it leaves to the model which tool it calls, if any, and has none of this name."""
        ...

    def with_tool(self, tool: bytes) -> Body:
        """The body with one more tool, after the client's."""
        ...

    def without(self, name: str) -> Body:
        """The body without one of its members (never the only one)."""
        ...

    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        """The body with other messages."""
        ...

    def beginning(self) -> Beginning | None:
        """The body up to its last message; None where that cannot be told from what follows it."""
        ...


class Beginning(Protocol):
    """What a body began with, to read one after it that begins with the same bytes."""

    @property
    def end(self) -> int:
        """How many bytes these are."""
        ...

    @property
    def weight(self) -> int:
        """Bytes that remembering it takes beside the messages."""
        ...

    def continued(self, raw: bytes, max_messages: int) -> Body | None:
        """The body whose first ``end`` bytes are known to be the same.

        None where it must be read as a whole, if only to say what is wrong with it.
        """
        ...


# --- answers ---


class Usage(msgspec.Struct, frozen=True):
    """What the upstream counted, in tokens. Cached tokens are part of the prompt's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


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
    """The system message."""
    text: str
    """The user message."""
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
    """Lets a stream's bytes pass, but for something."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        ...

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        ...


class FinalEvent(StreamFilter, Protocol):
    """Holds back the event that says that a stream is over."""

    @property
    def is_here(self) -> bool:
        """Whether the final event has begun."""
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


class Editor(Protocol):
    """Makes one answer of several, from each of which it takes the calls that the proxy has answered."""

    @property
    def has_given_up(self) -> bool:
        """Whether the newest answer cannot be edited to its end."""
        ...

    @property
    def visible(self) -> bytes:
        """The message that the client is told."""
        ...

    def asked(self) -> list[ToolCall]:
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


class StreamEditor(Editor, Protocol):
    """The same for an answer that streams: what is no held call passes at once."""

    has_ended: bool
    """Whether the round has said that it is over."""
    is_over: bool
    """Whether nothing of the round is to come."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes of the round; answers those that go to the client now."""
        ...

    def rest(self) -> bytes:
        """The round's bytes are at their end: what goes to the client now."""
        ...

    def end(self, comment: bytes = b"") -> bytes:
        """The last bytes of a settled answer, a ``comment`` before its final event; what follows passes."""
        ...


class AnswerEditor(Editor, Protocol):
    """The same for answers that come in one piece."""

    @property
    def is_untouched(self) -> bool:
        """Whether a settled answer is the upstream's own: nothing is hidden."""
        ...

    def feed(self, body: bytes) -> None:
        """Take the next answer of the upstream, whole."""
        ...

    def end(self) -> bytes:
        """The answer for the client: the upstream's own bytes where nothing is hidden."""
        ...


# --- the whole ---


class WireFormat(Dialect, Protocol):
    """How an API is spoken; it has no state."""

    path: str
    """Where its requests go, behind the base URL."""
    cache_key: bytes
    """What refusals call the parameter that names the provider's cache."""
    truncated_event: bytes
    """What a client is told where the upstream's stream ends too early."""

    def model_of(self, raw: bytes) -> str:
        """The model that a body names, read before the rest; empty where it is no text, or no body."""
        ...

    def read_body(self, raw: bytes, max_messages: int) -> Body:
        """Split a request's body.

        Raises InvalidEncoding, InvalidJSON (with the offset in bytes), JSONTooDeep, InvalidType,
        MissingParameter, EmptyArray or TooManyMessages.
        """
        ...

    def question(self, ask: Ask, model: str, *, plain: bool) -> bytes:
        """A request of our own; ``plain`` leaves out schema and temperature, which some refuse."""
        ...

    def asking_for_usage(self, raw: bytes) -> bytes:
        """A streamed request's body that also asks for the usage of its answer."""
        ...

    def with_cache_key(self, raw: bytes, key: str) -> bytes:
        """A request's body, which names no cache of the provider's, with this plain ASCII name for it."""
        ...

    def followed_by(self, raw: bytes, messages: Sequence[bytes]) -> bytes:
        """A request's body with these messages after its own."""
        ...

    def without_tools(self, raw: bytes, is_meant: Callable[[str], bool]) -> bytes:
        """A request's body without these tools; without anything about tools, where none is left."""
        ...

    def refusal(self, status: int, body: bytes, request: bytes = b"") -> Overflow | None:
        """What a refusal says of the context window; None where it is about anything else.

        ``body`` is that of an error response, or the data of an error event in a stream of status 200.
        ``request`` is the body that was refused.
        """
        ...

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that came in one piece."""
        ...

    def answer_stream(self) -> AnswerStream:
        """Collects one that streams."""
        ...

    def stream_editor(self, rules: Rules) -> StreamEditor:
        """Edits one that streams."""
        ...

    def answer_editor(self, rules: Rules) -> AnswerEditor:
        """Edits one that comes in one piece."""
        ...

    def usage_remover(self) -> StreamFilter:
        """Takes the usage out of one stream whose client did not ask for it (law 1)."""
        ...

    def final_event(self) -> FinalEvent:
        """Holds back the final event of one stream."""
        ...

    def error_event(self, body: Mapping[str, Any]) -> bytes:
        """The event of a stream that tells an error."""
        ...

    def stored_answer(
        self, message: bytes, reply: Reply, *, name: str, created: float, stream: bool, with_usage: bool
    ) -> bytes:
        """An answer out of a transcript, told once more; a stream tells its usage only ``with_usage``.

        ``name`` identifies it where it had no id of its own; ``created`` is in seconds since 1970.
        """
        ...
