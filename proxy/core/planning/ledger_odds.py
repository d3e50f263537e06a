"""The odds that a later turn needs a fact, as observed in recorded sessions of agents and chats.

The weights are close to those of a logistic regression over what later turns used again, in 26 collections of
sessions that count alike: what an assistant said or a call was given returns far more often than what only a
tool printed.
"""

import re
from collections.abc import Mapping
from math import fsum, log

import msgspec

from proxy.core.extraction.facts import Fact
from proxy.core.extraction.reading import Voice

KINDS: Mapping[str, tuple[float, str]] = {
    "test": (1.5, "tests"),
    "class": (1.3, "classes"),
    "function": (1.3, "functions"),
    "symbol": (1.2, "in code"),
    "constant": (1.2, "constants"),
    "id": (1.2, "ids"),
    "url": (1.1, "URLs"),
    "file": (1.0, "files"),
    "path": (1.0, "paths"),
    "date": (0.8, "dates"),
    "email": (0.8, "e-mails"),
    "phone": (0.4, "phones"),
    "version": (0.3, "versions"),
    "name": (0.2, "names"),
    "code": (0.0, "codes"),
    "member": (0.0, "in code"),
    "quoted": (-0.3, "quoted"),
    "amount": (-0.3, "amounts"),
    "time": (-0.8, "times"),
    "error": (-1.2, "errors"),
    "number": (-1.4, "numbers"),
    "text": (-1.5, "texts"),
}
"""By kind of fact, what it adds to the log odds, and the label of a line of such values."""
_STAMP = re.compile(r"T(?!23:59:59)\d\d?:\d\d:(?!00)")
"""A moment to the second, as programs put on all that they record; what people arrange is on the minute, or
ends with the day."""
_VOICE: dict[Voice, float] = {"argument": 1.4, "assistant": 1.1, "user": 0.6, "system": 0.0, "result": -1.2}
RESULTS: frozenset[Voice] = frozenset({"result"})
"""The voices of a value that only tools have told."""
_KEYED = 0.8
AGE = -0.5
"""What each doubling of the messages since a fact was mentioned adds to its log odds."""
_CROWD, _CROWDED = -0.2, 1_000
LEAST_LOG_ODDS = -2.4
"""Odds, age apart, below which a fact is not worth its room: nearly all that was needed was above."""
_MANY = 150
"""Number of values in one message from which on it is a listing."""


class Mentions(msgspec.Struct, gc=False):
    """Where one exact value was mentioned."""

    fact: Fact
    first: int
    """Position of the oldest message that mentions it."""
    last: int
    """Position of the newest message that mentions it."""
    crowd: int
    """The smallest number of values in any message that mentions it."""
    voices: frozenset[Voice]
    returned: bool = False
    """Whether more than one message mentions it."""

    @property
    def is_listed(self) -> bool:
        """Whether it was mentioned only in listings, and no call has used it."""
        return self.crowd >= _MANY and "argument" not in self.voices

    @property
    def log_odds(self) -> float:
        """Log odds, age apart, up to a constant."""
        voices = fsum(_VOICE[voice] for voice in self.voices)
        keyed = _KEYED if self.fact.key else 0.0
        kind = self.fact.kind
        if kind == "date" and self.voices <= RESULTS and _STAMP.search(self.fact.value):
            kind = "time"  # no day that anybody spoke of
        return KINDS[kind][0] + voices + keyed + _CROWD * log(1 + min(self.crowd, _CROWDED))
