"""Constraints: the rules of users and systems, without those withdrawn or replaced by another value.

A rule is dropped only if a later sentence of somebody with at least the same authority withdraws it, or sets
another value for the same thing. No rule is dropped because another sentence is similar, or because it lacks
a known word for forbidding: losing a rule is worse than keeping an outdated one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from proxy.core.extraction.reading import BINDS, Sentence
from proxy.core.extraction.subjects import Subject, subject_of
from proxy.core.text.lexicon.concepts import ATTRIBUTES, FITTING

# --- whether a sentence withdraws an older one, or sets another value for the same thing ---
#
# The functions compare the subjects of two sentences, of which ``newer`` was said after ``older``.

_OBJECTS = frozenset({"path", "symbol", "url", "email", "code", "name"})
"""Kinds of values that name a thing; a rule may set such a value, but as often it is only about it."""
_MANNERS = frozenset({"tone", "system", "tongue", "zone", "day"})
"""Kinds of values that say how or when something is done; a rule that names one always sets it."""
_TONE, _URL = frozenset({"tone"}), frozenset({"url"})
_HELD = frozenset({"approval", "codename", "duty", "style"})
"""Attributes whose value is often a name, such as who is on duty."""
_COMPARED = 64
"""Largest number of newer sentences, newest first, that a sentence is compared with; others are ignored."""
_UNTYPED = ATTRIBUTES - FITTING.keys()
"""Attributes that may have a value of any kind."""
_ALIKE, _ALIKE_IN_KIND = 0.6, 0.5
"""Least shares of common words: of a short withdrawal with the rule that it withdraws, and of two sentences
that name the same attribute."""


def _withdraws(newer: Subject, older: Subject) -> bool:
    """Whether ``newer`` withdraws ``older``: both are about exactly the same act, and it says the opposite.

    "You may deploy on Fridays" withdraws "Never deploy on Fridays".
    """
    if newer.act != older.act or not _names_the_same(newer, older):
        return False
    if newer.withdraws or (newer.permits and not older.permits):
        return True
    is_free = older.forbids or older.withdraws
    is_opposite = not older.forbids if newer.forbids else newer.commands and is_free
    # Of an amount, the opposite is a limit from the other side.
    return is_opposite and not (newer.limits or older.limits) and bool(newer.act)


def _may_replace(newer: Subject, older: Subject) -> bool:
    """Whether ``newer`` replaces ``older`` in fewer words; used only if no other rule fits.

    "The ban on payments.py is lifted" withdraws "Do not touch payments.py", and "The report is now due on
    Monday" changes what "The deadline for the bridge report is Friday" says.
    """
    may_change = newer.tells_change and older.head and not (newer.forbids or older.forbids)
    if may_change and newer.words and newer.words < older.words and newer.differing(older):
        return True
    if not (newer.withdraws or newer.permits) or older.permits or not newer.act < older.act:
        return False
    is_like = len(newer.act) >= _ALIKE * len(older.act)
    return _names_the_same(newer, older) and (is_like or (newer.withdraws and bool(newer.values)))


def _names_the_same(newer: Subject, older: Subject) -> bool:
    """Whether ``newer`` names all values of ``older``; if that has none, it must not name any either."""
    if bool(newer.values) != bool(older.values):
        return False
    return all(values <= newer.values.get(kind, frozenset()) for kind, values in older.values.items())


def _sets_another(newer: Subject, older: Subject) -> bool:
    """Whether ``newer`` sets another value for the same thing.

    "The budget is $800" replaces "The budget is $500", and "Answer in English" replaces "Answer in German".
    """
    if newer.head and newer.head == older.head and newer.head <= _UNTYPED:
        return True
    if not (newer.replaces or newer.about == older.about) or not _may_set(newer, older):
        return False
    shared, differing = newer.attributes & older.attributes, newer.differing(older)
    # A rule that names "the next release" does not set what is next, and neither does what is about a thing.
    is_no_state = older.commands or older.forbids or differing & _OBJECTS
    if shared & _UNTYPED and newer.is_like(older, _ALIKE_IN_KIND) and not is_no_state:
        return True
    if not differing:
        return False
    if fitting := differing & newer.fitting(older):
        return _sets_attribute(newer, older, fitting, differing)
    # Else the value may be of the thing that both are about: a server's address, or the language of answers.
    if newer.is_one and older.is_one and differing == _URL:
        return newer.head <= older.head or older.head <= newer.head
    is_state = bool(newer.head) and newer.head == older.head and (newer.is_one or not differing & _OBJECTS)
    is_changed = newer.replaces and not (newer.forbids or older.forbids)
    is_set = differing <= _MANNERS or newer.limits or is_changed or is_state
    return newer.things == older.things and is_set


def _sets_attribute(
    newer: Subject, older: Subject, fitting: frozenset[str], differing: frozenset[str]
) -> bool:
    """Whether ``newer`` sets another value for an attribute that both sentences name, such as the budget.

    ``differing`` are the kinds of values in which the sentences differ, ``fitting`` those of them that the
    attribute may have.
    """
    held = newer.attributes & older.attributes & _HELD
    is_stated = bool(held or newer.head or older.head) or (newer.uses and newer.words == older.words)
    if fitting <= _OBJECTS and not (is_stated or newer.replaces):
        return False  # the values may only occur beside the attribute's name
    if (differing - fitting) & _OBJECTS:
        return False  # it is set for two different things
    if newer.tells_change or newer.replaces:
        return True
    if newer.values.keys() != older.values.keys():
        return False
    # Both may name it of the same thing: the things of one are those of the other, or do not differ much.
    one, other = newer.things, older.things
    return one <= other or other <= one or len(one & other) >= _ALIKE_IN_KIND * min(len(one), len(other))


def _may_set(newer: Subject, older: Subject) -> bool:
    """Whether the values may be what the sentences set, rather than what they forbid."""
    if newer.limits and older.limits:
        return True
    if newer.replaces or not (newer.forbids or older.forbids):
        return True
    if newer.forbids and older.forbids:
        return bool(newer.head and older.head)
    return bool(older.head) or newer.differing(older) == _TONE


# --- which rules are in force ---


@dataclass(frozen=True, slots=True)
class Constraint:
    """A binding sentence with its origin."""

    position: int
    sentence: Sentence
    authority: int = 0
    """Authority of the speaker: only somebody with at least as much may withdraw the rule."""


def in_force(rules: Iterable[Constraint]) -> tuple[list[Constraint], list[tuple[Constraint, Constraint]]]:
    """Return the rules in force, newest first, and each replaced rule with the newer rule that replaced it.

    A rule that replaces another is at least as strong as that one. Sentences that do not bind (strength 0)
    are left out, unless they replaced a rule.
    """
    standing = _RulesInForce()
    replaced: list[tuple[Constraint, Constraint]] = []
    bound: set[tuple[object, int]] = set()
    for rule in sorted(rules, key=lambda rule: -rule.position):
        subject = subject_of(rule.sentence.text)
        is_firm = rule.sentence.strength >= BINDS or subject.forbids or not subject.words
        # Of weak rules with the same words and values, such as requests, only the newest is used.
        meaning = rule.sentence.text if is_firm else (subject.words, _act_and_values(subject))
        if (meaning, rule.authority) in bound:
            continue
        bound.add((meaning, rule.authority))
        newer = standing.successor(rule, subject)
        if newer is None:
            standing.add(rule, subject)
        else:
            replaced.append((rule, newer))
    for old, newer in standing.in_fewer_words():
        standing.remove(old)
        replaced.append((old, newer))
    strengths: dict[int, int] = {}
    for old, newer in replaced:
        strengths[id(newer)] = max(old.sentence.strength, strengths.get(id(newer), 0))
    return [
        replace(rule, sentence=Sentence(rule.sentence.text, strength))
        for rule, _ in standing.all()
        if (strength := max(rule.sentence.strength, strengths.get(id(rule), 0)))
    ], replaced


_Bound = tuple[Constraint, Subject]


class _RulesInForce:
    """The rules in force, newest first, indexed by what a rule must share with an older one to replace it."""

    def __init__(self) -> None:
        self._rules: dict[int, _Bound] = {}
        self._withdrawing: dict[frozenset[str], list[_Bound]] = {}
        self._by_meaning: dict[tuple[frozenset[str], frozenset[frozenset[str]]], list[_Bound]] = {}
        self._naming: dict[str, list[_Bound]] = {}
        self._setting: dict[frozenset[str], list[_Bound]] = {}

    def add(self, rule: Constraint, subject: Subject) -> None:
        """Add a rule that is older than all rules added before."""
        bound = self._rules[len(self._rules)] = rule, subject
        if subject.withdraws or subject.permits:
            self._withdrawing.setdefault(subject.act, []).append(bound)
        else:
            self._by_meaning.setdefault(_act_and_values(subject), []).append(bound)
        for name in subject.attributes:
            self._naming.setdefault(name, []).append(bound)
        for things in _set_in(subject):
            self._setting.setdefault(things, []).append(bound)

    def remove(self, rule: Constraint) -> None:
        self._rules = {place: bound for place, bound in self._rules.items() if bound[0] is not rule}

    def all(self) -> list[_Bound]:
        return list(self._rules.values())

    def successor(self, rule: Constraint, subject: Subject) -> Constraint | None:
        """Return the rule in force that replaces this older one, or None."""
        withdrawing = (
            self._withdrawing.get(subject.act, ()),
            self._by_meaning.get(_act_and_values(subject), ()),
        )
        for newer, about in chain.from_iterable(each[:_COMPARED] for each in withdrawing):
            if _may_follow(newer, rule) and _withdraws(about, subject):
                return newer
        likely = [self._naming.get(name, ()) for name in sorted(subject.attributes)]
        likely += [self._setting.get(things, ()) for things in _set_in(subject)]
        for newer, about in chain.from_iterable(each[:_COMPARED] for each in likely):
            has_head = about.head and about.head == subject.head
            if not (has_head or about.replaces or about.about == subject.about):
                continue  # like half of them: it sets no other value
            if _may_follow(newer, rule) and _sets_another(about, subject) and not about.contrasts(subject):
                return newer
        return None

    def in_fewer_words(self) -> Iterator[tuple[Constraint, Constraint]]:
        """Yield each rule that a newer one replaces in fewer words, with that newer one.

        A newer rule counts only if exactly one older rule fits it.
        """
        changing = [
            bound for bound in self.all() if bound[1].withdraws or bound[1].permits or bound[1].tells_change
        ]
        having: dict[str, list[int]] = {}
        for place, (_, subject) in self._rules.items() if changing else ():
            for word in subject.words | subject.act:
                having.setdefault(word, []).append(place)
        for newer, about in changing[:_COMPARED]:
            # A rule that is replaced so has all words of either kind: those with the rarest are looked at.
            sought = [
                min((having[word] for word in words), key=len) for words in (about.words, about.act) if words
            ]
            places = {place for each in sought for place in each} if about.act else self._rules.keys()
            fitting = [
                older
                for older, subject in [self._rules[place] for place in places if place in self._rules]
                if _may_follow(newer, older) and _may_replace(about, subject) and not about.contrasts(subject)
            ]
            if len(fitting) == 1:
                yield fitting[0], newer


def _act_and_values(subject: Subject) -> tuple[frozenset[str], frozenset[frozenset[str]]]:
    return subject.act, frozenset(subject.values.values())


def _set_in(subject: Subject) -> list[frozenset[str]]:
    """Return index keys for a rule that may set another value without naming an attribute."""
    found = [subject.things] if subject.values else []
    return [*found, _URL] if subject.is_one and "url" in subject.values else found


def _may_follow(newer: Constraint, older: Constraint) -> bool:
    return newer.position > older.position and newer.authority >= older.authority
