"""Commands and observations: the tool calls of agents that use plain text, found by their form and rhythm.

Such an agent ends its message with a command, and the output of the command comes as a user message (Yao et
al. 2022, ReAct; SWE-agent, OpenHands). By which signs one is found is in docs/policies.md ("Agents that speak
in plain text"). All of this is a pure function of the history up to the message (law 3).
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Self

from proxy.core.conversation.messages import HEAD_ROLES, Message
from proxy.core.dialects.dialect import Call, Content, Size
from proxy.core.extraction.printed import Lines, Run, beginning_of, is_sure
from proxy.core.lazy import cached_for_short_texts, lazy
from proxy.core.text.lexicon.words import COMMANDS, INPUTS, OBSERVED

# --- commands ---

_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*", re.MULTILINE)
_CLOSING_TAG = re.compile(
    r"</(?P<name>[\w:-]{0,40}(?:execute|function|tool|invoke|bash|shell|command|action|run|python|code|call)[\w:-]{0,40}"
    r"|[a-z]+(?:_[a-z]+)+)>\s*\Z",
    re.IGNORECASE,
)
_LABELLED = re.compile(rf"^[ \t#*]*(?:{COMMANDS})[ \t*]*[:\uff1a]", re.IGNORECASE | re.MULTILINE)
_OBJECT = re.compile(r'\s*\{.*"(?:action|command|cmd|tool|tool_name|function|name)"\s*:.*\}\s*\Z', re.DOTALL)
_CALLS = re.compile(
    rf"{_LABELLED.pattern}(?:[\s*]*[\w.-]*(?:\(| ?[\[{{])"
    rf"|[^\n]*\n[ \t#*]*(?:{COMMANDS})?[ \t]*(?:{INPUTS})[ \t*]*[:\uff1a])",
    re.IGNORECASE,
)
"""A command in the form of a call: `Action: search[quay]`, or with its input on a line of its own."""
_ALONE = re.compile(rf"\s*(?:{OBSERVED})[ \t]*[:\uff1a][ \t\r]*\n", re.IGNORECASE)
"""A label on a line of its own that people hardly write so."""
_AT_PROMPT = re.compile(r"^\$ \S.*\Z", re.MULTILINE)
_NEAR = 400
"""Largest length in characters of a labelled command."""


def command_in(text: str) -> str:
    """The command that an assistant's text ends with; "" where there is none."""
    text = text.rstrip()
    fences = [*_FENCE.finditer(text)]
    if fences and ("\n" not in text[fences[-1].start() :] or len(fences) % 2):  # a stop word may have cut it
        opening = fences[-1 if len(fences) % 2 else -2]
        return _FENCE.sub("", text[opening.start() :]).strip()
    if closing := _CLOSING_TAG.search(text):
        start = text.rfind(f"<{closing['name'].partition('=')[0]}", 0, closing.start())
        return text[start:] if start >= 0 else ""
    if text[-1:] == "}" and _OBJECT.match(text):
        return text
    labels = [match.start() for match in _LABELLED.finditer(text)][-2:]  # an action, and its input
    if labels and len(text) - labels[-1] <= _NEAR:
        return text[labels[0] :]
    prompt = _AT_PROMPT.search(text)
    return prompt[0] if prompt else ""


class Command(Content):
    """An assistant message, with the command that it ends with as a tool call."""

    def __init__(self, content: Content) -> None:
        text = content.text
        command = command_in(text)
        self._content = content
        self.role = content.role
        self.parts = [{"type": "text", "text": text.removesuffix(command)}]
        self.calls: Sequence[Call] = (("", "command", command),)

    def with_texts(self, texts: Sequence[str]) -> Self:
        raise NotImplementedError("what an assistant says goes out as it came")

    def with_text(self, text: str) -> Self:
        raise NotImplementedError("what an assistant says goes out as it came")

    def written(self) -> bytes:
        return self._content.written()


# --- observations ---

_lines_of = cached_for_short_texts(16, longest=50_000)(Lines)
"""A text is looked through to see whether it is output, and soon again for its sides."""


class Observation(Content):
    """A user message with the output of a command, read as a tool result.

    Other text beside the output is a piece of its own, and the user's, unless all of it is output.
    """

    def __init__(self, content: Content, *, is_whole: bool = False) -> None:
        self._content = content
        self._is_whole = is_whole
        self.role = "tool"
        self.result_of: Sequence[str] = ("",)
        self.parts = content.parts

    @lazy
    def _texts(self) -> list[list[Run]]:
        """The runs of each text of the message."""
        texts = self._content.texts()
        if self._is_whole:
            return [[Run(is_output=True, text=text)] for text in texts]
        return [[*_lines_of(text).runs] for text in texts]

    @property
    def _sides(self) -> tuple[str, str]:
        """The program's output, and the other text beside it."""
        runs = [run for runs in self._texts for run in runs]
        output, beside = (
            "\n".join(run.text for run in runs if run.is_output is side).strip() for side in (True, False)
        )
        return output, beside

    def _of(self, content: Content) -> Self:
        return type(self)(content, is_whole=self._is_whole)

    @property
    def exact(self) -> Self:
        return self if self._content.is_exact else self._of(self._content.exact)

    def texts(self) -> list[str]:
        """The runs of both sides separately, so that clipping the output spares the text beside it."""
        return [run.text for runs in self._texts for run in runs]

    def with_texts(self, texts: Sequence[str]) -> Self:
        left = iter(texts)
        joined = ["\n".join(islice(left, len(runs))) for runs in self._texts]
        return self._of(self._content.with_texts(joined))

    def with_text(self, text: str) -> Self:
        return self._of(self._content.with_text(text))

    def written(self) -> bytes:
        return self._content.written()

    def without_pictures(self, line: Callable[[Size | None], str]) -> Self | None:
        left = self._content.without_pictures(line)
        return None if left is None else self._of(left)

    def media_tokens(self, model: str) -> int:
        return self._content.media_tokens(model)

    def pieces(self) -> Sequence[Content]:
        output, beside = self._sides
        return (self.with_text(output), self._content.with_text(beside)) if beside else (self,)

    def with_results(self, texts: Sequence[str]) -> Content:
        beside = self._sides[1]
        return self._content.with_text("\n\n".join([*texts, beside] if beside else texts))


def _is_output(content: Content, is_in_rhythm: Callable[[], bool]) -> bool:
    """Whether a message after a command is its output: most of what is framed as such, or all of it.

    Unframed text only counts within the rhythm.
    """
    texts = [_lines_of(text) for text in content.texts()]
    is_framed = any(text.is_framed for text in texts)
    sizes, marked = sum(text.size for text in texts), sum(text.marked for text in texts)
    is_output = marked > 0 and (2 * marked >= sizes if is_framed else marked == sizes)
    return is_output and (is_framed or is_in_rhythm())


def in_plain_text(content: Content, *, is_whole: bool = False) -> Content:
    """Read a message as an observation if it is the user's, else as a command."""
    return Observation(content, is_whole=is_whole) if content.role == "user" else Command(content)


# --- the rhythm of a session ---

_RHYTHM = 4
"""Number of newest assistant messages of which at most one may lack a command, or be answered otherwise."""
_REACH = 200
"""Number of messages in which those are looked for."""


class Answered(NamedTuple):
    """The command that a message gives, or that it brings the output of."""

    command: str
    """"" for a tool call, which is no text."""
    is_whole: bool = False
    """Of an observation: whether all of it is output, as the rhythm says."""


class _Rhythm:
    """Whether the assistant's newest messages give commands, and how the user's messages after them begin."""

    def __init__(self, messages: Sequence[Message], content: Callable[[int], Content]) -> None:
        self._messages = messages
        self._content = content
        self._commands: dict[int, str] = {}

    def command_at(self, place: int) -> str:
        """The command in plain text of the assistant's message there."""
        if place not in self._commands:
            self._commands[place] = command_in(self._content(place).text)
        return self._commands[place]

    def has_commands(self, place: int) -> bool:
        """Whether the newest messages up to there give commands."""
        newest = [*map(self._gives_command, self._newest(place))]
        return newest.count(False) <= (len(newest) == _RHYTHM)

    def expects(self, place: int, beginning: str) -> bool:
        """Whether the answers to the commands before the newest one up to there begin so.

        Where none was answered yet, the command must be under a label itself, as the answer is.
        """
        newest = self._newest(place)
        if not newest:  # a result that nothing called for
            return False
        now, *earlier = newest
        answers = [self._answer(at) for at in earlier if self._gives_command(at)]
        alike = [
            beginning_of(self._content(at).text) == beginning
            for at in answers
            if self._messages[at].role == "user"
        ]
        if not alike:
            return is_sure(beginning) and _LABELLED.match(self.command_at(now)) is not None
        least = 1 if is_sure(beginning) else 2
        return alike.count(True) >= least and alike.count(False) <= (len(alike) == _RHYTHM - 1)

    def _newest(self, place: int) -> list[int]:
        looked_at = range(place, max(place - _REACH, -1), -1)
        assistants = (at for at in looked_at if self._messages[at].role == "assistant")
        return [*islice(assistants, _RHYTHM)]

    def _gives_command(self, place: int) -> bool:
        return bool(self._messages[place].calls or self.command_at(place))

    def _answer(self, place: int) -> int:
        """Position of the next message behind the one there and behind its tool results."""
        after = range(place + 1, len(self._messages))
        return next(
            at for at in after if not (self._messages[at].is_result or self._messages[at].role in HEAD_ROLES)
        )


def answered_commands(
    messages: Sequence[Message], content: Callable[[int], Content], first: int = 0
) -> dict[int, Answered]:
    """Commands and observations from ``first`` on: for the position of either, the command.

    ``content`` decodes a message; of the messages before ``first`` only the few newest are read.
    """
    found: dict[int, Answered] = {}
    rhythm = _Rhythm(messages, content)
    before = next((at for at in range(first - 1, -1, -1) if messages[at].role not in HEAD_ROLES), None)
    for place in range(first, len(messages)):
        message = messages[place]
        if message.role in HEAD_ROLES:
            continue
        if message.role == "user" and not message.result_of and before is not None:
            command = rhythm.command_at(before) if messages[before].is_final else ""
            if command or messages[before].is_result:
                said = content(place)
                is_whole = _is_whole(said, rhythm, before)
                if is_whole or (command and _is_output(said, partial(rhythm.has_commands, before))):
                    found[place] = Answered(command, is_whole)
            if command and place in found:
                found[before] = Answered(command)
        before = place
    return found


def _is_whole(content: Content, rhythm: _Rhythm, before: int) -> bool:
    """Whether a message is output as a whole: it has one text, which begins as those before it."""
    texts = content.texts()
    if len(texts) != 1 or not rhythm.has_commands(before):
        return False
    (text,) = texts
    beginning = beginning_of(text)
    return (
        rhythm.expects(before, beginning)
        and (not is_sure(beginning) or _is_for_a_machine(rhythm.command_at(before), text))
        and _lines_of(text).is_undivided
    )


def _is_for_a_machine(command: str, answer: str) -> bool:
    """Whether a program reads a command, as its form or the form of its answer shows.

    People write under labels, too, and assistants answer them in code and under labels of their own.
    """
    if _LABELLED.match(command):
        return _CALLS.match(command) is not None
    is_call = _CLOSING_TAG.search(command) or _OBJECT.match(command)
    return is_call is not None or _ALONE.match(answer) is not None
