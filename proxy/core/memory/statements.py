"""What supports a sentence that a model has written: the lines in which it was said.

Enough of its words, and everything exact (numbers, ids, names), stand in a few lines, and it does not deny
what these say, or the other way round. What is asked supports nothing. A date may follow from that of a line:
"yesterday" has one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import log
from typing import NamedTuple

from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.reading import strength_of
from proxy.core.memory.records import Trust
from proxy.core.memory.utterances import Utterance
from proxy.core.summaries.verification import Evidence, all_numbers, unfounded
from proxy.core.text.lexicon.remembering import ORDERS
from proxy.core.text.lexicon.rules import CLAUSE_END, NEGATION, QUESTION, RELIEF
from proxy.core.text.lexicon.words import GERMAN, MONTHS
from proxy.core.text.words import sentences_in, words_of

_SUPPORTED = 0.5
"""Of a sentence's words, weighed by how rare they are in what was said, how many stand in its source."""
_TOGETHER = 3
"""Sentences that follow each other, of which one may be made; far apart, anything is said in common words."""
_NEAR = 7
"""Days between a date and the line in which it was "yesterday" or "on Friday"."""
_FOLLOWING = re.compile(r"(?<=[^\W_][ ,]) ?(\w{2,})")
"""A word that begins no sentence."""
_GERMAN = re.compile(rf"\b(?:{GERMAN})\b", re.IGNORECASE)
_MONTHS = frozenset(name.lower() for names in MONTHS for name in names.split())


class Support(NamedTuple):
    """The lines that say a sentence, in their order."""

    trust: Trust
    """A person's where what people said is enough; else the model's."""
    lines: tuple[Utterance, ...]


class Statements:
    """What was said, as sentences are held against it."""

    def __init__(self, lines: Sequence[Utterance]) -> None:
        self._lines = lines
        self._stated = [_Stated(line, text) for line in lines for text in sentences_in(line.text)]
        self._spread = Counter(word for each in self._stated for word in each.words)
        self._names = words_of(" ".join(sorted({line.name for line in lines})))
        """The words of the names of who speaks: what is said of one of them is no other's."""

    def support(self, text: str, numbers: Sequence[int] = (), together: int = _TOGETHER) -> Support | None:
        """What supports a sentence: so many that stand together, of the lines of these numbers (from 1).

        Without numbers, of all.
        """
        words = words_of(_undated(text))
        words = frozenset(word for word in words if word in self._spread or not word.isdigit())
        named = words & self._names
        lines = {self._lines[number - 1] for number in numbers if 0 < number <= len(self._lines)}
        stated = [each for each in self._stated if not lines or each.line in lines]
        stated = [each for each in stated if each.may_tell_of(named)]
        for trust in (Trust.USER, Trust.ASSISTANT):
            pool = [each for each in stated if each.line.trust is trust or trust is Trust.ASSISTANT]
            chosen = self._covering(words, pool, together)
            if chosen and _is_founded(text, chosen) and not _is_turned(text, chosen):
                return Support(trust, tuple(dict.fromkeys(each.line for each in chosen)))
        return None

    def _covering(self, words: frozenset[str], pool: Sequence["_Stated"], together: int) -> list["_Stated"]:
        """The sentences that have most of the words, as few as will do, in their order; or none."""
        found = [words & each.words for each in pool]
        starts = (place for place in range(len(pool)) if found[place])
        windows = (range(start, min(start + together, len(pool))) for start in starts)
        best = max(windows, key=lambda window: self._weight(_union(found, window)), default=range(0))
        if not words or self._weight(_union(found, best)) < _SUPPORTED * self._weight(words):
            return []
        chosen, missing = list[int](), words & _union(found, best) | words & self._names
        for place in sorted(best, key=lambda place: -self._weight(found[place])):
            if missing & found[place]:
                chosen.append(place)
                missing -= found[place]
        return [] if missing else [pool[place] for place in sorted(chosen)]

    def _weight(self, words: frozenset[str]) -> float:
        return sum(log(2 + len(self._stated) / (self._spread[word] + 1)) for word in words)


def _union(found: Sequence[frozenset[str]], places: range) -> frozenset[str]:
    return frozenset[str]().union(*(found[place] for place in places))


def lays_down(text: str) -> bool:
    """Whether it tells somebody, or a model, what to do: a person may, and nobody else."""
    return strength_of(text) > 2 or bool(ORDERS.search(text))


class _Stated:
    """A sentence of a line, and what it says for certain: of a question, all but what it asks."""

    def __init__(self, line: Utterance, text: str) -> None:
        self.line = line
        clauses = CLAUSE_END.split(text)
        self.clauses: Sequence[str] = clauses[:-1] if QUESTION.search(text) else clauses
        self.words: frozenset[str] = words_of(" ".join(self.clauses)) | words_of(line.name)

    def may_tell_of(self, named: frozenset[str]) -> bool:
        """Whether it may say something of people of these names: it names one, or the assistant said it."""
        return not named or self.line.trust is Trust.ASSISTANT or bool(named & self.words)


def _is_founded(text: str, stated: Sequence[_Stated]) -> bool:
    """Whether everything exact in a sentence stands in the lines, or is a date that follows from theirs."""
    days = [datetime.fromtimestamp(each.line.at, UTC) for each in stated if each.line.at]
    years = {str(day.year + more) for day in days for more in (-1, 0, 1)}
    said = "\n".join(f"{each.line.name}: {each.line.text}" for each in stated)
    evidence = Evidence("\n".join([said, *sorted(years)]), said)
    if not all_numbers(" ".join(_dates_in(text))) <= evidence.numbers | _near(days):
        return False
    undated = _undated(text)
    return next(unfounded(undated, evidence), None) is None and _has_names(undated, said)


def _dates_in(text: str) -> list[str]:
    return [fact.value for fact in facts_in(text) if fact.kind == "date"]


def _undated(text: str) -> str:
    """A sentence without its dates: the source may say them otherwise."""
    for date in _dates_in(text):
        text = text.replace(date, " ")
    return text


def _near(days: Sequence[datetime]) -> frozenset[str]:
    """The numbers of the dates around these."""
    around = (day + timedelta(days=more) for day in days for more in range(-_NEAR, _NEAR + 1))
    return frozenset(str(number) for day in around for number in (day.year, day.month, day.day))


def _has_names(text: str, said: str) -> bool:
    """Whether what a sentence writes with a capital was said; German writes all nouns so."""
    if _GERMAN.search(text):
        return True
    following: list[str] = _FOLLOWING.findall(text)
    names = (each for each in following if each[0].isupper() and each.lower() not in _MONTHS)
    words = words_of(said)
    return all(words_of(name) <= words for name in names)


def _is_turned(text: str, stated: Sequence[_Stated]) -> bool:
    """Whether a clause denies what the one nearest to it says, or the other way round."""
    clauses = [clause for each in stated for clause in each.clauses]
    for clause in CLAUSE_END.split(text):
        words = words_of(clause)
        nearest = max(clauses, key=lambda said: len(words & words_of(said)), default="")
        if not words & words_of(nearest) or RELIEF.search(clause) or RELIEF.search(nearest):
            continue
        if bool(NEGATION.search(clause)) is not bool(NEGATION.search(nearest)):
            return True
    return False
