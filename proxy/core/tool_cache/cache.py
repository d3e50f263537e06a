"""The cache of tool results: those that are fresh at one place of a chain.

It is not stored but derived from the messages before that place (:mod:`proxy.core.tool_cache.derive`). So a
retry or a title request does not change it, a sibling branch or another tenant cannot see it, and a restart
loses nothing. Caches are immutable: a call results in a new cache.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from proxy.core.conversation.messages import canonical_arguments
from proxy.core.formats.json import dumps
from proxy.core.policy.sections import Tool
from proxy.core.text.cutting import size


@dataclass(frozen=True)
class ToolRules:
    """The rules for tools in a policy's ``[[tools]]``; the first pattern that matches a tool's name applies.

    A tool that matches an ``invalidated_by`` changes something, so its own results are never cached,
    whichever other pattern matches it. A tool without any rule may invalidate everything that is served.
    """

    tools: tuple[Tool, ...] = ()

    @property
    def is_caching(self) -> bool:
        return any(rule.cache_exchanges for rule in self.tools)

    def of(self, tool: str) -> Tool | None:
        """Return the rule for a tool; None if the policy has none."""
        return next((rule for rule in self.tools if fnmatchcase(tool, rule.match)), None)

    def duration(self, tool: str) -> int:
        """Return for how many exchanges a result of this tool is cached; 0: not at all."""
        rule = self.of(tool)
        return rule.cache_exchanges if rule is not None and not self.invalidates_others(tool) else 0

    def serves(self, tool: str) -> bool:
        """Whether a call of this tool may be answered with a fresh result."""
        rule = self.of(tool)
        return rule is not None and rule.serve and not self.invalidates_others(tool)

    def invalidates_others(self, tool: str) -> bool:
        """Whether the policy says that this tool invalidates results of others."""
        return any(_is_invalidated(rule, tool) for rule in self.tools)

    def rules_invalidated_by(self, tool: str) -> list[Tool]:
        """Return the rules whose results a call of this tool makes stale."""
        found = [rule for rule in self.tools if _is_invalidated(rule, tool)]
        if found or self.of(tool) is not None:
            return found
        return [rule for rule in self.tools if rule.serve]


def _is_invalidated(rule: Tool, tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in rule.invalidated_by)


RESULT_BYTES = 256 * 1024
"""Maximal size of one result with its arguments, in bytes."""
CACHE_BYTES = 4 * 1024 * 1024
"""Maximal total size of a cache's entries, in bytes; beyond it the oldest are dropped."""
_ENTRY_BYTES = 1024
"""Bytes added to the size of each entry, so that the number of tiny entries is limited too."""


@dataclass(frozen=True, slots=True)
class CachedResult:
    """A fresh tool result: a cache entry."""

    key: bytes
    tool: str
    arguments: str
    """The arguments as the call had them."""
    text: str
    call_id: str
    message_hash: bytes
    """Chain hash of the message that brought it; empty if the caller provided it."""
    duration: int
    """Number of exchanges for which it is cached after each use."""
    remaining: int
    hits: int = 0
    """How often it was served, or the same call was made again."""

    @property
    def size(self) -> int:
        return size(self.arguments) + size(self.text)

    @property
    def result_bytes(self) -> int:
        return size(self.text)


@dataclass(frozen=True)
class ToolCache:
    """The fresh results by key, the oldest first."""

    rules: ToolRules = field(default_factory=ToolRules)
    entries: Mapping[bytes, CachedResult] = field(default_factory=dict[bytes, CachedResult])
    weight: int = 0
    """Total size of the entries in bytes, each with its surcharge."""

    def __iter__(self) -> Iterator[CachedResult]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def _served(self) -> frozenset[str]:
        return frozenset(tool for tool in {each.tool for each in self} if self.rules.serves(tool))

    @property
    def serves_any(self) -> bool:
        return bool(self._served)

    def may_answer(self, tool: str) -> bool:
        """Whether some call of this tool can be answered, depending on its arguments."""
        return tool in self._served

    def answer(self, tool: str, arguments: str) -> CachedResult | None:
        """Return the result that answers a call; None if the client must make the call."""
        return self.entries.get(key_of(tool, arguments)) if self.may_answer(tool) else None

    def after_serving(self, tool: str, arguments: str) -> "ToolCache":
        """Return the cache after a call that the proxy answered from it."""
        entries = Entries(self)
        entries.use(key_of(tool, arguments))
        return entries.frozen()

    def after_call(self, tool: str) -> "ToolCache":
        """Return the cache after a call of this tool that the client makes."""
        entries = Entries(self)
        entries.invalidate(self.rules.rules_invalidated_by(tool))
        return entries.frozen()


class Entries:
    """A mutable copy of a cache."""

    def __init__(self, cache: ToolCache) -> None:
        self._rules = cache.rules
        self._entries = dict(cache.entries)
        self._weight = cache.weight

    def frozen(self) -> ToolCache:
        """Return the cache as it is now; this object must not be changed afterwards."""
        return ToolCache(self._rules, self._entries, self._weight)

    def put(self, entry: CachedResult) -> None:
        """Store a result in place of an older one of its key; drop the oldest entries to make room."""
        old = self.drop(entry.key)
        self._entries[entry.key] = replace(entry, hits=old.hits + 1) if old else entry
        self._weight += _weight(entry)
        while self._weight > CACHE_BYTES:
            self.drop(next(iter(self._entries)))

    def use(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = replace(entry, remaining=entry.duration, hits=entry.hits + 1)

    def drop(self, key: bytes) -> CachedResult | None:
        entry = self._entries.pop(key, None)
        self._weight -= _weight(entry) if entry else 0
        return entry

    def invalidate(self, emptied: Sequence[Tool]) -> int:
        """Drop the results of these rules; return how many."""
        if not emptied:
            return 0
        stale = {
            tool for tool in {each.tool for each in self._entries.values()} if self._rules.of(tool) in emptied
        }
        return self._drop_all([each.key for each in self._entries.values() if each.tool in stale])

    def end_exchange(self) -> int:
        """End one exchange: drop expired entries; return how many."""
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
    """Return the SHA-256 of a call; equal for equivalent JSON arguments, else by the arguments' bytes."""
    return hashlib.sha256(dumps([tool, canonical_arguments(arguments, keeps_empty=True)])).digest()


def _weight(entry: CachedResult) -> int:
    return entry.size + _ENTRY_BYTES
