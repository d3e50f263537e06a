"""The odds that a later turn needs a fact, as observed in recorded sessions of agents and chats.

The weights are close to those of a logistic regression, but for what sessions of other agents showed of
files, paths and versions. Values that a call has used are used again; single values under a key were asked
for; one of a thousand values in a log was not.
"""

from functools import lru_cache
from math import fsum, log, log2

import msgspec

from proxy.core.extraction.facts import Fact
from proxy.core.extraction.reading import Voice

_KIND = {
    "file": 2.4,
    "path": 2.3,
    "class": 1.5,
    "function": 1.2,
    "constant": 0.9,
    "test": 2.5,
    "symbol": 1.2,
    "member": 0.0,
    "date": 1.0,
    "version": -1.4,
    "url": 0.5,
    "phone": 0.4,
    "email": 0.2,
    "name": 0.2,
    "code": 0.4,
    "error": -0.2,
    "id": -0.6,
    "time": -0.6,
    "quoted": -1.0,
    "amount": -1.4,
    "number": -1.6,
    "text": -1.7,
}
_VOICE: dict[Voice, float] = {"user": 0.3, "system": 0.0, "assistant": -0.2, "argument": 0.0, "result": -0.6}
RESULTS: frozenset[Voice] = frozenset({"result"})
"""The voices of a value that only tools have told."""
_USED, _USED_OFTEN, _USED_AGE = 2.8, 0.7, -0.43
FEW = 24
"""Number of values in a call's arguments up to which each counts as used; more suggest program code."""
_KEYED, _KEYED_QUANTITY = 1.9, 0.9
_NAMED_BY_TOOL = -1.0
AGE = -0.2
"""What each doubling of the messages since a fact was mentioned adds to its log odds."""
_CROWD = -0.38
_CROWDED = 1_000
_BY_CROWD = [_CROWD * log(1 + crowd) for crowd in range(_CROWDED + 1)]
_DENSITY = 0.8
_LONG = 48
"""Length in characters from which on a value gets no less: long paths have few tokens for their letters."""
LEAST_ODDS = -3.4
"""Odds, age apart, below which a fact is not worth its room: nearly all that was needed was above."""
_MANY = 150
"""Number of values in one message from which on it is a listing."""
_LETTERS = 3
"""Approximate characters per token."""


class Mentions(msgspec.Struct, gc=False):
    """Where one exact value was mentioned."""

    fact: Fact
    last: int
    """Position of the newest message that mentions it."""
    crowd: int
    """The smallest number of values in any message that mentions it."""
    voices: frozenset[Voice]
    used: float = 0.0
    """How many calls have used it; calls with many values count less."""
    returned: bool = False
    """Whether more than one message mentions it."""

    @property
    def is_listed(self) -> bool:
        """Whether it was mentioned only in listings, and no call has used it."""
        return not self.used and self.crowd >= _MANY

    def odds(self, age: float) -> float:
        """Log odds, up to a constant; long values get less.

        ``age``: binary logarithm of the number of messages since the newest mention.
        """
        score = AGE * age
        if self.used and self.fact.kind != "text":  # prose in a call is seldom told again
            score += min(self.used, 1.0) * (_USED + _USED_AGE * min(age, 6))
            score += _USED_OFTEN * log2(1 + self.used)
        fact = self.fact
        base = _at_any_age(fact.kind, self.voices, is_keyed=bool(fact.key))
        return score + (base + _BY_CROWD[min(self.crowd, _CROWDED)] - _by_length(len(fact.value)))


@lru_cache(1 << 10)
def _at_any_age(kind: str, voices: frozenset[Voice], *, is_keyed: bool) -> float:
    """The part of the log odds that depends neither on age nor on crowd and length."""
    score = _KIND[kind] + fsum(_VOICE[voice] for voice in voices)
    if is_keyed:
        score += _KEYED_QUANTITY if kind in ("number", "amount") else _KEYED
    if kind == "name" and voices == RESULTS:
        score += _NAMED_BY_TOOL
    return score


@lru_cache(1 << 10)
def _by_length(length: int) -> float:
    return _DENSITY * log(max(min(length, _LONG) / _LETTERS, 1.0))
