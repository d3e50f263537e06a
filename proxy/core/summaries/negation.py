"""Whether a summary turns around what a user laid down: "do not deploy" must not become "may deploy".

What code can say soundly: a binding sentence of a user is negated, and a sentence of the summary has its
words and no negation of any kind; or the other way round. Where the source itself says both, the summary may.

A sentence of the source is read once, however many summaries are held against it, and found by its words: a
long conversation has thousands of sentences and dozens of summaries.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from proxy.core.extraction.constraints import strength_of
from proxy.core.text.lexicon.rules import CLAUSE_END, NEGATED_DEMAND, NEGATION, RELIEF, TAKEN_BACK
from proxy.core.text.words import sentences_in, words_of

_ONE_IN = 5
"""Of so many words of a rule, a sentence that speaks of the same lacks one at most."""
_LEAST_WORDS = 2
_BINDING, _FIRM = 2, 3


@dataclass(frozen=True, slots=True)
class _Rule:
    """A sentence of a user that binds."""

    place: int
    text: str
    words: frozenset[str]
    is_negated: bool


class LaidDown:
    """What users said, each sentence read once."""

    def __init__(self, said: str) -> None:
        self._said = said

    @cached_property
    def forbidden(self) -> "_Rules":
        """What they told not to do."""
        return _Rules([rule for rule in self._rules if rule.is_negated])

    @cached_property
    def demanded(self) -> "_Rules":
        """What they told to do."""
        return _Rules([rule for rule in self._rules if not rule.is_negated])

    @cached_property
    def sides(self) -> "_Sides":
        """All that they said, for and against."""
        return _Sides(self._sentences)

    @cached_property
    def _sentences(self) -> list[str]:
        return sentences_in(self._said)

    @cached_property
    def _rules(self) -> Sequence[_Rule]:
        """Those of the same words count once: they are turned around together."""
        found: dict[tuple[frozenset[str], bool], _Rule] = {}
        for place, sentence in enumerate(dict.fromkeys(self._sentences)):
            strength = strength_of(sentence)
            if strength < _BINDING:
                continue
            bare = NEGATED_DEMAND.sub(" ", sentence)
            is_negated = bool(NEGATION.search(bare))
            words = words_of(NEGATION.sub(" ", bare))
            if strength >= (_BINDING if is_negated else _FIRM) and len(words) >= _LEAST_WORDS:
                found.setdefault((words, is_negated), _Rule(place, sentence, words, is_negated))
        return list(found.values())


class _Rules:
    """Rules, found by what a sentence says.

    Each is filed under its rarest words: of so many, a sentence that speaks of the same has at least one.
    """

    def __init__(self, rules: Sequence[_Rule]) -> None:
        often = Counter(word for rule in rules for word in rule.words)
        self._filed: dict[str, list[_Rule]] = {}
        for rule in rules:
            rarest = sorted(rule.words, key=lambda word: (often[word], word))
            for word in rarest[: _lacking(rule.words) + 1]:
                self._filed.setdefault(word, []).append(rule)

    def about(self, sentence: str) -> Iterator[_Rule]:
        """Those that ``sentence`` speaks of."""
        found = words_of(sentence)
        near = (rule for word in found for rule in self._filed.get(word, ()))
        return (rule for rule in near if _is_about(rule.words, found))


class _Sides:
    """Sentences by their words, those with a negation apart from those without."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._with: dict[bool, dict[str, list[frozenset[str]]]] = {True: {}, False: {}}
        read = {(words_of(each), bool(NEGATION.search(NEGATED_DEMAND.sub(" ", each)))) for each in sentences}
        for words, is_negated in read:
            for word in words:
                self._with[is_negated].setdefault(word, []).append(words)

    def has_opposite(self, rule: _Rule) -> bool:
        """Whether a sentence on the other side speaks of the same."""
        found = self._with[not rule.is_negated]
        rarest = sorted((found.get(word, ()) for word in rule.words), key=len)[: _lacking(rule.words) + 1]
        return any(_is_about(rule.words, each) for near in rarest for each in near)


def turned_around(summary: str, said: LaidDown, told: str) -> str | None:
    """The first sentence of a user that ``summary`` turns around, if any.

    ``said`` is what users said, ``told`` what the summary was made from beside it.
    """
    claims = list(_with_headings(summary))
    clauses = [clause for claim in claims for clause in CLAUSE_END.split(claim)]
    affirmed = (claim for claim in claims if not (NEGATION.search(claim) or RELIEF.search(claim)))
    turned = {rule for claim in affirmed for rule in said.forbidden.about(claim)}
    turned |= {rule for clause in filter(TAKEN_BACK.search, clauses) for rule in said.demanded.about(clause)}
    if not turned:
        return None
    sides = (said.sides, _Sides(sentences_in(told)))
    # Where the source has the opposite too, the newer may have taken the place of the older.
    plain = (rule for rule in turned if not any(side.has_opposite(rule) for side in sides))
    first = min(plain, key=lambda rule: rule.place, default=None)
    return first.text if first else None


def _is_about(words: frozenset[str], found: frozenset[str]) -> bool:
    return len(words - found) <= _lacking(words)


def _lacking(words: frozenset[str]) -> int:
    return len(words) // _ONE_IN


def _with_headings(summary: str) -> Iterable[str]:
    """The sentences of a summary, those under a heading with it: `Never: deploy on Fridays`."""
    heading = ""
    for line in summary.splitlines():
        plain = line.strip().strip("*#_ ")
        if plain.endswith((":", "\uff1a")):
            heading = plain
        elif not plain:
            heading = ""
        else:
            yield from (f"{heading} {each}".strip() for each in sentences_in(plain))
