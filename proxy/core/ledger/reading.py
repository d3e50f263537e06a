"""What each message says that is exact, and in whose voice.

Keeps law 8 (O(new)): a message is read once. A process remembers its facts, bounded in number, by the digest
of its bytes (law 3: they alone decide, not which of two spellings was read first), so an epoch costs what was
never read before.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.core.ledger.facts import Fact, bounded, facts_in, leaves_of, pairs_in, quotes_in
from proxy.core.ledger.sentences import Sentence, binding
from proxy.core.messages import HEAD_ROLES, TOOL_ROLES, Content

Voice = Literal["user", "system", "assistant", "argument", "result"]
_REMEMBERED = 100_000
"""Facts, of a few hundred bytes each, that a process remembers."""
_LONGEST_ARGUMENTS = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """The exact things of one message."""

    facts: tuple[tuple[Voice, Fact], ...]
    """Each thing once, under the first key that it stood under."""
    sentences: tuple[Sentence, ...] = ()
    """Those that bind; only of what users and systems say."""

    @property
    def size(self) -> int:
        """What it takes to remember it, in facts."""
        return 1 + len(self.facts) + len(self.sentences)


Address = tuple[bytes, str]
"""A message: the digest of its bytes and, of a result, the call that it answers."""


class Readings:
    """Readings by address; the oldest are forgotten."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._held = 0
        self._known: dict[Address, Reading] = {}

    def of(self, address: Address, content: Callable[[], Content]) -> Reading:
        """What a message says, ``content`` being decoded only if that is not known."""
        found = self._known.get(address)
        if found is None:
            found = self._known[address] = read(content(), address[1])
            self._held += found.size
            if self._held > self._most:
                self._forget()
        return found

    def _forget(self) -> None:
        """Drop the older half. Threads may do so at once: each step is atomic, and none must be exact."""
        entries = list(self._known.items())
        for key, _ in entries[: (len(entries) + 1) // 2]:
            self._known.pop(key, None)
        self._held = sum(reading.size for reading in list(self._known.values()))


READINGS = Readings()
"""Of this process."""


def read(content: Content, thing: str = "") -> Reading:
    """The exact things of a message."""
    found: dict[str, tuple[Voice, Fact]] = {}
    voice = _voice_of(content.role)
    for _, name, arguments in content.tool_calls():
        for fact in _facts(arguments, _called(name, arguments)):
            found.setdefault(fact.value, ("argument", fact))
    for text in content.texts():
        if voice == "user":
            for fact in quotes_in(text):
                found.setdefault(fact.value, (voice, fact))
        for fact in _facts(text, thing):
            known = found.get(fact.value)
            if known is None or known[1].kind == "quoted":
                found[fact.value] = (voice, fact)
    binds = voice in ("user", "system")
    sentences = [sentence for text in content.texts() if binds for sentence in binding(bounded(text))]
    return Reading(tuple(found.values()), tuple(sentences))


def _facts(text: str, thing: str) -> list[Fact]:
    leaves = leaves_of(text, thing)
    if leaves is not None:
        return leaves
    pairs = pairs_in(text, thing)
    known = {fact.value for fact in pairs}
    return [*pairs, *(fact for fact in facts_in(text) if fact.value not in known)]


def _voice_of(role: str) -> Voice:
    if role in TOOL_ROLES:
        return "result"
    if role in HEAD_ROLES:
        return "system"
    return "user" if role == "user" else "assistant"


def addresses_of(
    raws: Sequence[bytes], content: Callable[[int], Content], first: int = 0
) -> Iterator[Address]:
    """The addresses of messages from ``first`` on, whose results answer no call before it."""
    calls: dict[str, str] = {}
    for place in range(first, len(raws)):
        said = content(place)
        calls.update({call: _called(name, arguments) for call, name, arguments in said.tool_calls()})
        yield _digest(raws[place]), calls.get(said.answers or "", "") if said.role in TOOL_ROLES else ""


def _called(name: str, arguments: str) -> str:
    return f"{name} {arguments}"[:_LONGEST_ARGUMENTS]


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()
