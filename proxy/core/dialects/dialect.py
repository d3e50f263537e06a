"""What a dialect brings: how one API writes a conversation, read and written in words that fit them all.

A message is what stands in one slice of a body: a message of Chat Completions, an item of Responses, a
message of Anthropic's. Whoever plans, remembers or tells knows it by :class:`Content` alone, and writes none
but through a :class:`Dialect`, so another API is a folder beside this file, and no change where conversations
are planned, remembered or told. What goes over the wire is its :class:`~proxy.core.dialects.wire.WireFormat`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, Self

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


class Dialect(Protocol):
    """How an API writes the messages of a conversation; it has no state."""

    name: str
    """By which a stored session says that its messages are written so."""

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
