"""Reads the exact facts of each message, by speaker, and its sentences that bind later behaviour.

Keeps law 8 (O(new)): a message is read once. A process caches its facts, limited in number, by the digest of
its bytes, so an epoch costs only what was never read before. Only the bytes decide, not which of two
spellings was read first; and of long output whether much of it came before in the chain (law 3).
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from string import ascii_letters, digits
from typing import Literal

import msgspec

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES, Message
from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.extraction.facts import MOST_CHARACTERS, Fact, bounded, facts_of, quotes_in
from proxy.core.extraction.observations import answered_commands, in_plain_text
from proxy.core.extraction.printed import PROGRAM, SYMBOLS, examples_in, is_record
from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon.binding import FIRM, IDLE, PARTS, PLAIN, QUESTION, STATED
from proxy.core.text.lexicon.rules import PERMITS, TELLS, WITHDRAWS
from proxy.core.text.lexicon.words import ABBREVIATIONS

# --- which sentences bind later behaviour: rules, limits, preferences, and what people lay down ---


_LONGEST = 320
"""Largest length of a sentence in characters."""
_SHORTEST = 4
_SHORT_LINE = 140
"""Largest length in characters of a line that is not split into sentences."""
BINDS, OUTRIGHT = 2, 3
"""Strengths of sentences: of a limit or preference, and of an explicit rule."""
_MOST_SENTENCES = 60
"""Largest number of sentences kept of one message."""
_SENTENCES = 1 << 11
"""Number of sentences of which it is remembered how they bind: agents repeat their instructions."""

_END = re.compile(
    r"(?<=[.!?…][\"”»)\]])\s+(?=[^\Wa-zß-ÿ])|(?<=[.!?…])\s+(?=[^\Wa-zß-ÿ]|[\"“«(¡¿])"
    r"|(?<=[。!?\uff01\uff1f])(?![」』”])"
)
_NAMED = re.compile(r"`[^`]+`|(?<!\S)[\w.]+(?:\(\)|=\w+)?(?=[\s,.;:!?]|[^\x00-\x7f]|$)")
"""A word, or what of code people put into a sentence: a name, a call, `a=b`. Other symbols make it code."""
_OF_NAMES = f"{ascii_letters}{digits}_."
"""Characters of what is called in source code."""
_DOT_WITHIN = re.compile(r"(?<=\w)\.(?=\w)")
"""A dot of a file's name, a host or a number, which ends no sentence."""
_ABBREVIATED = re.compile(rf"(?:\b(?:{ABBREVIATIONS})|\b[A-Z])\.$")
_LONGEST_ABBREVIATION = 16
"""Characters, with the one before it; so that a line of abbreviations is not searched anew at each."""
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_STREAM_TAG = (
    r"(?:[\w:-]{0,40}std(?:out|err)|(?:tool|command|function|bash|shell|terminal)[\w:-]{0,40}(?:output|results?)"
    r"|observation)>"
)
_STREAM = re.compile(rf"<{_STREAM_TAG}[^<]*+(?:<(?!/?{_STREAM_TAG})[^<]*+)*+</{_STREAM_TAG}")
"""A command's output that a client hands on as the user's message, in tags."""
_COLONS = (":", "\uff1a")
_COLON = re.compile("|".join(_COLONS))
_BULLET = re.compile(r"^\s*(?:[-*•·>+]|\(?\d{1,3}[.)]|[a-z]\)|#{1,6})\s+")

_EASES = re.compile(f"{PERMITS.pattern}|{WITHDRAWS.pattern}")
"""Wordings that may withdraw a rule, in a lower-case text."""
_TITLE = re.compile(r"^(?:[A-Z][A-Z _-]{2,30}(?: \d{1,3})?:(?=\s?\S)|【[^】]{1,12}】)")
"""A sentence under a title, as people write what is to be remembered: `HOUSE RULE: no boats.`"""
_LABEL = re.compile(r"^(?:[A-Z]\w{2,15}(?: \d{1,3})?|[^\W\d_]{2,8}):\s?\S")


class Sentence(msgspec.Struct, frozen=True, gc=False):
    """A sentence that may bind later behaviour."""

    text: str
    strength: int
    """:data:`OUTRIGHT`, :data:`BINDS`, 1 for something merely stated, else 0."""


def weighed(text: str) -> list[Sentence]:
    """The sentences of a text with their strengths, in order, including those that do not bind."""
    return [Sentence(each, strength_of(each)) for each in sentences_of(text)]


def binding(sentences: Sequence[Sentence]) -> list[Sentence]:
    """The sentences of a message that bind, followed by those that do not but may withdraw a rule."""
    ranked = sorted(range(len(sentences)), key=lambda place: -sentences[place].strength)[:_MOST_SENTENCES]
    firm = [sentences[place] for place in sorted(ranked) if sentences[place].strength]
    withdrawing = [each for each in sentences if not each.strength and _may_withdraw(each.text)]
    return firm + withdrawing[:_MOST_SENTENCES]


@cached_for_short_texts(_SENTENCES)
def _may_withdraw(sentence: str) -> bool:
    return bool(_EASES.search(sentence.lower())) and not QUESTION.search(sentence)


@cached_for_short_texts(_SENTENCES)
def strength_of(sentence: str) -> int:
    """How firmly a sentence binds; 0 where it does not."""
    if QUESTION.search(sentence):
        return 0
    is_labelled, lower = not PARTS.match(sentence), _DOT_WITHIN.sub("·", sentence.lower())
    if is_labelled and _TITLE.match(sentence):
        return OUTRIGHT
    found = _worded(lower)
    if found and (said := IDLE.sub("·", lower)) != lower:
        found = _worded(said)
    return max(found, BINDS) if is_labelled and _LABEL.match(sentence) else found


def _worded(lower: str) -> int:
    """How firmly a sentence in lower case binds by its words."""
    if FIRM.search(lower):
        return OUTRIGHT
    if PLAIN.search(lower):
        return BINDS
    return 1 if STATED.search(lower) else 0


def title_of(sentence: str) -> str:
    """The title before a sentence, including the colon; "" where there is none."""
    match = _TITLE.match(sentence)
    return match[0] if match else ""


def untitled(sentence: str) -> str:
    """A sentence without its title."""
    return sentence.removeprefix(title_of(sentence)).lstrip()


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text that are prose and short enough to be quoted whole.

    A short line is kept together: "The cap is $500. Never exceed it." counts as one sentence.
    """
    for line in _own_lines(text):
        prose = _BULLET.sub("", line).strip()
        found, start = list[str](), 0
        for end in _END.finditer(prose):
            before = max(start, end.start() - _LONGEST_ABBREVIATION)
            if not _ABBREVIATED.search(prose[before : end.start()]):
                found.append(prose[start : end.start()].strip())
                start = end.end()
        found.append(prose[start:].strip())
        if len(prose) <= _SHORT_LINE and not any(map(QUESTION.search, found)):
            found = [prose]
        for each in found:
            is_dense = len(SYMBOLS.findall(each)) * 10 > len(each)
            is_program = is_dense and SYMBOLS.search(_NAMED.sub("", each)) is not None
            if _SHORTEST <= len(each) <= _LONGEST and not is_program:
                yield each


def _own_lines(text: str) -> Iterator[str]:
    """The lines of a text without source code, output, and what the speaker quotes.

    Lines behind `>` are somebody else's where the line before says so: `Their solicitor writes:`. Elsewhere
    they are the speaker's own, as a callout in a document is: losing a rule is worse.
    """
    in_fence = is_announced = False
    lines = _STREAM.sub("\n", text).splitlines()
    for place, line in enumerate(lines):
        is_behind_mark = line.lstrip().startswith(">")
        if not is_behind_mark and line.strip():
            is_announced = _announces(line.rstrip())
        is_quoted = is_behind_mark and is_announced
        if _FENCE.match(line):
            in_fence = not in_fence
        elif not (
            in_fence or is_quoted or len(line) < _SHORTEST or _is_program(line) or is_record(lines, place)
        ):
            yield line


def _is_program(line: str) -> bool:
    """Whether a line is source code or output: not where words bind before the call that it ends with.

    "Never call print()." is a rule; "static void print()" and "self.deadline.print()" are none.
    """
    found = PROGRAM.search(line)
    if found is None or not found["call"] or len(line) > _LONGEST:
        return found is not None
    return _worded(line[: found.start()].rstrip(_OF_NAMES).lower()) < BINDS


def _announces(line: str) -> bool:
    """Whether somebody else's words follow a line: it ends with a colon, and tells of them before it."""
    return line.endswith(_COLONS) and bool(TELLS.search(_COLON.split(line[:-1].lower())[-1]))


def is_question(text: str) -> bool:
    """Whether all that a text says in sentences is asked."""
    return all(map(QUESTION.search, sentences_of(text)))


# --- messages ---


Voice = Literal["user", "system", "assistant", "argument", "result"]
_VOICES: Mapping[str, Voice] = {
    "user": "user",
    **dict.fromkeys(HEAD_ROLES, "system"),
    **dict.fromkeys(TOOL_ROLES, "result"),
}
"""By role; every other role is the assistant's."""
_REMEMBERED = 200_000
"""Number of facts, of some 150 bytes each, that a process caches."""
_LONGEST_ARGUMENTS = 200
_SHOWS = 4
"""How many times longer than the rest the examples are of a message that does little but show them."""
LONG, MOST_LONG = 12_000, 1_000_000
"""Bytes above which a result is long, and bytes of long results in a chain, each as far as it is read, after
which of each further one at most :data:`LONG` characters are read."""
_TINY = 60
"""Largest length in bytes of a message that is its own key: its digest would be hardly shorter."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The facts and binding sentences of one message."""

    facts: tuple[tuple[Voice, tuple[Fact, ...]], ...]
    """Facts by speaker; each value once, under the first key it had."""
    sentences: tuple[Sentence, ...] = ()
    """Sentences of users and systems that bind, or may withdraw a rule."""
    is_constraint: bool = False
    """Whether it is a user's or system's message with nothing but explicit rules: a rule, and no request."""
    is_example: bool = False
    """Whether it is a user's or system's message that does little but show an example."""
    is_in_plain_text: bool = False
    """Whether it is a command in plain text, or an observation."""
    is_whole: bool = False
    """Whether it is an observation and output as a whole."""

    @property
    def crowd(self) -> int:
        """Number of facts."""
        return sum([len(facts) for _, facts in self.facts])


Address = tuple[Dialect, bytes, tuple[str, ...], bool]
"""Cache key of a message: its dialect, the digest of its bytes, and the call that each result answers.

For a command in plain text and for an observation, the command takes the place of the call. Last comes
whether an observation is output as a whole.
"""


class ReadingCache:
    """A cache of readings by address, which drops the oldest."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._held = 0
        self._readings: dict[tuple[Address, int], Reading] = {}

    def of(self, address: Address, content: Callable[[], Content], most: int = MOST_CHARACTERS) -> Reading:
        """The reading of a message, of each text up to ``most`` characters.

        ``content`` is called only if it is not cached.
        """
        found = self._readings.get((address, most))
        if found is None:
            _, _, called, is_whole = address
            found = self._readings[address, most] = read(content(), called, is_whole=is_whole, most=most)
            self._held += _size(found)
            if self._held > self._most:
                # Threads may drop the older half at once: each step is atomic, and none must be exact.
                entries = list(self._readings.items())
                for key, _ in entries[: (len(entries) + 1) // 2]:
                    self._readings.pop(key, None)
                self._held = sum(map(_size, list(self._readings.values())))
        return found


def _size(reading: Reading) -> int:
    """Size of a reading in the cache, counted in facts."""
    return 1 + reading.crowd + len(reading.sentences)


READINGS = ReadingCache()
"""The cache of this process."""


@dataclass(slots=True)
class Extracted:
    """The readings of the first messages of a chain, shared by all plans for it and for its prefixes.

    Plans of one chain are made one after the other: two threads that read on at once would mix it up.
    """

    readings: list[Reading] = field(default_factory=list[Reading])
    binding: list[int] = field(default_factory=list[int])
    """Positions of messages with sentences that bind, or may withdraw a rule."""
    users: list[int] = field(default_factory=list[int])
    """Positions of user messages, without observations."""
    observations: list[int] = field(default_factory=list[int])
    """Positions of observations: user messages with the output of a command."""
    in_plain_text: set[int] = field(default_factory=set[int])
    """Positions of commands and observations."""
    contents: dict[int, Content] = field(default_factory=dict[int, Content])
    """Messages that were decoded, by position."""
    plain_text: dict[int, Content] = field(default_factory=dict[int, Content])
    """Commands and observations, by position, read as calls and results."""
    languages: dict[int, str] = field(default_factory=dict[int, str])
    """The language of the newest of so many user messages, the first of the chain."""
    long: int = 0
    """Bytes of long results, each counted up to what is read of it."""

    def forget(self, most: int) -> None:
        """Forget what was decoded, if that is more than ``most`` messages."""
        if len(self.contents) > most:
            self.contents.clear()
            self.plain_text.clear()

    def go_on(
        self,
        messages: Sequence[Message],
        raws: Sequence[bytes],
        addresses: Sequence[Address],
        content: Callable[[int], Content],
    ) -> None:
        """Read those of these messages that were not read yet, which have these addresses."""
        for place, address in enumerate(addresses, len(self.readings)):
            most = MOST_CHARACTERS
            if address[2] and len(raws[place]) > LONG:
                most = MOST_CHARACTERS if self.long < MOST_LONG else LONG
                self.long += min(len(raws[place]), most)
            reading = READINGS.of(address, partial(content, place), most)
            self.readings.append(reading)
            if reading.sentences:
                self.binding.append(place)
            if messages[place].role == "user":
                (self.observations if reading.is_in_plain_text else self.users).append(place)
            if reading.is_in_plain_text:
                self.in_plain_text.add(place)


def read(
    content: Content, called: Sequence[str] = (), *, is_whole: bool = False, most: int = MOST_CHARACTERS
) -> Reading:
    """Read a message; ``called`` has the call of each result in it, ``is_whole`` is of an observation.

    Of each text of a result up to ``most`` characters are read, from its beginning and its end.
    """
    is_in_plain_text = bool(called) and not content.result_of
    pieces = (in_plain_text(content, is_whole=is_whole) if is_in_plain_text else content).pieces()
    beside = [""] * (len(pieces) - len(called))
    each = [_read(piece, call, most) for piece, call in zip(pieces, [*called, *beside], strict=False)]
    if len(each) == 1 and not is_in_plain_text:
        return each[0]
    return Reading(
        tuple(voiced for reading in each for voiced in reading.facts),
        tuple(sentence for reading in each for sentence in reading.sentences),
        each[-1].is_constraint,
        is_in_plain_text=is_in_plain_text,
        is_whole=is_whole,
    )


def _read(content: Content, thing: str, most: int) -> Reading:
    voice, texts = _VOICES.get(content.role, "assistant"), content.texts()
    if most < MOST_CHARACTERS and voice == "result":
        texts = [bounded(text, most) for text in texts]
    called = ((arguments, _called(name, arguments)) for _, name, arguments in content.calls)
    used = _by_value([fact for arguments, call in called for fact in facts_of(arguments, call)])
    examples = list[str]()
    if voice in ("user", "system"):
        apart = list(map(examples_in, texts))
        texts, examples = [own for own, _ in apart], [shown for _, shown in apart]
    told = [fact for text in texts for fact in facts_of(text, thing)]
    if voice == "user":
        told += (fact for text in texts for fact in quotes_in(text))
    sentences: list[Sentence] = []
    if voice in ("user", "system"):
        sentences += (each for text in texts for each in weighed(bounded(text)))
    found = _by_value(told)
    new = tuple([fact for value, fact in found.items() if value not in used] if used else found.values())
    shown = _by_value([fact for text in examples for fact in facts_of(text, thing)])
    facts: list[tuple[Voice, tuple[Fact, ...]]] = [
        ("argument", tuple(used.values())),
        (voice, new),
        ("result", tuple([fact for value, fact in shown.items() if value not in found])),  # nobody said it
    ]
    is_rule = bool(sentences) and all(each.strength == OUTRIGHT for each in sentences)
    return Reading(
        tuple(filter(itemgetter(1), facts)),
        tuple(binding(sentences)),
        is_rule,
        is_example=sum(map(len, examples)) > _SHOWS * sum(map(len, texts)),
    )


def _by_value(facts: Sequence[Fact]) -> dict[str, Fact]:
    """Facts by value, each as it came first."""
    found = {fact.value: fact for fact in facts}
    if len(found) < len(facts):
        found.update({fact.value: fact for fact in reversed(facts)})
    return found


def addresses_of(
    dialect: Dialect,
    raws: Sequence[bytes],
    messages: Sequence[Message],
    content: Callable[[int], Content],
    first: int,
) -> Iterator[Address]:
    """The addresses of messages from ``first`` on; their results must not answer calls before it."""
    calls: dict[str, str] = {}
    commands = answered_commands(messages, content, first)
    for place in range(first, len(raws)):
        message = messages[place]
        if message.calls:
            called = content(place).calls
            calls.update({call: _called(name, arguments) for call, name, arguments in called})
        answered = tuple([calls.get(call, "") for call in message.result_of])
        is_whole = False
        if place in commands:
            command, is_whole = commands[place]
            answered = (_called("", command),)
        raw = raws[place]
        digest = raw if len(raw) <= _TINY else hashlib.blake2b(raw, digest_size=16).digest()
        yield dialect, digest, answered, is_whole


def _called(name: str, arguments: str) -> str:
    return f"{name} {arguments}"[:_LONGEST_ARGUMENTS]
