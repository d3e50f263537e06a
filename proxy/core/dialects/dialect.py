"""The interfaces that a dialect implements: how one API writes conversations, requests and answers.

A message is one slice of a body: a message of Chat Completions, an item of Responses, a message of
Anthropic's API. Code that plans, remembers or sends sees a message only as :class:`Content`, a request only
as :class:`Body`, and an answer only through :mod:`proxy.core.dialects.answers`; it writes them only through
a :class:`Dialect`. So supporting another API takes a folder beside this file, an entry in ``registry.py``, a
route in ``proxy/http/front.py``, and an engine assembled with it in ``proxy/app.py``; planning, sessions and
store do not change.
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
    HiddenCallRules,
    Refusal,
    Reply,
    StreamFilter,
)
from proxy.core.persistent import PersistentList

MODEL_NAME_CHARACTERS = 256
"""Characters of a model's name that are used as a key: clients choose names of any length."""

Call = tuple[str, str, str]
"""A tool call: id, name, and arguments as text."""
Size = tuple[int, int]
"""A picture's width and height in pixels."""


class Content(ABC):
    """A decoded message. Malformed shapes are tolerated: a member of an unexpected type counts as absent.

    Lone surrogates are replaced with U+FFFD, so that its texts can be encoded and written elsewhere.
    """

    __slots__ = ()

    role: str
    """The role as policies name it: user, assistant, or one of those in
    :mod:`proxy.core.conversation.messages`."""
    parts: Sequence[Mapping[str, Any]]
    """The content parts; a text part has its text under ``text``."""
    calls: Sequence[Call] = ()
    """The tool calls that the message makes."""
    result_of: Sequence[str] = ()
    """Ids of the tool calls whose results the message carries; an empty string where a result names none."""
    name: str = ""
    """Name of the speaker, or of the tool."""
    refusal: str = ""
    """The text of an assistant's refusal."""
    audio: str = ""
    """The id of an answer in audio."""
    is_exact: bool = True
    """Whether nothing was replaced: the original message had no lone surrogates."""

    @abstractmethod
    def with_texts(self, texts: Sequence[str]) -> Self:
        """Return the message with its :meth:`texts` replaced by these; everything else is unchanged."""

    @abstractmethod
    def with_text(self, text: str) -> Self:
        """Return the message with all of its content replaced by this text; the rest is unchanged."""

    @abstractmethod
    def written(self) -> bytes:
        """The message's bytes as they go into a body."""

    @property
    def exact(self) -> Self:
        """The message as originally written, including lone surrogates."""
        return self

    def without_pictures(self, line: Callable[[Size | None], str]) -> Self | None:
        """Return the message with each picture replaced by a ``line`` of text.

        None if it has no pictures, or has parts other than texts and pictures. ``line`` gets the picture's
        size, or None if that cannot be determined.
        """
        del line
        return None

    def pieces(self) -> Sequence[Content]:
        """Split the message: each tool result, in the order of ``result_of``, then the rest of its content.

        Each piece is a message of its own, with its speaker's role; a single piece is the whole message.
        """
        return (self,)

    def with_results(self, texts: Sequence[str]) -> Content:
        """Return the message with the texts of its tool results replaced; everything else is unchanged."""
        (text,) = texts
        return self.with_text(text)

    def media_tokens(self, model: str) -> int:
        """Tokens that ``model`` counts for content other than text, such as images, audio and files."""
        return 0

    def texts(self) -> list[str]:
        """The text parts."""
        return [part["text"] for part in self.parts if isinstance(part.get("text"), str)]

    @property
    def text(self) -> str:
        """All text parts, joined by newlines."""
        return "\n".join(self.texts())

    def countable(self) -> str:
        """The text that costs tokens: content, names and arguments of calls, speaker's name, refusal."""
        texts = self.texts()
        for _, name, arguments in self.calls:
            texts += [name, arguments]
        texts += filter(None, (self.name, self.refusal))
        return "\n".join(texts)


class Body(ABC):
    """A request's body as the client wrote it; changed copies keep every other byte."""

    raw: bytes
    messages: PersistentList[bytes]
    """Each message's bytes, in order."""
    members: Mapping[str, Any]
    """The top-level members by name, in whatever form the dialect keeps them."""
    model: str = ""
    person: str = ""
    """The person who is talking, if the client names one."""
    is_streamed: bool = False
    """Whether the answer is requested as a stream of events."""
    wants_usage: bool = False
    """Whether a streamed answer is to include its usage."""
    wants_several: bool = False
    """Whether several alternative answers are requested."""
    has_cache_key: bool = False
    """Whether the body sets a key for the provider's prompt cache."""
    has_provider_additions: bool = False
    """Whether the provider adds to the prompt, such as what a web search finds, which nobody can count."""
    output_limit: int | None = None
    """Limit of the answer in tokens; None where the body sets none."""
    has_tools: bool = False
    may_hide_calls: bool = False
    """Whether the proxy may answer tool calls unseen by the client.

    It may if one answer is requested and the choice of tools is left to the model.
    """
    demands_call: bool = False
    """Whether the model must call a tool, whichever it chooses."""
    leaves_answer_open: bool = False
    """Whether the model may answer in plain text: no response format is set and no tool call is required."""

    @property
    def has_format(self) -> bool:
        """Whether the answer must have a form other than plain text, such as JSON."""
        return False

    @abstractmethod
    def get(self, name: str) -> Any:
        """The value of a top-level member, decoded leniently; None where it is absent."""

    @abstractmethod
    def head_members(self) -> list[bytes]:
        """The members other than messages that cost tokens: tools, the response format."""

    @abstractmethod
    def tool(self, name: str, description: str, parameters: Mapping[str, Any]) -> bytes:
        """A tool of the proxy's, written in the form of this body; ``parameters`` is a JSON schema.

        Empty where the client does not leave the choice of tools to the model, or has a tool of this name.
        """

    @abstractmethod
    def with_tool(self, tool: bytes) -> Body:
        """Return the body with one more tool, after the client's."""

    @abstractmethod
    def without(self, name: str) -> Body:
        """Return the body without one of its members (never the only one)."""

    @abstractmethod
    def with_messages(self, messages: Iterable[bytes | bytearray]) -> bytes:
        """Return the body's bytes with its messages replaced by these."""

    @abstractmethod
    def prefix(self) -> BodyPrefix | None:
        """The body up to the end of its last message; None where that end cannot be located."""


class BodyPrefix(Protocol):
    """The leading part of a body, used to read a later body that begins with the same bytes."""

    @property
    def end(self) -> int:
        """Length of that part in bytes."""
        ...

    @property
    def weight(self) -> int:
        """Bytes of memory that keeping this takes, without the messages."""
        ...

    def continued(self, raw: bytes, max_messages: int) -> Body | None:
        """Read a body whose first ``end`` bytes are known to be the same.

        None where the body must be read from its start, for instance to report what is wrong with it.
        """
        ...


class Dialect(Protocol):
    """Reads and writes one API's messages, requests and answers. It has no state."""

    name: str
    """The name under which a stored session records the format of its messages."""
    path: str
    """Path of the API's requests, relative to the base URL."""

    # --- messages ---

    def read(self, raw: bytes) -> Content:
        """Decode a message's bytes; anything that is not a message is read as an empty one."""
        ...

    def may_hold_pictures(self, raw: bytes) -> bool:
        """Cheap check whether a message may have pictures, so that others need not be decoded."""
        ...

    def holds_reasoning(self, raw: bytes) -> bool:
        """Whether a message, or one of several joined by commas, has a model's reasoning, signed or not."""
        ...

    def holds_signed_reasoning(self, raw: bytes) -> bool:
        """Whether a message has reasoning that its provider accepts only after an unchanged prefix."""
        ...

    def without_reasoning(self, raw: bytes) -> bytes:
        """Remove such signed reasoning from a message, or from several joined by commas.

        Every other byte is unchanged.
        """
        ...

    def sent_back(self, answer: bytes) -> bytes:
        """Return an answer's message as a request may have it, without what only answers have."""
        ...

    def note(self, text: str, role: str) -> bytes:
        """Write a text as a message of the proxy's: a note, or a text that a caller handed in."""
        ...

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Write a tool call as an assistant message."""
        ...

    def result(self, call_id: str, text: str) -> bytes:
        """Write the result of a tool call as a message."""
        ...

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        """Return ``prelude`` and ``view`` as one list, for a model that wants alternating roles.

        ``notes`` are the positions of notes in the view.
        """
        ...

    # --- requests ---

    def model_of(self, raw: bytes) -> str:
        """The model that a body names, read before the rest; empty where it is not text or cannot be read."""
        ...

    def read_body(self, raw: bytes, max_messages: int) -> Body:
        """Split a request's body into its members and messages.

        Raises InvalidEncoding, InvalidJSON (with the offset in bytes), JSONTooDeep, InvalidType,
        MissingParameter, EmptyArray or TooManyMessages.
        """
        ...

    def question(self, ask: Ask, model: str, *, minimal: bool) -> bytes:
        """Write a request of the proxy's; ``minimal``: without schema and temperature, which some refuse."""
        ...

    def question_after(self, raw: bytes, ask: Ask, *, minimal: bool) -> bytes:
        """Write a request of the proxy's that continues another request, to reuse its prompt cache.

        It has the same messages, byte for byte, the other members that the provider's prompt depends on, and
        one more user message: ``ask``. Other members are left out, such as the user and storage options.
        """
        ...

    # The next methods take bodies that have been read without error, and keep every other byte.

    def repeated(self, raw: bytes) -> bytes:
        """A client's request for the proxy to repeat: not streamed, without a user, not to be stored."""
        ...

    def streamed(self, raw: bytes) -> bytes:
        """A request's body that asks for its answer as a stream, and for the usage of that."""
        ...

    def asking_for_usage(self, raw: bytes) -> bytes:
        """A streamed request's body that also asks for the usage of its answer, if that can be added."""
        ...

    def with_cache_key(self, raw: bytes, key: str) -> bytes:
        """Add a key for the provider's prompt cache, in plain ASCII, to a request's body that has none."""
        ...

    def followed_by(self, raw: bytes, messages: Sequence[bytes]) -> bytes:
        """Append messages to those of a request's body."""
        ...

    def without_members(self, raw: bytes, names: Collection[str]) -> bytes:
        """Remove members with these names from the messages of a request's body."""
        ...

    def without_tools(self, raw: bytes, is_meant: Callable[[str], bool]) -> bytes:
        """Remove the tools whose names ``is_meant`` accepts from a request's body.

        If no tool is left, everything else about tools is removed too.
        """
        ...

    # --- answers ---

    def refusal(self, status: int, body: bytes, request: bytes = b"") -> Refusal:
        """Read from an upstream's refusal why it refused, as far as a changed request could avoid it.

        ``body`` is the body of an error response, or the data of an error event in a stream of status 200.
        ``request`` is the body that was refused.
        """
        ...

    def read_answer(self, body: bytes) -> Answer:
        """Read an answer that was not streamed."""
        ...

    def answer_stream(self) -> AnswerStream:
        """Return a collector of one streamed answer."""
        ...

    def stream_editor(self, rules: HiddenCallRules) -> AnswerEditor:
        """Return an editor of one streamed answer."""
        ...

    def answer_editor(self, rules: HiddenCallRules) -> AnswerEditor:
        """Return an editor of one answer that is not streamed."""
        ...

    def usage_remover(self) -> StreamFilter:
        """Return a filter that removes the usage from one stream whose client did not ask for it (law 1)."""
        ...

    def final_event(self) -> StreamFilter:
        """Return a filter that holds back the final event of one stream."""
        ...

    def error_event(self, body: Mapping[str, Any]) -> bytes:
        """Write an error as an event of a stream."""
        ...

    def stored_answer(
        self, message: bytes, reply: Reply, *, name: str, created: float, stream: bool, with_usage: bool
    ) -> bytes:
        """Write an answer from a transcript as a response, to send it again.

        A stream includes its usage only ``with_usage``. ``name`` identifies the answer where it had no id of
        its own; ``created`` is in seconds since 1970.
        """
        ...
