"""Which sentences bind later behaviour: rules, limits, preferences, and what people lay down.

A sentence is taken word for word or not at all. Questions bind nobody, and code is no sentence. What marks a
sentence is words, not grammar: a sentence too many costs some tokens, a rule that is lost is broken.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.core.ledger.marks import FIRM, PLAIN, STATED

LONGEST = 320
"""Characters of a sentence."""
_SHORTEST = 4
_SHORT_LINE = 140
"""Characters of a line that is not taken apart."""
_OUTRIGHT = 3
MOST_SENTENCES = 60
"""Sentences of one message."""

_END = re.compile(
    r"(?<=[.!?…][\"”»)\]])\s+(?=[^\Wa-zß-ÿ])|(?<=[.!?…])\s+(?=[^\Wa-zß-ÿ]|[\"“«(¡¿])|(?<=[。!?])(?![」』”])"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|bzw|z\.B|d\.h|usw|Dr|Mr|Mrs|Ms|St|No|Nr|approx|p\.ej|Sr|Sra|M|Mme)|\b[A-Z])\.$"
)
_QUESTION = re.compile(r"[??][\"”»」』)\]]*$|か。?$|[吗呢嗎]。?$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_PROGRAM = re.compile(
    r"^\s*(?://|/\*|\*/|>>>|\.\.\. |\$ |#!|@\w|def |class |import |from \w+ import|return\b|raise |assert "
    r"|if .*:$|for .*:$|else:|try:|except|\d+[:|]|[+-]{1,3} ?\w*\(|\w+\s*=[^=]|<\/?\w)"
    r"|[{;\\]\s*$|^\s{8,}\S|\w\(\w*\)\s*[.:{]?$"
)
_SYMBOLS = re.compile(r"[{}()\[\];=<>|\\`_]")
_BULLET = re.compile(r"^\s*(?:[-*•·>+]|\(?\d{1,3}[.)]|[a-z]\)|#{1,6})\s+")

_TITLE = re.compile(r"^(?:[A-Z][A-Z _-]{2,30}(?: \d{1,3})?:(?=\s?\S)|【[^】]{1,12}】)")
"""A sentence under a title, as people write what is to be remembered: `HOUSE RULE: no boats.`"""
_LABEL = re.compile(r"^(?:[A-Z]\w{2,15}(?: \d{1,3})?|[^\W\d_]{2,8}):\s?\S")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence that may bind."""

    text: str
    strength: int
    """3 for what says so outright, 2 for what limits or prefers, 1 for what is merely laid down."""


def binding(text: str) -> list[Sentence]:
    """The sentences of a text that bind, in order."""
    found = (Sentence(each, strength_of(each)) for each in sentences_of(text))
    return [each for each in found if each.strength][:MOST_SENTENCES]


def lays_down(text: str) -> bool:
    """Whether a text is nothing but sentences that say outright what must be: a rule, and no request."""
    found = list(sentences_of(text))
    return bool(found) and all(map(_is_outright, found))


def strength_of(sentence: str) -> int:
    """How firmly a sentence binds; 0 where it does not."""
    if _is_outright(sentence):
        return _OUTRIGHT
    if _QUESTION.search(sentence):
        return 0
    if PLAIN.search(sentence) or _LABEL.match(sentence):
        return 2
    return 1 if STATED.search(sentence) else 0


def _is_outright(sentence: str) -> bool:
    return not _QUESTION.search(sentence) and bool(FIRM.search(sentence) or _TITLE.match(sentence))


def title_of(sentence: str) -> str:
    """The title that a sentence stands under, colon and all; "" where there is none."""
    match = _TITLE.match(sentence)
    return match[0] if match else ""


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text that are prose and short enough to stand as they are.

    What stands on one short line belongs together: "The cap is $500. Never exceed it." is told as one.
    """
    in_fence = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_fence = not in_fence
        elif not in_fence and not _PROGRAM.search(line):
            yield from _told(_BULLET.sub("", line).strip())


def _told(line: str) -> Iterator[str]:
    found = list(_split(line))
    if len(line) <= _SHORT_LINE and not any(map(_QUESTION.search, found)):
        found = [line]
    yield from (each for each in found if _SHORTEST <= len(each) <= LONGEST and not _is_program(each))


def _split(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if not _ABBREVIATED.search(line[start : end.start()]):
            yield line[start : end.start()].strip()
            start = end.end()
    yield line[start:].strip()


def _is_program(sentence: str) -> bool:
    return len(_SYMBOLS.findall(sentence)) * 10 > len(sentence)
