"""The odds that a later turn needs a fact, by what was seen in recorded sessions of agents and chats.

The weights are those of a logistic regression, rounded: what a call has used before is used again; what stood
alone under a key was asked for; one of a thousand things in a log was not.
"""

from dataclasses import dataclass
from math import log, log2

from proxy.core.ledger.facts import Fact
from proxy.core.ledger.reading import Voice

_KIND = {
    "file": 2.0,
    "path": 1.4,
    "symbol": 1.2,
    "member": 1.0,
    "date": 1.0,
    "version": 0.8,
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
_USED, _USED_OFTEN, _USED_AGE = 2.8, 0.7, -0.43
_KEYED, _KEYED_QUANTITY = 1.9, 0.9
_NAMED_BY_TOOL = -1.0
_AGE, _CROWD = -0.1, -0.38
_CROWDED = 1_000
_DENSITY = 0.8
_MANY = 150
"""Things in one message that make it a listing."""
_LETTERS = 3
"""Characters of a token, roughly."""


@dataclass(slots=True)
class Mentions:
    """Where one exact thing was mentioned."""

    fact: Fact
    last: int
    """Position of the newest message that mentions it."""
    crowd: int
    """The fewest things that any of these messages mentions."""
    voices: set[Voice]
    used: int = 0
    """How many calls have used it."""

    @property
    def is_listed(self) -> bool:
        """Whether it was only ever one of many, and nobody has used it."""
        return not self.used and self.crowd >= _MANY

    def odds(self, length: int) -> float:
        """Logarithm of the odds, up to a constant, in a chain of ``length``; long things count less."""
        kind, age = self.fact.kind, log2(1 + length - self.last)
        score = _KIND[kind] + sum(_VOICE[voice] for voice in self.voices) + _AGE * age
        if self.used:
            score += _USED + _USED_OFTEN * log2(1 + self.used) + _USED_AGE * min(age, 6)
        if self.fact.key:
            score += _KEYED_QUANTITY if kind in ("number", "amount") else _KEYED
        if kind == "name" and self.voices == {"result"}:
            score += _NAMED_BY_TOOL
        score += _CROWD * log(1 + min(self.crowd, _CROWDED))
        return score - _DENSITY * log(max(len(self.fact.value) / _LETTERS, 1.0))
