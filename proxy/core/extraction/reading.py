"""What each message says that is exact, and in whose voice.

Keeps law 8 (O(new)): a message is read once. A process remembers its facts, bounded in number, by the digest
of its bytes (law 3: they alone decide, not which of two spellings was read first), so an epoch costs what was
never read before.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Literal

import msgspec

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES, Message
from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.extraction.constraints import Sentence, binding, lays_down, weighed
from proxy.core.extraction.facts import (
    Fact,
    bounded,
    facts_in,
    is_plain,
    leaves_of,
    pairs_in,
    quotes_in,
    words_in,
)

Voice = Literal["user", "system", "assistant", "argument", "result"]
_REMEMBERED = 100_000
"""Facts, of a few hundred bytes each, that a process remembers."""
_LONGEST_ARGUMENTS = 200
_TINY = 60
"""Characters of a text that is known by its shape: tiny texts repeat, but for their numbers."""
_SHAPE = str.maketrans("123456789", "0" * 9)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The exact things of one message."""

    facts: tuple[tuple[Voice, Fact], ...]
    """Each thing once, under the first key that it stood under."""
    sentences: tuple[Sentence, ...] = ()
    """Those that bind; only of what users and systems say."""
    is_rule: bool = False
    """Whether it is a user's or a system's, and lays down and asks for nothing."""

    @property
    def size(self) -> int:
        """What it takes to remember it, in facts."""
        return 1 + len(self.facts) + len(self.sentences)


Address = tuple[Dialect, bytes, str]
"""A message: its dialect, the digest of its bytes and, of a result, the call that it answers."""


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
            found = self._known[address] = read(content(), address[2])
            self._held += found.size
            if self._held > self._most:
                # Threads may drop the older half at once: each step is atomic, and none must be exact.
                entries = list(self._known.items())
                for key, _ in entries[: (len(entries) + 1) // 2]:
                    self._known.pop(key, None)
                self._held = sum(reading.size for reading in list(self._known.values()))
        return found


READINGS = Readings()
"""Of this process."""


@dataclass(slots=True)
class Read:
    """What the first messages of a chain say, for all that is planned of it, and of what it begins with."""

    readings: list[Reading] = field(default_factory=list[Reading])
    binding: list[int] = field(default_factory=list[int])
    """Positions of those with sentences that bind."""

    def go_on(self, addresses: Sequence[Address], content: Callable[[int], Content]) -> None:
        """Read the next messages, which have these addresses."""
        for place, address in enumerate(addresses, len(self.readings)):
            reading = READINGS.of(address, partial(content, place))
            self.readings.append(reading)
            if reading.sentences:
                self.binding.append(place)


def read(content: Content, thing: str = "") -> Reading:
    """The exact things of a message."""
    found: dict[str, tuple[Voice, Fact]] = {}
    voice = _voice_of(content.role)
    for _, name, arguments in content.calls:
        for fact in _facts(arguments, _called(name, arguments)):
            found.setdefault(fact.value, ("argument", fact))
    told: list[Sentence] = []
    texts = content.texts()
    if len(texts) == 1 and len(texts[0]) <= _TINY and _says_little(texts[0].translate(_SHAPE)):
        found.update((fact.value, (voice, fact)) for fact in words_in(texts[0]) if fact.value not in found)
        return Reading(tuple(found.values()))
    for text in texts:
        if voice == "user":
            for fact in quotes_in(text):
                found.setdefault(fact.value, (voice, fact))
        for fact in _facts(text, thing):
            known = found.get(fact.value)
            if known is None or known[1].kind == "quoted":
                found[fact.value] = (voice, fact)
        if voice in ("user", "system"):
            told += weighed(bounded(text))
    return Reading(tuple(found.values()), tuple(binding(told)), lays_down(told))


@lru_cache(1 << 12)
def _says_little(shape: str) -> bool:
    """Whether a text holds no more than words, of which no sentence binds; digits have no say in it."""
    return is_plain(shape) and not binding(weighed(shape))


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
    dialect: Dialect,
    raws: Sequence[bytes],
    messages: Sequence[Message],
    content: Callable[[int], Content],
    first: int = 0,
) -> Iterator[Address]:
    """The addresses of messages from ``first`` on, whose results answer no call before it."""
    calls: dict[str, str] = {}
    for place in range(first, len(raws)):
        message = messages[place]
        if message.calls:
            called = content(place).calls
            calls.update({call: _called(name, arguments) for call, name, arguments in called})
        answered = calls.get(message.answers or "", "") if message.role in TOOL_ROLES else ""
        yield dialect, _digest(raws[place]), answered


def _called(name: str, arguments: str) -> str:
    return f"{name} {arguments}"[:_LONGEST_ARGUMENTS]


def _digest(raw: bytes) -> bytes:
    """What stands for a message's bytes: themselves, where a digest would hardly be shorter."""
    return raw if len(raw) <= _TINY else hashlib.blake2b(raw, digest_size=16).digest()
