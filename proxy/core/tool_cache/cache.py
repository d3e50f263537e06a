"""The results that are fresh at one place of a chain: the result cache.

It is no store: it follows from the messages before that place (:mod:`proxy.core.tool_cache.derive`), so a
retry or a title request takes nothing from it, a sibling branch and another tenant cannot see it, and a
restart loses nothing. Values here never change; what a call leaves is another cache.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from proxy.core.conversation.messages import exact_arguments
from proxy.core.formats.json import dumps
from proxy.core.policy.sections import Tool


@dataclass(frozen=True)
class Rules:
    """What a policy's ``[[tools]]`` say of a tool, by its name: the first pattern that matches speaks.

    A tool that stands in an ``invalidated_by`` changes something, so its own results are never kept,
    whichever other pattern matches it. A tool of which no rule knows anything may change everything that is
    served.
    """

    tools: tuple[Tool, ...] = ()

    @property
    def is_caching(self) -> bool:
        return any(rule.cache_exchanges for rule in self.tools)

    def of(self, tool: str) -> Tool | None:
        """The rule for a tool; None where the policy has none."""
        return next((rule for rule in self.tools if fnmatchcase(tool, rule.match)), None)

    def duration(self, tool: str) -> int:
        """For how many exchanges a result of this tool is kept; 0 is not at all."""
        rule = self.of(tool)
        return rule.cache_exchanges if rule is not None and not self.changes(tool) else 0

    def serves(self, tool: str) -> bool:
        """Whether a call of this tool may be answered with a result that is fresh."""
        rule = self.of(tool)
        return rule is not None and rule.serve and not self.changes(tool)

    def changes(self, tool: str) -> bool:
        """Whether the policy says that this tool changes what others read."""
        return any(_is_emptied(rule, tool) for rule in self.tools)

    def emptied_by(self, tool: str) -> list[Tool]:
        """The rules whose results a call of this tool makes stale."""
        found = [rule for rule in self.tools if _is_emptied(rule, tool)]
        if found or self.of(tool) is not None:
            return found
        return [rule for rule in self.tools if rule.serve]


def _is_emptied(rule: Tool, tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in rule.invalidated_by)


RESULT_BYTES = 256 * 1024
"""The most that one result may have, its arguments included."""
LINE_BYTES = 4 * 1024 * 1024
"""The most that all results of a line may have together; the oldest go."""
_ENTRY_BYTES = 1024
"""What an entry is reckoned at beside its texts, so that tiny ones are not without number."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A result that is fresh."""

    key: bytes
    tool: str
    arguments: str
    """As the call had them."""
    text: str
    call_id: str
    place: bytes
    """Chain hash of the message that brought it; empty where the caller handed it in."""
    duration: int
    """Exchanges for which it is kept after each use."""
    remaining: int
    hits: int = 0
    """How often it was served, or the same call seen again."""

    @property
    def size(self) -> int:
        return _bytes(self.arguments) + _bytes(self.text)

    @property
    def result_bytes(self) -> int:
        return _bytes(self.text)


@dataclass(frozen=True)
class ToolCache:
    """What is fresh, by key, the oldest first."""

    rules: Rules = field(default_factory=Rules)
    entries: Mapping[bytes, Fresh] = field(default_factory=dict[bytes, Fresh])
    weight: int = 0
    """Bytes that the entries are reckoned at."""

    def __iter__(self) -> Iterator[Fresh]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def _served(self) -> frozenset[str]:
        return frozenset(tool for tool in {each.tool for each in self} if self.rules.serves(tool))

    @property
    def serves_any(self) -> bool:
        return bool(self._served)

    def holds(self, tool: str) -> bool:
        """Whether a call of this tool may be answered, depending on its arguments."""
        return tool in self._served

    def answer(self, tool: str, arguments: str) -> Fresh | None:
        """The result with which a call is answered; None where it is the client's to make."""
        return self.entries.get(key_of(tool, arguments)) if self.holds(tool) else None

    def after(self, tool: str, arguments: str, *, served: bool) -> "ToolCache":
        """What is left after a call, which the proxy has answered itself, or the client makes."""
        entries = Entries(self)
        if served:
            entries.use(key_of(tool, arguments))
        else:
            entries.empty(self.rules.emptied_by(tool))
        return entries.frozen()


class Entries:
    """A cache while it changes. Each change answers how many entries it was about."""

    def __init__(self, cache: ToolCache) -> None:
        self._rules = cache.rules
        self._entries = dict(cache.entries)
        self._weight = cache.weight

    def frozen(self) -> ToolCache:
        """As it is now; nothing may be changed after that."""
        return ToolCache(self._rules, self._entries, self._weight)

    def put(self, entry: Fresh) -> None:
        """Keep a result, the newest of its key; the oldest make room for it."""
        old = self.drop(entry.key)
        self._entries[entry.key] = replace(entry, hits=old.hits + 1) if old else entry
        self._weight += _weight(entry)
        while self._weight > LINE_BYTES:
            self.drop(next(iter(self._entries)))

    def use(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = replace(entry, remaining=entry.duration, hits=entry.hits + 1)

    def drop(self, key: bytes) -> Fresh | None:
        entry = self._entries.pop(key, None)
        self._weight -= _weight(entry) if entry else 0
        return entry

    def empty(self, emptied: Sequence[Tool]) -> int:
        """Forget the results of these rules."""
        if not emptied:
            return 0
        stale = {
            tool for tool in {each.tool for each in self._entries.values()} if self._rules.of(tool) in emptied
        }
        return self._drop_all([each.key for each in self._entries.values() if each.tool in stale])

    def end_exchange(self) -> int:
        """One exchange is over: forget what has none left."""
        ended = [each.key for each in self._entries.values() if each.remaining <= 1]
        count = self._drop_all(ended)
        self._entries = {
            key: replace(each, remaining=each.remaining - 1) for key, each in self._entries.items()
        }
        return count

    def _drop_all(self, keys: list[bytes]) -> int:
        for key in keys:
            self.drop(key)
        return len(keys)


def key_of(tool: str, arguments: str) -> bytes:
    """SHA-256 of a call; the same for arguments that mean the same, by their bytes where they are no JSON."""
    return hashlib.sha256(dumps([tool, exact_arguments(arguments)])).digest()


def _weight(entry: Fresh) -> int:
    return entry.size + _ENTRY_BYTES


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
