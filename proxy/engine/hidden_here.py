"""What this process knows of the answers in which calls were hidden: a turn asks the store for later ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.records import HiddenCalls
from proxy.lru import Lru, Memory
from proxy.ports import Found, SessionKey

_ANSWER_BYTES = 512
"""What an answer is reckoned at beside the messages that stand for it."""
_ByHash = dict[bytes, HiddenCalls]


@dataclass
class _Known:
    stored: _ByHash = field(default_factory=_ByHash)
    """As the store holds them, in its order: they count."""
    given: _ByHash = field(default_factory=_ByHash)
    """As this process gave them, whether or not the store has them."""


class HiddenHere:
    """The answers with hidden calls of the sessions used last."""

    def __init__(self, memory: Memory) -> None:
        self._known: Lru[SessionKey, _Known] = Lru(memory, _weight)

    def seen(self, key: SessionKey) -> int:
        """How many of those that the store holds are known here."""
        known = self._known.get(key)
        return len(known.stored) if known else 0

    def add(self, key: SessionKey, hidden: HiddenCalls) -> None:
        """An answer is being given; what stands for the same words already goes on to do so."""
        known = self._known.get(key) or _Known()
        known.given.setdefault(hidden.hash, hidden)
        self._known.put(key, known)

    def known(self, key: SessionKey, found: Found | None, *, is_whole: bool) -> Mapping[bytes, HiddenCalls]:
        """All of a session's, by chain hash, with those that the store has just told.

        ``is_whole`` says that it was asked for all of them.
        """
        known = self._known.get(key)
        if found is None:
            return {**known.given, **known.stored} if known else {}
        if known is None and not found.hidden:
            return {}
        if known is None or found.was_here:  # what ended there has ended here
            known = _Known()
        told = {each.hash: each for each in found.hidden}
        if found.sid != key.sid:
            known.given, known.stored = {**known.given, **known.stored}, told
        elif not is_whole:
            known.stored = {**known.stored, **told}
        elif len(told) >= len(known.stored):
            known.stored = told
        if not (known.stored or known.given):
            self._known.drop(key)
        elif told or found.sid != key.sid or found.was_here:
            known.given = {each: given for each, given in known.given.items() if each not in known.stored}
            self._known.put(key, known)
        return {**known.given, **known.stored}

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._known.drop(key)


def _weight(known: _Known) -> int:
    hidden = (*known.given.values(), *known.stored.values())
    return sum(_ANSWER_BYTES + sum(map(len, each.messages)) for each in hidden)
