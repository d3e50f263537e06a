"""Constraints: what users and systems laid down, the newest where one takes the place of another.

Two sentences are about the same subject where most of their words are the same, values apart, or where they
give another value to the same attribute ("spending", "expenses"). Such a sentence replaces an older one,
unless the two speak of different things of one kind ("unit tests" and "integration tests"), or forbid the
same of different things: to lose a rule is worse than to tell an old one too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proxy.core.ledger.sentences import Sentence
from proxy.core.ledger.subjects import Subject, subject_of

MOST_COMPARED = 400
"""Sentences, the newest, that are compared with each other."""
_ALIKE, _ALIKE_IN_KIND = 0.6, 0.5
"""Of the shorter sentence's words, how many the other has; the second where both name the same kinds."""

_CHANGED = 0.4
"""The same where the newer one tells of a change, and both name values of a kind."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A binding sentence where it was said."""

    position: int
    sentence: Sentence


def in_force(rules: Iterable[Rule]) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
    """Rules, the newest first, without those that newer ones replace; and those, each with its successor.

    What takes the place of a rule is as firm as that was.
    """
    standing = _Standing()
    replaced: list[tuple[Rule, Rule]] = []
    said: set[str] = set()
    for rule in sorted(rules, key=lambda rule: -rule.position)[:MOST_COMPARED]:
        if rule.sentence.text in said:
            continue
        said.add(rule.sentence.text)
        subject = subject_of(rule.sentence.text)
        near = standing.near(subject)
        newer = next((each for each, about in near if _replaces(each, about, rule, subject)), None)
        if newer is None:
            standing.add(rule, subject)
        else:
            replaced.append((rule, newer))
    for rule, subject in standing.all():
        old = _changed_by(rule, subject, standing.near(subject)) if subject.tells_change else None
        if old is not None:
            standing.remove(old)
            replaced.append((old, rule))
    return [_as_firm(rule, replaced) for rule, _ in standing.all()], replaced


class _Standing:
    """Rules in force, the newest first, found by the words that they share with another."""

    def __init__(self) -> None:
        self._rules: dict[int, tuple[Rule, Subject]] = {}
        self._sizes: dict[int, int] = {}
        self._places: dict[str, list[int]] = {}

    def add(self, rule: Rule, subject: Subject) -> None:
        place = len(self._rules)
        self._rules[place] = (rule, subject)
        self._sizes[place] = len(subject.words)
        for word in subject.words:
            self._places.setdefault(word, []).append(place)

    def remove(self, rule: Rule) -> None:
        self._rules = {place: each for place, each in self._rules.items() if each[0] != rule}

    def near(self, subject: Subject) -> list[tuple[Rule, Subject]]:
        """Those that name an attribute that ``subject`` names, or share many of its words."""
        shared = Counter(place for word in subject.words for place in self._places.get(word, ()))
        named = {place for word in subject.attributes for place in self._places.get(word, ())}
        return [
            self._rules[place]
            for place in sorted(shared)
            if place in self._rules
            and (place in named or shared[place] >= _CHANGED * min(self._sizes[place], len(subject.words)))
        ]

    def all(self) -> list[tuple[Rule, Subject]]:
        return list(self._rules.values())


def _as_firm(rule: Rule, replaced: Sequence[tuple[Rule, Rule]]) -> Rule:
    sentence = rule.sentence
    strength = max([sentence.strength, *(old.sentence.strength for old, newer in replaced if newer is rule)])
    return (
        rule if strength == sentence.strength else replace(rule, sentence=Sentence(sentence.text, strength))
    )


def _replaces(newer: Rule, about: Subject, older: Rule, subject: Subject) -> bool:
    """Whether two sentences are about the same, so that the newer one counts."""
    if newer.position == older.position:
        return False
    alike = _ALIKE_IN_KIND if about.kinds and about.kinds == subject.kinds else _ALIKE
    is_same = about.gives_another(subject) or (
        about.is_like(subject, alike) and not about.concerns_others(subject)
    )
    return is_same and not about.contrasts(subject)


def _changed_by(rule: Rule, subject: Subject, standing: Sequence[tuple[Rule, Subject]]) -> Rule | None:
    """The older sentence whose value this one, which tells of a change, has changed: the likest."""
    likest = max(
        (
            (len(subject.words & about.words) / len(about.words), older.position, older)
            for older, about in standing
            if older.position < rule.position
            and subject.kinds & about.kinds
            and (subject.attributes & about.attributes or about.is_like(subject, _CHANGED))
            and not subject.contrasts(about)
        ),
        key=lambda found: found[:2],
        default=None,
    )
    return likest[2] if likest is not None else None
