"""Find the lines of a conversation that support a sentence written by a model.

A few lines support a sentence if they contain enough of its words and everything exact in it (numbers, ids,
names), and neither denies the other. The words of a denial itself need not be there: who says "I quit my job
at Siemens" no longer works there. A question supports nothing, and what somebody imagines ("If I lived in
Rome") only a sentence that says as much. What is said of somebody near ("My brother is vegan") supports no
sentence about the user. A date may follow from the date of a line that says "yesterday".
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import log
from typing import NamedTuple

from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.reading import OUTRIGHT, strength_of
from proxy.core.memory.records import Trust
from proxy.core.memory.utterances import Utterance
from proxy.core.summaries.verification import Evidence, unfounded, unknown_names
from proxy.core.text.lexicon import remembering
from proxy.core.text.lexicon.binding import QUESTION
from proxy.core.text.lexicon.rules import CLAUSE_END, NEGATION, RELIEF
from proxy.core.text.numbers import all_numbers
from proxy.core.text.words import sentences_in, words_of

_SUPPORTED = 0.5
"""Least share of a sentence's words, weighted by their rarity in the conversation, found in its source."""
_TOGETHER = 3
"""Most consecutive sentences that may support one: sentences far apart have the words of almost anything."""
_NEAR = 7
"""Most days between a date and a line that calls it "yesterday" or "on Friday"."""


class Support(NamedTuple):
    """The lines that support a sentence, in conversation order."""

    trust: Trust
    """A person's if the lines of people are enough; else the model's."""
    lines: tuple[Utterance, ...]


class Statements:
    """The lines of a conversation, against which sentences are checked."""

    def __init__(self, lines: Sequence[Utterance]) -> None:
        self._lines = lines
        self._all = [each for line in lines for each in _stated_in(line, line.text)]
        self._real = [
            each
            for line in lines
            for each in _stated_in(line, remembering.IMAGINED.sub(r"\g<real>", line.text))
        ]
        """Without what is only imagined."""
        self._spread = Counter(word for each in self._all for word in each.words)
        self._names = words_of(" ".join(sorted({line.name for line in lines})))
        """The words of the speakers' names: one speaker's line must not support a sentence about another."""

    def support(self, text: str, numbers: Sequence[int] = (), together: int = _TOGETHER) -> Support | None:
        """Return the support of a sentence from at most ``together`` consecutive ones; None if there is none.

        ``numbers`` (from 1) restrict the search to these lines; without numbers all lines are searched.
        """
        words = words_of(_undated(text))
        words = frozenset(word for word in words if word in self._spread or not word.isdigit())
        plain = words & words_of(undenied(text)) if is_denied(text) else words & self._names
        named = words & self._names
        lines = {self._lines[number - 1] for number in numbers if 0 < number <= len(self._lines)}
        stated = self._all if remembering.IMAGINES.search(text) else self._real
        stated = [each for each in stated if not lines or each.line in lines]
        stated = [each for each in stated if each.may_tell_of(named)]
        if remembering.ABOUT_USER.search(text):
            stated = [each for each in stated if each.near <= words_of(text)]
        for trust in (Trust.USER, Trust.ASSISTANT):
            pool = [each for each in stated if each.line.trust is trust or trust is Trust.ASSISTANT]
            chosen = self._covering(words, pool, together)
            if not chosen and plain - self._names:
                denials = [each for each in pool if any(map(is_denied, each.clauses))]
                chosen = self._covering(plain, denials, together)
            if chosen and _is_founded(text, chosen) and not _is_turned(text, chosen):
                return Support(trust, tuple(dict.fromkeys(each.line for each in chosen)))
        return None

    def _covering(self, words: frozenset[str], pool: Sequence["_Stated"], together: int) -> list["_Stated"]:
        """Return the fewest sentences close together that have enough of the words, in order; or none."""
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
        return sum(log(2 + len(self._all) / (self._spread[word] + 1)) for word in words)


def _union(found: Sequence[frozenset[str]], places: range) -> frozenset[str]:
    return frozenset[str]().union(*(found[place] for place in places))


def instructs(text: str) -> bool:
    """Whether a sentence tells a person or a model what to do, which only people's sentences may."""
    return strength_of(text) >= OUTRIGHT or bool(remembering.ORDERS.search(text))


class _Stated:
    """A sentence of a line, with its clauses; the last clause of a question, which asks, is left out."""

    def __init__(self, line: Utterance, told: str, text: str) -> None:
        self.line = line
        self.told = told
        """What of the line counts."""
        clauses = CLAUSE_END.split(text)
        self.clauses: Sequence[str] = clauses[:-1] if QUESTION.search(text) else clauses
        self.words: frozenset[str] = words_of(" ".join(self.clauses)) | words_of(line.name)
        is_of_oneself = remembering.OF_ONESELF.search(text)
        near = None if is_of_oneself else remembering.ABOUT_SOMEBODY_NEAR.search(text)
        self.near: frozenset[str] = words_of(near[0]) if near else frozenset()
        """The words for somebody near to the speaker whom it is about."""

    def may_tell_of(self, named: frozenset[str]) -> bool:
        """Whether it may be about people of these names: it names one of them, or the assistant said it."""
        return not named or self.line.trust is Trust.ASSISTANT or bool(named & self.words)


def _stated_in(line: Utterance, told: str) -> list[_Stated]:
    return [_Stated(line, told, text) for text in sentences_in(told)]


def _is_founded(text: str, stated: Sequence[_Stated]) -> bool:
    """Whether everything exact in a sentence is in the lines, or is a date that follows from their dates."""
    days = [datetime.fromtimestamp(each.line.at, UTC) for each in stated if each.line.at]
    years = {str(day.year + more) for day in days for more in (-1, 0, 1)}
    said = "\n".join(f"{each.line.name}: {each.told}" for each in stated)
    evidence = Evidence("\n".join([said, *sorted(years)]), said)
    around = (day + timedelta(days=more) for day in days for more in range(-_NEAR, _NEAR + 1))
    near = {str(number) for day in around for number in (day.year, day.month, day.day)}
    if not all_numbers(" ".join(_dates_in(text))) <= evidence.numbers | near:
        return False
    undated = _undated(text)
    if next(unfounded(undated, evidence), None) is not None:
        return False
    return next(unknown_names(undated, words_of(said)), None) is None


def _dates_in(text: str) -> list[str]:
    return [fact.value for fact in facts_in(text) if fact.kind == "date"]


def _undated(text: str) -> str:
    """Remove a sentence's dates, which the source may write in another way."""
    for date in _dates_in(text):
        text = text.replace(date, " ")
    return text


def _is_turned(text: str, stated: Sequence[_Stated]) -> bool:
    """Whether a clause denies what the most similar clause of the lines says, or the other way round.

    What says that something is over may be told with a negation or without one.
    """
    clauses = [clause for each in stated for clause in each.clauses]
    for clause in CLAUSE_END.split(text):
        words = words_of(clause)
        nearest = max(clauses, key=lambda said: len(words & words_of(said)), default="")
        if not words & words_of(nearest) or RELIEF.search(clause) or RELIEF.search(nearest):
            continue
        is_over = is_denied(clause) and is_denied(nearest)
        if not is_over and bool(NEGATION.search(clause)) is not bool(NEGATION.search(nearest)):
            return True
    return False


def is_denied(text: str) -> bool:
    """Whether a sentence says that something is not so, or no longer so."""
    return bool(NEGATION.search(text) or remembering.ENDED.search(text))


def undenied(text: str) -> str:
    """Return what a sentence denies: without the negation and the words that go with it."""
    for pattern in (remembering.ENDED, NEGATION, remembering.WITH_NEGATION):
        text = pattern.sub(" ", text)
    return text
