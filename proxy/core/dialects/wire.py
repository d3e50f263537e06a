"""How one API writes requests and answers: what moves and records them knows no more of it than this.

A :class:`WireFormat` is a :class:`~proxy.core.dialects.dialect.Dialect` that can be spoken with an upstream.
The engine is given one, and reads every body, answer and refusal through it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from proxy.core.dialects.answers import (
    Answer,
    AnswerEditor,
    AnswerStream,
    Ask,
    FinalEvent,
    Refusal,
    Reply,
    Rules,
    StreamEditor,
    StreamFilter,
)
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

    @property
    def leaves_answer_open(self) -> bool:
        """Whether the model may answer in plain words: no format is asked for, and no call must be made."""
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


# --- the whole ---


class WireFormat(Dialect, Protocol):
    """How an API is spoken; it has no state."""

    path: str
    """Where its requests go, behind the base URL."""
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

    def question_after(self, raw: bytes, ask: Ask, *, plain: bool) -> bytes:
        """A request of our own that goes on from another's body, which its provider has kept, if possible.

        It has the same messages, byte for byte, what else the provider's prompt depends on, and one more user
        message: ``ask``. It has nothing else of the body: not who is talking, nor what is kept of it.
        """
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

    def refusal(self, status: int, body: bytes, request: bytes = b"") -> Refusal:
        """What a refusal says that another request may heed.

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
