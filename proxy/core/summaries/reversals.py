"""Rules and decisions of users that a summary turns into their opposite.

"Do not deploy" must not become "may deploy". What code can detect reliably: a sentence or a clause of a user
forbids something or decides against it, and a sentence of the summary has its words without any negation; or
the other way round. If the source says both, the summary may too.
"""

from collections.abc import Mapping
from typing import NamedTuple

from proxy.core.extraction.reading import BINDS, OUTRIGHT, strength_of
from proxy.core.lazy import lazy
from proxy.core.text.lexicon.binding import QUESTION
from proxy.core.text.lexicon.rules import (
    AGAINST,
    ASIDE,
    CLAUSE_END,
    COMMANDS,
    DECIDES,
    DOUBLE_NEGATION,
    GERMAN_PARTICIPLE,
    NEGATED_DEMAND,
    NEGATION,
    PERMITS,
    PREFERS,
    REASON,
    REJECTS,
    RELIEF,
    TAKEN_BACK,
    USING,
)
from proxy.core.text.words import sentences_in, words_of

_ONE_IN = 5
"""A sentence on the same subject as a rule lacks at most one in this many of the rule's words."""
_LEAST_WORDS = 2
_LEAST_STEM = 4
"""Characters of a stem with which another may begin, if both are forms of one word."""
_DECIDED = "decided"
"""Stands for all wordings of a decision, for or against something."""


class _Said(NamedTuple):
    """What a sentence or clause says: whether it is negated, and its words without those that say so."""

    words: frozenset[str]
    is_negated: bool


def _said(text: str) -> _Said:
    bare = GERMAN_PARTICIPLE.sub("", NEGATED_DEMAND.sub(" ", text))
    is_decision = _decides(bare)
    against = (NEGATION, REJECTS, AGAINST) if is_decision else (NEGATION,)
    is_negated = any(pattern.search(bare) for pattern in against) and not DOUBLE_NEGATION.search(bare)
    for pattern in (ASIDE, *against, *((DECIDES, USING) if is_decision else ()), PERMITS, COMMANDS):
        bare = pattern.sub(" ", bare)
    return _Said(words_of(bare) | ({_DECIDED} if is_decision else set()), is_negated)


def _decides(text: str) -> bool:
    return bool(DECIDES.search(text) or REJECTS.search(text))


class UserRules:
    """The users' rules and decisions, read once and used to check any number of summaries."""

    def __init__(self, user_text: str) -> None:
        self._sentences = sentences_in(user_text)

    @lazy
    def binding(self) -> Mapping[_Said, str]:
        """What users demand, forbid and decide, in the order of the text, each with its sentence.

        The same words count once. A clause that forbids counts by itself too, without the reasons and
        requests beside it.
        """
        rules: dict[_Said, str] = {}
        for sentence in dict.fromkeys(self._sentences):
            strength = strength_of(sentence)
            is_decision = _decides(sentence) and not QUESTION.search(sentence)
            if strength < BINDS and not is_decision:
                continue
            for part in dict.fromkeys((sentence, *CLAUSE_END.split(REASON.sub(",", sentence)))):
                said = _said(part)
                least = BINDS if said.is_negated else OUTRIGHT
                binds = strength >= least or (is_decision and _DECIDED in said.words)
                if (
                    binds
                    and len(said.words) >= _LEAST_WORDS
                    and (said.is_negated or part == sentence or _DECIDED in said.words)
                ):
                    rules.setdefault(said, sentence)
        return rules

    @lazy
    def said(self) -> set[_Said]:
        return set(map(_said, self._sentences))


def turned_around(summary: str, rules: UserRules, source: str) -> str | None:
    """Return the first user rule that ``summary``, made from ``source``, reverses; None if there is none."""
    claims: list[str] = []
    heading = ""
    for line in summary.splitlines():  # sentences under a heading with it: `Never: deploy on Fridays`
        plain = line.strip().strip("*#_ ")
        if not plain or plain.endswith((":", "\uff1a")):
            heading = plain
        else:
            claims += (f"{heading} {each}".strip() for each in sentences_in(plain))
    told = [(each, _said(each)) for each in claims]
    allowed = [
        said.words
        for each, said in told
        if not (said.is_negated or RELIEF.search(each) or (_DECIDED in said.words and PREFERS.search(each)))
    ]
    clauses = (clause for claim in claims for clause in CLAUSE_END.split(claim))
    taken_back = [_said(clause).words for clause in clauses if TAKEN_BACK.search(clause)]
    decisions = (each for each, said in told if said.is_negated and _DECIDED in said.words)
    parts = (_said(part) for each in decisions for part in CLAUSE_END.split(REASON.sub(",", each)))
    taken_back += (said.words for said in parts if said.is_negated and _DECIDED in said.words)
    turned = [
        rule
        for rule in rules.binding
        if any(_is_about(rule, words) for words in (allowed if rule.is_negated else taken_back))
    ]
    if not turned:
        return None
    # If the source has the opposite too, a newer rule may have replaced the older one.
    said = rules.said | set(map(_said, sentences_in(source)))
    for rule in turned:
        opposite = (each.words for each in said if each.is_negated != rule.is_negated)
        if not any(_is_about(rule, words) for words in opposite):
            return rules.binding[rule]
    return None


def _is_about(rule: _Said, words: frozenset[str]) -> bool:
    """Whether a sentence of these words is on the same subject as a rule."""
    lacking, most = rule.words - words, len(rule.words) // _ONE_IN
    if _DECIDED in lacking or len(lacking) > most + 1:
        return False
    return len(lacking) - any(_is_form(one, other) for one in lacking for other in words) <= most


def _is_form(one: str, other: str) -> bool:
    """Whether one stem begins with the other, as irregular forms of a word do."""
    return min(len(one), len(other)) >= _LEAST_STEM and (one.startswith(other) or other.startswith(one))
