"""The utterances of a conversation: what people and the model said in their own words, and may be remembered.

Never remembered are system messages, tool results, files, pages and program output that a message carries,
ephemeral messages, and secrets. Neither is what the model only passed on: an answer after a result, a page or
a picture within its exchange, and any sentence that repeats what came from elsewhere. So items and texts,
which are made from these lines, have no other origin.

In a person's message, everything in frames (tags, fences, quotes, labels), what follows words that announce
it ("this article:", "Translate to French:"), and printed output counts as somebody else's words; so does a
whole message that is longer than people type.
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
from proxy.core.text.cutting import one_line
from proxy.core.text.lexicon.remembering import HANDS_OVER, MATERIAL
from proxy.core.text.words import language_of, sentences_in, share, words_of

_SOURCE_TOKENS = 12_000
"""Most counted tokens of lines in one call to the model."""
_TYPED = 4_000
"""Most characters that a person types in one message; a longer one counts as pasted."""
_SAID = 2_000
"""Characters of an answer that are read, from its beginning."""
_NAME, FORMER_NAME = 64, 60
"""Most characters of a speaker's name in a line, as many as a SHA-256 in hexadecimal has; and in lines from
which earlier versions made what is stored."""
_FEW_LINES = 3
_PASSED_ON, _LEAST_WORDS = 0.6, 2
"""Least share of a sentence's words found in material from elsewhere for it to count as passed on, and the
fewest words that such a sentence has."""
_SAMPLE = 8
"""Latest messages of people from which the language is detected."""


class Utterance(NamedTuple):
    """One line that somebody said."""

    at: float
    """Seconds since 1970, UTC."""
    trust: Trust
    """Who said it: a person, or the model."""
    name: str
    text: str
    """One line, with secrets blotted out."""
    message: bytes
    """Chain hash of the message."""
    person: str = ""
    """The whole name that the client gave; ``name`` is what a line shows of it."""

    def __str__(self) -> str:
        return f"[{datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M}] {self.name}: {self.text}"


def utterances_of(
    chain: Chain,
    arrivals: Sequence[float],
    rules: Sequence[Retention],
    people: Sequence[str] = (),
    *,
    elsewhere: Sequence[str] = (),
    served: Collection[bytes] = (),
) -> list[Utterance]:
    """Return the utterances of a chain's messages.

    ``arrivals`` has the time of every message (seconds since 1970). ``people`` has for each message the
    person named by the request that brought it, or an empty name. ``elsewhere`` has the texts that the
    session got beside its messages, one by one: its head, what was injected, and the lines of its memory
    briefing, single ones since together they have too many words. ``served`` has the chain hashes of answers
    in which the proxy answered tool calls unseen by the client.
    """
    commands = answered_commands(chain.messages, chain.content)
    may_be_quoted = classes_of(chain, rules).may_be_quoted
    reader = _Reader(elsewhere)
    lines: list[Utterance] = []
    for place in range(len(chain)):
        content = chain.content(place)
        if place in commands:
            content = in_plain_text(content, is_whole=commands[place].is_whole)
        person = people[place] if people else ""
        said = reader.own(content, person, is_served=chain.hashes[place] in served)
        if may_be_quoted(place):
            lines += [
                Utterance(arrivals[place], trust, shown_name(who), text, chain.hashes[place], who)
                for trust, who, text in said
            ]
    return lines


def newest(
    lines: Sequence[Utterance], count: Callable[[str], int], most: int = _SOURCE_TOKENS
) -> list[Utterance]:
    """Return the newest lines that fit into ``most`` counted tokens, in their order."""
    sizes = accumulate(count(str(line)) for line in reversed(lines))
    kept = sum(1 for _ in takewhile(lambda total: total <= most, sizes))
    return [*lines[len(lines) - kept :]]


def language_of_utterances(lines: Sequence[Utterance]) -> str:
    """The language of the lines of people, or of the model's if there are none."""
    people = [line.text for line in lines if line.trust is Trust.USER]
    return language_of(" ".join((people or [line.text for line in lines])[-_SAMPLE:]))


class _Reader:
    """Reads messages in order, and collects what came from elsewhere on the way."""

    def __init__(self, elsewhere: Sequence[str]) -> None:
        self._foreign = [words_of(text) for text in elsewhere]
        self._is_passing_on = False
        """Whether something came from elsewhere since the beginning of the exchange."""
        self._before = ""

    def own(self, content: Content, person: str, *, is_served: bool) -> list[tuple[Trust, str, str]]:
        """Return what is said in a message in the speaker's own words: who, under which name, and the text.

        A user's message without a name gets that of the ``person`` whose request brought it.
        """
        if content.role == "user" and not content.result_of and self._before != "user":
            self._is_passing_on = False
        if content.role not in HEAD_ROLES:
            self._before = content.role
        self._is_passing_on |= is_served
        found: list[tuple[Trust, str, str]] = []
        for piece in content.pieces():
            if piece.role == "user":
                text, carried = typed(piece.text)
                if carried:
                    self._foreign.append(words_of(carried))
                self._is_passing_on |= bool(carried) or len(piece.parts) > len(piece.texts())
                found.append((Trust.USER, piece.name or person or piece.role, _line(text)))
            elif piece.role == "assistant":
                text = "" if self._is_passing_on or piece.calls else self._said(piece.text)
                found.append((Trust.ASSISTANT, piece.name or piece.role, text))
            else:
                self._is_passing_on |= piece.role in TOOL_ROLES
                self._foreign.append(words_of(piece.text))
        return [each for each in found if each[-1]]

    def _said(self, text: str) -> str:
        own = " ".join(sentences_in(redacted(_FENCED.sub(" ", text[: 2 * _SAID]))[:_SAID]))
        kept = list[str]()
        for sentence in sentences_in(own):
            words = words_of(sentence)
            foreign = self._foreign if len(words) >= _LEAST_WORDS else ()
            if not any(share(words, each) >= _PASSED_ON for each in foreign):
                kept.append(sentence)
        return _line(" ".join(kept))


def shown_name(name: str, most: int = _NAME) -> str:
    """Return a speaker's name as lines show it: without the marks that end a name in a line."""
    return one_line(name.translate(_UNNAMED), most)


_UNNAMED = str.maketrans("[]:\n", "    ")


def _line(text: str) -> str:
    return " ".join(redacted(text).split())


# --- separating what a person wrote from what the message carries ---

_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED = re.compile(r"^[ \t]*(?:>|\|).*$", re.MULTILINE)
_INTRODUCED = re.compile(
    rf"^[^\n]*(?:{MATERIAL})[^\n]{{0,60}}[:\uff1a][ \t]*\n"
    rf"|^{HANDS_OVER}[^\n:.!?\uff1a\uff01\uff1f。]{{0,80}}[:\uff1a](?![/\d])",
    re.IGNORECASE | re.MULTILINE,
)
"""What announces somebody else's text. All that follows counts as such, since its end is unknown."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]{0,40})(?:\s[^<>]{0,400})?>")
_OF_THE_USER = re.compile(
    r"user|human|query|question|task|request|prompt|feedback|message|instruction", re.IGNORECASE
)
"""Words in the names of tags in which programs wrap what the user wrote."""


def typed(text: str) -> tuple[str, str]:
    """Split a message's text into what the person typed, and what it carries: files, pages, output."""
    carried: list[str] = []

    def take(match: re.Match[str]) -> str:
        carried.append(match[0])
        return "\n\n"

    text = _FENCED.sub(take, text)
    own, tagged = _without_blocks(text)
    if introduced := _INTRODUCED.search(own):
        carried.append(own[introduced.end() :])
        own = own[: introduced.end()]
    own = _QUOTED.sub(take, own)
    lines = Lines(own)
    runs = [*lines.runs]
    # A person may write a few values in this form, on as many lines, but not more.
    least = 0 if lines.is_framed else _FEW_LINES
    printed = [run for run in runs if run.is_output and run.text.strip().count("\n") >= least]
    carried += [*tagged, *(run.text for run in printed)]
    own = "\n".join(run.text for run in runs if run not in printed).strip()
    if len(own) > _TYPED:
        carried.append(own)
        own = ""
    return own, "\n".join(carried).strip()


def _without_blocks(text: str) -> tuple[str, list[str]]:
    """Split a text into what is outside of tags, and the tagged blocks, each up to its last closing tag.

    Up to the last one because a page could contain its closing tag, and go on as if it were the user.
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
