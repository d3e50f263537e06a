"""What of a conversation may be remembered: what people and the model said of their own, a line each.

Never remembered are system messages, results of tools, files, pages and programs that a message carries, what
is ephemeral, and secrets. Nor is what the model only passed on: an answer after a result, a page or a picture
within its exchange, and any sentence that says again what came from elsewhere. So what is made from lines,
items as well as texts, has no other lineage than these.

Of what a person writes, everything in frames (tags, fences, quotes, labels), what follows a line that
announces it ("this article:"), and everything printed is somebody else's; and so is all of a message that is
longer than people type.
"""

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import accumulate, takewhile
from typing import NamedTuple

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.observations import answered_commands, in_plain_text
from proxy.core.extraction.printed import Lines
from proxy.core.memory.records import Trust
from proxy.core.memory.redaction import redacted
from proxy.core.planning.chain import Chain
from proxy.core.policy.sections import Retention
from proxy.core.recall.passages import classes_of
from proxy.core.text.lexicon.remembering import MATERIAL
from proxy.core.text.words import language_of, one_line, sentences_in, share, words_of

SOURCE_TOKENS = 12_000
"""Counted tokens of lines that one call is asked about."""
_TYPED = 4_000
"""Characters that people type in one message, at most."""
_SAID = 2_000
"""Characters of an answer, from its beginning."""
_NAME = 60
_FEW_LINES = 3
_LOOKED_BACK = 200
"""Messages before the first one that is read, in which it is looked for what came from elsewhere."""
_PASSED_ON, _LEAST_WORDS = 0.6, 2
"""Of a sentence's words, how many are found in what is passed on; and how many it has at least."""
_SAMPLE = 8
"""Messages of people by which the language is told."""


class Utterance(NamedTuple):
    """What somebody said."""

    at: float
    """Seconds since 1970, UTC."""
    trust: Trust
    """Who said it: a person, or the model."""
    name: str
    text: str
    """One line, secrets blotted out."""
    message: bytes
    """Chain hash."""

    def __str__(self) -> str:
        return f"[{datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M}] {self.name}: {self.text}"


def utterances_of(
    chain: Chain,
    arrivals: Sequence[float],
    rules: Sequence[Retention],
    people: Sequence[str] = (),
    *,
    first: int = 0,
    elsewhere: Sequence[str] = (),
    served: Collection[bytes] = (),
) -> list[Utterance]:
    """The lines of a chain's messages from ``first`` on; ``arrivals`` (since 1970) are of all of them.

    ``people`` are whom the request named that brought each message; empty where it named nobody.
    ``elsewhere`` is what the session was told beside its messages, each text by itself: its head, what was
    handed in, and the lines of what it was told of earlier sessions, which have too many words together.
    ``served`` are chain hashes of answers in which calls were answered unseen.
    """
    start = max(first - _LOOKED_BACK, 0)
    commands = answered_commands(chain.messages, chain.content, start)
    may_be_quoted = classes_of(chain, rules).may_be_quoted
    reader = _Reader(elsewhere)
    lines: list[Utterance] = []
    for place in range(start, len(chain)):
        content = chain.content(place)
        if place in commands:
            content = in_plain_text(content)
        person = people[place] if people else ""
        said = reader.own(content, person, is_served=chain.hashes[place] in served)
        if place >= first and may_be_quoted(place):
            lines += [Utterance(arrivals[place], *each, chain.hashes[place]) for each in said]
    return lines


def newest(
    lines: Sequence[Utterance], count: Callable[[str], int], most: int = SOURCE_TOKENS
) -> list[Utterance]:
    """The newest lines that have so many counted tokens together, in their order."""
    sizes = accumulate(count(str(line)) for line in reversed(lines))
    kept = sum(1 for _ in takewhile(lambda total: total <= most, sizes))
    return [*lines[len(lines) - kept :]]


def language_of_utterances(lines: Sequence[Utterance]) -> str:
    """The language in which people speak in them, else the model."""
    people = [line.text for line in lines if line.trust is Trust.USER]
    return language_of(" ".join((people or [line.text for line in lines])[-_SAMPLE:]))


class _Reader:
    """Reads messages in their order, and knows what came from elsewhere before each."""

    def __init__(self, elsewhere: Sequence[str]) -> None:
        self._foreign = [words_of(text) for text in elsewhere]
        self._is_passing_on = False
        """Whether something came from elsewhere since the exchange began."""
        self._before = ""

    def own(self, content: Content, person: str, *, is_served: bool) -> list[tuple[Trust, str, str]]:
        """What somebody says of their own in a message: who, under which name, and what.

        Who has no name in it is called by that of the ``person`` whose request brought it.
        """
        if content.role == "user" and not content.answers and self._before != "user":
            self._is_passing_on = False
        if content.role not in HEAD_ROLES:
            self._before = content.role
        self._is_passing_on |= is_served
        found: list[tuple[Trust, str, str]] = []
        for piece in content.pieces():
            if piece.role == "user":
                text = self._typed(piece)
                found.append((Trust.USER, _named(piece.name or person or piece.role), text))
            elif piece.role == "assistant":
                text = "" if self._is_passing_on or piece.calls else self._said(piece.text)
                found.append((Trust.ASSISTANT, _named(piece.name or piece.role), text))
            else:
                self._is_passing_on |= piece.role in TOOL_ROLES
                self._foreign.append(words_of(piece.text))
        return [each for each in found if each[-1]]

    def _typed(self, content: Content) -> str:
        """What of a person's message they wrote themselves."""
        own, carried = typed(content.text)
        if carried:
            self._foreign.append(words_of(carried))
        self._is_passing_on |= bool(carried) or len(content.parts) > len(content.texts())
        return _line(own)

    def _said(self, text: str) -> str:
        own = " ".join(sentences_in(redacted(_FENCED.sub(" ", text[: 2 * _SAID]))[:_SAID]))
        return _line(" ".join(each for each in sentences_in(own) if not self._is_passed_on(each)))

    def _is_passed_on(self, sentence: str) -> bool:
        words = words_of(sentence)
        if len(words) < _LEAST_WORDS:
            return False
        return any(share(words, foreign) >= _PASSED_ON for foreign in self._foreign)


def _named(name: str) -> str:
    return one_line(name.translate(_UNNAMED), _NAME)


_UNNAMED = str.maketrans("[]:\n", "    ")


def _line(text: str) -> str:
    return " ".join(redacted(text).split())


# --- what a person wrote, and what the message only carries ---

_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*(?:>|\|).*$", re.MULTILINE)
_INTRODUCED = re.compile(
    rf"^(?P<says>[^\n]*(?:{MATERIAL})[^\n]{{0,60}}[:\uff1a][ \t]*\n)(?P<rest>.*\S.*)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
"""A line that announces what somebody else has written, and all that follows: it may end anywhere."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,400})?>")
_OF_THE_USER = re.compile(
    r"user|human|query|question|task|request|prompt|feedback|message|instruction", re.IGNORECASE
)
"""In names of tags in which programs put what the user wrote."""


def typed(text: str) -> tuple[str, str]:
    """What a person typed of a message's text, and what it carries beside that: files, pages, output."""
    carried: list[str] = []

    def take(match: re.Match[str]) -> str:
        carried.append(match[0])
        return "\n\n"

    text = _FENCED.sub(take, text)
    own, tagged = _without_blocks(text)
    if introduced := _INTRODUCED.search(own):
        own = own[: introduced.start("rest")]
        carried.append(introduced["rest"])
    own = _QUOTED.sub(take, own)
    lines = Lines(own)
    runs = [*lines.runs]
    printed = [run for run in runs if run.is_output and (lines.is_framed or _has_many_lines(run.text))]
    carried += [*tagged, *(run.text for run in printed)]
    own = "\n".join(run.text for run in runs if run not in printed).strip()
    if len(own) > _TYPED:
        carried.append(own)
        own = ""
    return own, "\n".join(carried).strip()


def _has_many_lines(text: str) -> bool:
    """Whether it is more than a few values that a person might write down so."""
    return text.strip().count("\n") >= _FEW_LINES


def _without_blocks(text: str) -> tuple[str, list[str]]:
    """A text without what stands within tags, up to the last one that closes; and that.

    A page could close its tag itself, and go on as if it were the user.
    """
    tags = [*_TAG.finditer(text)]
    ends = {tag[2]: tag.end() for tag in tags if tag[1]}
    own, blocks, at = list[str](), list[str](), 0
    for tag in tags:
        end = ends.get(tag[2], 0)
        is_of_user = bool(_OF_THE_USER.search(tag[2]))
        if tag.start() < at or not (is_of_user or end > tag.end()):
            continue
        own.append(text[at : tag.start()])
        at = tag.end() if is_of_user else end
        if not is_of_user:
            blocks.append(text[tag.start() : end])
    return "\n".join([*own, text[at:]]), blocks
