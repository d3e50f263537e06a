"""Constraints: what users and systems laid down, the newest where one takes the place of another.

Two sentences are about the same subject where most of their words are the same, values apart. Such a sentence
replaces an older one, unless the two speak of different things of one kind ("unit tests" and "integration
tests"), or forbid the same of different things.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.core.ledger.facts import NAME
from proxy.core.ledger.sentences import Sentence
from proxy.core.ledger.tokens import kind_of

MOST_COMPARED = 400
"""Sentences, the newest, that are compared with each other."""
_ALIKE = 0.6
_WORD = re.compile(r"[^\W\d_][\w'’-]*|[$€£¥]?\d[\w.,/:-]*")
_CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
_SUFFIX = re.compile(r"(?:ing|ped|ned|ed|es|s|'s|’s|en|e)$")
_STOP = frozenset(
    "the a an and or of to in on at by for with from into this that these those it its is are was were be been am do does "
    "not no don't dont never always must should shall may can will would please only just also we you i my our your their me "
    "us as if then than so but any all every each ever now new old total more less most least user wants want safety rule "
    "hard constraint fact goal state preference note important update quick der die das und oder ein eine zu in mit auf für "
    "ist sind nicht nie niemals immer nur muss bitte kein keine el la los las un una de del y o que es son no nunca siempre "
    "solo debe por favor le la les des et ou un une du est sont ne pas jamais toujours doit dans sur pour".split()
)
_COUNTED = frozenset(
    "one two three four five six seven eight nine ten hundred thousand million dollars dollar euros euro monday tuesday "
    "wednesday thursday friday saturday sunday january february march april june july august september october november "
    "december".split()
)
_STATES = re.compile(
    r"\b(?:is|are|was|now|=|lives|runs|belongs|capped|cap|limit|deadline|called|moved|changed|ist|lautet|es|son|est|sont)\b|:|は|是|为|為",
    re.IGNORECASE,
)
_OBJECTS = frozenset({"path", "file", "symbol", "url", "email"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A binding sentence where it was said."""

    position: int
    sentence: Sentence


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sentence is about: its words, values apart, and what stands before each."""

    words: frozenset[str]
    before: tuple[tuple[str, str], ...]
    values: frozenset[str]


def in_force(rules: Iterable[Rule]) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
    """Rules, the newest first, without those that a newer one replaces; and those, each with what replaced it."""
    standing: list[tuple[Rule, Subject]] = []
    replaced: list[tuple[Rule, Rule]] = []
    said: set[str] = set()
    newest = sorted(rules, key=lambda rule: -rule.position)[:MOST_COMPARED]
    for rule in newest:
        if rule.sentence.text in said:
            continue
        said.add(rule.sentence.text)
        subject = subject_of(rule.sentence.text)
        newer = next((each for each, about in standing if _replaces(each, about, rule, subject)), None)
        if newer is None:
            standing.append((rule, subject))
        else:
            replaced.append((rule, newer))
    return [rule for rule, _ in standing], replaced


def _replaces(newer: Rule, about: Subject, older: Rule, subject: Subject) -> bool:
    if newer.position == older.position:
        return False
    common = about.words & subject.words
    least = min(len(about.words), len(subject.words))
    if (
        not common
        or len(common) < _ALIKE * least
        or (len(common) == 1 and least == 1 and about.words != subject.words)
    ):
        return False
    if _contrasts(about, subject, common):
        return False
    objects = {value for value in about.values ^ subject.values if kind_of(value) in _OBJECTS}
    return not objects or bool(_STATES.search(newer.sentence.text) and _STATES.search(older.sentence.text))


def _contrasts(one: Subject, other: Subject, common: frozenset[str]) -> bool:
    """Whether a word that both have is told apart by what stands before it."""
    first, second = dict(one.before), dict(other.before)
    return any(
        first.get(word, "")
        and second.get(word, "")
        and first[word] not in other.words
        and second[word] not in one.words
        for word in common
    )


def subject_of(sentence: str) -> Subject:
    """The words and values of a sentence."""
    words: list[str] = []
    values: set[str] = set()
    before: dict[str, str] = {}
    previous = ""
    values.update(match[0] for match in NAME.finditer(sentence))
    for match in _WORD.finditer(NAME.sub(" ; ", sentence)):
        word = match[0].strip(".,:'’-")
        lower = word.lower()
        if _CJK.search(word):
            words += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
            previous = ""
        elif lower in _STOP or len(lower) < 2:
            previous = ""
        elif lower in _COUNTED or any(map(str.isdigit, word)) or (kind_of(word) is not None):
            values.add(word)
            previous = ""
        else:
            stem = _stem(lower)
            words.append(stem)
            if previous:
                before.setdefault(stem, previous)
            previous = stem
    return Subject(frozenset(words), tuple(before.items()), frozenset(values))


def _stem(word: str) -> str:
    return _SUFFIX.sub("", word) if len(word) > 4 else word
