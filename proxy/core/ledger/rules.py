"""Constraints: what users and systems laid down, the newest where one takes the place of another.

Two sentences are about the same subject where most of their words are the same, values apart. Such a sentence
replaces an older one, unless the two speak of different things of one kind ("unit tests" and "integration
tests"), or forbid the same of different things.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.ledger.facts import facts_in
from proxy.core.ledger.sentences import Sentence
from proxy.core.ledger.tokens import kind_of

MOST_COMPARED = 400
"""Sentences, the newest, that are compared with each other."""
_REMEMBERED = 4_096
"""Subjects that a process remembers."""
_ALIKE, _ALIKE_IN_KIND = 0.6, 0.5
"""Of the shorter sentence's words, how many the other has; the second where both name the same kinds."""
_WORD = re.compile(r"[^\W\d_][\w'\u2019-]*|[$€£¥]?\d[\w.,/:-]*")
_CJK = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
_SUFFIX = re.compile(r"(?:ing|ped|ned|ed|es|s|'s|\u2019s|en|e)$")
_STOP = frozenset(
    "the a an and or of to in on at by for with from into this that these those it its is are was were "
    "be been am do does not no don't dont never always must should shall may can will would please "
    "only just also we you i my our your their me us as if then than so but any all every each ever "
    "now old more less most least user wants want safety rule hard constraint fact goal state "
    "preference note important update quick der die das und oder ein eine zu in mit auf für ist sind "
    "nicht nie niemals immer nur muss bitte kein keine el la los las un una de del y o que es son no "
    "nunca siempre solo debe por favor le la les des et ou un une du est sont ne pas jamais toujours "
    "doit dans sur pour".split()
)
_COUNTED = frozenset(
    "one two three four five six seven eight nine ten hundred thousand million dollar dollars "
    "euro euros".split()
)
_KIND = {"amount": "quantity", "number": "quantity", "error": "code", "id": "code", "file": "path"}
"""Kinds that stand for each other."""
_CHANGES = re.compile(
    r"\b(?:now|updated?|changed|moved|switched|new|rotated|renamed|replaced|instead|from now on|correction"
    r"|no longer|jetzt|nun|neue?[rsmn]?|geändert|ab sofort|ahora|nuev[oa]|cambi\w+|désormais|maintenant"
    r"|nouve\w+|chang\w+)\b"
    r"|変更|今後|新しい|になりました|现在|現在|改为|改為|新的",
    re.IGNORECASE,
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
    """What a sentence is about."""

    words: frozenset[str]
    """Its words, values apart."""
    before: Mapping[str, str]
    """What stands before each word, if that is a word too."""
    values: frozenset[str]
    kinds: frozenset[str]
    """Of its values."""

    def contrasts(self, other: "Subject") -> bool:
        """Whether what stands before a word tells two apart that both have it: unit and smoke *tests*."""
        return any(
            self.before.get(word, "") not in ("", *other.words)
            and other.before.get(word, "") not in ("", *self.words)
            for word in self.words & other.words
        )


def in_force(rules: Iterable[Rule]) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
    """Rules, the newest first, without those that newer ones replace; and those, each with its successor."""
    standing: list[tuple[Rule, Subject]] = []
    replaced: list[tuple[Rule, Rule]] = []
    said: set[str] = set()
    for rule in sorted(rules, key=lambda rule: -rule.position)[:MOST_COMPARED]:
        if rule.sentence.text in said:
            continue
        said.add(rule.sentence.text)
        subject = subject_of(rule.sentence.text)
        newer = next((each for each, about in standing if _replaces(each, about, rule, subject)), None)
        if newer is None:
            standing.append((rule, subject))
        else:
            replaced.append((rule, newer))
    for rule, subject in list(standing):
        old = _changed_by(rule, subject, standing)
        if old is not None:
            standing = [each for each in standing if each[0] != old]
            replaced.append((old, rule))
    return [rule for rule, _ in standing], replaced


def _replaces(newer: Rule, about: Subject, older: Rule, subject: Subject) -> bool:
    """Whether two sentences are about the same, so that the newer one counts."""
    common, least = about.words & subject.words, min(len(about.words), len(subject.words))
    alike = _ALIKE_IN_KIND if about.kinds and about.kinds == subject.kinds else _ALIKE
    if newer.position == older.position or not common or len(common) < alike * least:
        return False
    if about.contrasts(subject) or (least == 1 and about.words != subject.words):
        return False
    objects = any(kind_of(value) in _OBJECTS for value in about.values ^ subject.values)
    return not objects or all(_STATES.search(rule.sentence.text) for rule in (newer, older))


def _changed_by(rule: Rule, subject: Subject, standing: Sequence[tuple[Rule, Subject]]) -> Rule | None:
    """The older sentence whose value this one, if it tells of a change, has changed: the likest."""
    if not _CHANGES.search(rule.sentence.text):
        return None
    likest = max(
        (
            (len(subject.words & about.words) / len(about.words), older.position, older)
            for older, about in standing
            if older.position < rule.position
            and subject.words & about.words
            and subject.kinds & about.kinds
            and not subject.contrasts(about)
        ),
        key=lambda found: found[:2],
        default=None,
    )
    return likest[2] if likest is not None else None


@lru_cache(_REMEMBERED)
def subject_of(sentence: str) -> Subject:
    """The words and values of a sentence."""
    facts = facts_in(sentence)
    plain = sentence
    for fact in sorted(facts, key=lambda fact: -len(fact.value)):
        plain = plain.replace(fact.value, " ; ")
    words: list[str] = []
    before: dict[str, str] = {}
    kinds = {_KIND.get(fact.kind, fact.kind) for fact in facts}
    previous = ""
    for match in _WORD.finditer(plain):
        word = match[0].strip(".,:'\u2019-").lower()
        if _CJK.search(word):
            words += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
            previous = ""
        elif word in _STOP or len(word) < 2 or word in _COUNTED or any(map(str.isdigit, word)):
            kinds |= {"quantity"} if word in _COUNTED else set()
            previous = ""
        else:
            words.append(_stem(word))
            if previous:
                before.setdefault(words[-1], previous)
            previous = words[-1]
    values = frozenset(fact.value for fact in facts)
    return Subject(frozenset(words), before, values, frozenset(kinds))


def _stem(word: str) -> str:
    return _SUFFIX.sub("", word) if len(word) > 3 else word
