"""What a dialect brings: how one API writes a conversation, its requests and its answers.

A message is what stands in one slice of a body: a message of Chat Completions, an item of Responses, a
message of Anthropic's. Whoever plans, remembers or sends knows it by :class:`Content` alone, a request by
:class:`Body`, an answer by :mod:`proxy.core.dialects.answers`, and writes none but through a
:class:`Dialect`. So another API is a folder beside this file, an entry in ``registry.py``, a route in
``proxy/http/front.py``, and an engine that is assembled with it in ``proxy/app.py``; planning, sessions and
store stay as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from proxy.core.dialects.answers import (
    Answer,
    AnswerEditor,
    AnswerStream,
    Ask,
    Refusal,
    Reply,
    Rules,
    StreamFilter,
)
from proxy.core.persistent import Grown

Call = tuple[str, str, str]
"""A tool call: id, name, and arguments as text."""
Size = tuple[int, int]
"""Of a picture: width and height in pixels."""


class Content(ABC):
    """A decoded message, every odd shape tolerated: what is not as expected reads as absent.

    In the place of lone surrogates it has U+FFFD, so that what is read of it can be written elsewhere.
    """

    __slots__ = ()

    role: str
    """In the words of policies: user, assistant, or one of those in :mod:`.conversation.messages`."""
    parts: Sequence[Mapping[str, Any]]
    """What it says and shows, part by part; a part that is text has it under ``text``."""
    calls: Sequence[Call] = ()
    """The calls that it makes."""
    answers: Sequence[str] = ()
    """The ids of the calls whose results it brings; empty text where a result names none."""
    name: str = ""
    """Of who speaks, or of the tool that does."""
    refusal: str = ""
    """What an assistant says in refusing."""
    is_exact: bool = True
    """Whether it is the message as it was written: it had no lone surrogates."""

    @abstractmethod
    def with_texts(self, texts: Sequence[str]) -> Self:
        """The message with these in the place of :meth:`texts`, and all else as it was."""

    @abstractmethod
    def with_text(self, text: str) -> Self:
        """The message with this for all that it says and shows, and all else as it was."""

    @abstractmethod
    def written(self) -> bytes:
        """The message as it goes into a body."""

    @property
    def exact(self) -> Self:
        """The message as it was written, lone surrogates and all."""
        return self

    def without_pictures(self, line: Callable[[Size | None], str]) -> Self | None:
        """The message with a ``line`` for each picture; None where it has none, or more than texts beside.

        ``line`` is told a picture's size, if that can be seen.
        """
        del line
        return None

    def pieces(self) -> Sequence[Content]:
        """Each result that it brings, in the order of ``answers``, then what is said beside them.

        Each is a message by itself, with the role of whoever says that; one is all of the message.
        """
        return (self,)

    def with_results(self, texts: Sequence[str]) -> Content:
        """The message with these for the results that it brings, and all else as it was."""
        (text,) = texts
        return self.with_text(text)

    def shown_tokens(self, model: str) -> int:
        """Tokens that ``model`` takes for what it shows rather than says."""
        return 0

    def texts(self) -> list[str]:
        """The text parts."""
        return [part["text"] for part in self.parts if isinstance(part.get("text"), str)]

    @property
    def text(self) -> str:
        """All text parts, one under the other."""
        return "\n".join(self.texts())

    def countable(self) -> str:
        """The text that costs tokens: content, names and arguments of calls, refusal."""
        texts = self.texts()
        for _, name, arguments in self.calls:
            texts += [name, arguments]
        texts += filter(None, (self.name, self.refusal))
        return "\n".join(texts)


class Body(ABC):
    """A request's body as the client wrote it; what is made of it keeps every other byte."""

    raw: bytes
    messages: Grown[bytes]
    """Each message's bytes, in order."""
    members: Mapping[str, Any]
    """What stands in it beside one another, by name, in whatever form."""
    model: str = ""
    person: str = ""
    """Who is talking, where the client says so."""
    is_streamed: bool = False
    """Whether its answer is to be a stream of events."""
    wants_usage: bool = False
    """Whether a streamed answer is to tell its usage."""
    wants_several: bool = False
    """Whether several answers are asked for, to choose from."""
    names_cache: bool = False
    """Whether it names the provider's cache."""
    output_limit: int | None = None
    """Tokens that its answer may have; None where it does not say."""
    has_tools: bool = False
    may_hide_calls: bool = False
    """Whether calls may be answered out of the client's sight: one answer, which may call any tool."""
    leaves_answer_open: bool = False
    """Whether the model may answer in plain words: no format is asked for, and no call must be made."""

    @abstractmethod
    def get(self, name: str) -> Any:
        """The value of one of its members, decoded leniently; None where it is absent."""

    @abstractmethod
    def head_members(self) -> list[bytes]:
        """What stands in it beside messages and costs tokens: tools, the response format."""

    @abstractmethod
    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> bytes:
        """A tool of ours as this body writes tools; ``parameters`` is a JSON schema.

        Empty where the client does not leave to the model which tool it calls, or has one of this name.
        """

    @abstractmethod
    def with_tool(self, tool: bytes) -> Body:
        """The body with one more tool, after the client's."""

    @abstractmethod
    def without(self, name: str) -> Body:
        """The body without one of its members (never the only one)."""

    @abstractmethod
    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        """The body with other messages."""

    @abstractmethod
    def beginning(self) -> Beginning | None:
        """The body up to its last message; None where that cannot be told from what follows it."""


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


class Dialect(Protocol):
    """How an API is spoken; it has no state."""

    name: str
    """By which a stored session says that its messages are written so."""
    path: str
    """Where its requests go, behind the base URL."""

    # --- messages ---

    def read(self, raw: bytes) -> Content:
        """Decode a message's bytes; what is no message reads as an empty one."""
        ...

    def may_hold_pictures(self, raw: bytes) -> bool:
        """Whether a message may have pictures, at a glance: others are not decoded to look for them."""
        ...

    def holds_reasoning(self, raw: bytes) -> bool:
        """Whether a message, or one of several joined by commas, has what a model thought, signed or not."""
        ...

    def holds_signed_reasoning(self, raw: bytes) -> bool:
        """Whether a message has reasoning that its provider takes back only after what it was made after."""
        ...

    def without_reasoning(self, raw: bytes) -> bytes:
        """A message, or several joined by commas, without such reasoning, every other byte as it was."""
        ...

    def note(self, text: str, role: str) -> bytes:
        """A text of our own as a message: a note, or what a caller has handed in."""
        ...

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        """A call of a tool as a message of the assistant's."""
        ...

    def result(self, call_id: str, text: str) -> bytes:
        """What came of a call, as a message."""
        ...

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        """``prelude`` and ``view`` for a model that wants alternating roles.

        ``notes`` are places in the view.
        """
        ...

    # --- requests ---

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

    # What follows is made of bodies that were read before, and keeps every other byte.

    def repeated(self, raw: bytes) -> bytes:
        """A client's request as we ask it once more: in one piece, in nobody's name, and not to be kept."""
        ...

    def asking_for_usage(self, raw: bytes) -> bytes:
        """A streamed request's body that also asks for the usage of its answer, if it can."""
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

    # --- answers ---

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

    def stream_editor(self, rules: Rules) -> AnswerEditor:
        """Edits one that streams."""
        ...

    def answer_editor(self, rules: Rules) -> AnswerEditor:
        """Edits one that comes in one piece."""
        ...

    def usage_remover(self) -> StreamFilter:
        """Takes the usage out of one stream whose client did not ask for it (law 1)."""
        ...

    def final_event(self) -> StreamFilter:
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
