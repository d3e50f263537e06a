"""What supports a sentence that a model has written: the lines in which it was said.

Enough of its words, and everything exact (numbers, ids, names), stand in a few lines, and it does not deny
what these say, or the other way round. What is asked supports nothing. A date may follow from that of a line:
"yesterday" has one.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.reading import strength_of
from proxy.core.memory.lines import Line
from proxy.core.memory.records import Trust
from proxy.core.summaries.verification import Evidence, all_numbers, unfounded
from proxy.core.text.lexicon.remembering import ORDERS
from proxy.core.text.lexicon.rules import CLAUSE_END, NEGATION, QUESTION, RELIEF
from proxy.core.text.lexicon.words import GERMAN, MONTHS
from proxy.core.text.words import sentences_in, share, words_of

_SUPPORTED = 0.5
"""Of a sentence's words, how many its lines have."""
_MOST_LINES = 3
"""That a sentence may come from."""
_NEAR = 7
"""Days between a date and the line in which it was "yesterday" or "on Friday"."""
_CAPITAL = re.compile(r"(?<=[^\W_][ ,]) ?([^\W\d_a-zß-ÿ]\w+)")
_GERMAN = re.compile(rf"\b(?:{GERMAN})\b", re.IGNORECASE)
_MONTHS = frozenset(name.lower() for names in MONTHS for name in names.split())


class Support(NamedTuple):
    """The lines that say a sentence, in their order."""

    trust: Trust
    """A person's where what people said is enough; else the model's."""
    lines: tuple[Line, ...]


class Statements:
    """What was said, as sentences are held against it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._heard = [_Heard(line) for line in lines]

    @cached_property
    def _names(self) -> frozenset[str]:
        """The words of the names of who speaks: what is said of one of them is no other's."""
        return words_of(" ".join(sorted({heard.line.name for heard in self._heard})))

    def support(self, text: str, numbers: Sequence[int] = (), most: int = _MOST_LINES) -> Support | None:
        """At most so many lines that support a sentence, of those of these numbers (from 1), else of all."""
        words = words_of(text)
        named = words & self._names
        heard = [self._heard[number - 1] for number in numbers if 0 < number <= len(self._heard)]
        heard = [each for each in heard or self._heard if each.may_tell_of(named)]
        for trust in (Trust.USER, Trust.ASSISTANT):
            pool = [each for each in heard if each.line.trust is trust or trust is Trust.ASSISTANT]
            chosen = _covering(words, pool, named, most)
            if chosen and _is_founded(text, chosen) and not _is_turned(text, chosen):
                lines = sorted((each.line for each in chosen), key=lambda line: line.at)
                return Support(trust, tuple(lines))
        return None


def lays_down(text: str) -> bool:
    """Whether it tells somebody, or a model, what to do: a person may, and nobody else."""
    return strength_of(text) > 2 or bool(ORDERS.search(text))


class _Heard:
    """A line, and what it says for certain."""

    def __init__(self, line: Line) -> None:
        self.line = line

    @cached_property
    def clauses(self) -> list[str]:
        """What it states, clause by clause: of a question, all but what it asks."""
        return [*_stated(self.line.text)]

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of what it states, and who says it."""
        return words_of(" ".join(self.clauses)) | words_of(self.line.name)

    def may_tell_of(self, named: frozenset[str]) -> bool:
        """Whether it may say something of people of these names: it names one, or says "you"."""
        return not named or self.line.trust is Trust.ASSISTANT or bool(named & self.words)


def _stated(text: str) -> Iterator[str]:
    for sentence in sentences_in(text):
        clauses = CLAUSE_END.split(sentence)
        yield from clauses[:-1] if QUESTION.search(sentence) else clauses


def _covering(
    words: frozenset[str], pool: Sequence[_Heard], needed: frozenset[str], most: int
) -> list[_Heard]:
    """The few lines that have enough of the words, all of the ``needed`` ones among them, the best first."""
    chosen: list[_Heard] = []
    missing = words
    while missing and len(chosen) < most:
        best = max(pool, key=lambda heard: len(missing & heard.words), default=None)
        if best is None or not missing & best.words:
            break
        chosen.append(best)
        missing -= best.words
    is_enough = share(words, words - missing) >= _SUPPORTED and not missing & needed
    return chosen if is_enough else []


def _is_founded(text: str, heard: Sequence[_Heard]) -> bool:
    """Whether everything exact in a sentence stands in the lines, or is a date that follows from theirs."""
    days = [datetime.fromtimestamp(each.line.at, UTC) for each in heard if each.line.at]
    years = {str(day.year + more) for day in days for more in (-1, 0, 1)}
    said = "\n".join(f"{each.line.name}: {each.line.text}" for each in heard)
    evidence = Evidence("\n".join([said, *sorted(years)]), said)
    rest = text
    for fact in facts_in(text):
        if fact.kind == "date":
            rest = rest.replace(fact.value, " ")
            if not all_numbers(fact.value) <= evidence.numbers | _near(days):
                return False
    return next(unfounded(rest, evidence), None) is None and _has_names(rest, said)


def _near(days: Sequence[datetime]) -> frozenset[str]:
    """The numbers of the dates around these."""
    around = (day + timedelta(days=more) for day in days for more in range(-_NEAR, _NEAR + 1))
    return frozenset(str(number) for day in around for number in (day.year, day.month, day.day))


def _has_names(text: str, said: str) -> bool:
    """Whether what a sentence writes with a capital was said; German writes all nouns so."""
    if _GERMAN.search(text):
        return True
    names = (each for each in _CAPITAL.findall(text) if each.lower() not in _MONTHS)
    words = words_of(said)
    return all(words_of(name) <= words for name in names)


def _is_turned(text: str, heard: Sequence[_Heard]) -> bool:
    """Whether a clause denies what the one nearest to it says, or the other way round."""
    stated = [clause for each in heard for clause in each.clauses]
    for clause in CLAUSE_END.split(text):
        words = words_of(clause)
        nearest = max(stated, key=lambda said: len(words & words_of(said)), default="")
        if not words & words_of(nearest) or RELIEF.search(clause) or RELIEF.search(nearest):
            continue
        if bool(NEGATION.search(clause)) is not bool(NEGATION.search(nearest)):
            return True
    return False
