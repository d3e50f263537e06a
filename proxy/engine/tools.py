"""Which tool results are fresh for a request, remembered in this process by chain hash.

Keeps law 8: a turn folds what it brings. A worker that meets a chain cold folds it once, off the event loop
where it is long; a policy that caches nothing costs nothing. What is remembered belongs to one session, so
that not even white space comes from another's (law 6), and says how much of the past it knew of.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.core.injection import InjectedResult
from proxy.core.policy_sections import Tool
from proxy.core.situation import Chain
from proxy.core.tools.cache import ToolCache
from proxy.core.tools.folding import NO_HIDDEN, Folded, Hidden, Place, begun, folded
from proxy.core.tools.rules import Rules
from proxy.engine.case import Case
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey
from proxy.telemetry import Metrics

_CHAIN_BYTES = 1024
"""What a chain is reckoned at beside its results."""
_LARGE = 64 * 1024
"""Bytes of a cache from which a line's newest is remembered and no older one."""
_SEARCHED = 256
"""Messages, the newest first, among which the end of an earlier request is looked for."""
_LONG_BYTES = 256 * 1024
_LONG_MESSAGES = 200
"""What is folded on the event loop at most."""

NOTHING_FRESH = ToolCache()

_Line = tuple[SessionKey, tuple[Tool, ...], tuple[InjectedResult, ...]]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a chain came to."""

    line: _Line
    folded: Folded
    hidden: int
    """Messages of the chain that were known to stand for others."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be folded."""

    line: _Line
    chain: Chain
    hidden: Hidden
    stand_ins: Sequence[int]
    """Positions of the messages that others stand for upstream."""


class Tools:
    """The fresh results of all sessions of this process."""

    def __init__(self, metrics: Metrics, memory: Memory) -> None:
        self._metrics = metrics
        self._known: Lru[tuple[SessionKey, bytes], _Known] = Lru(memory, _weight)

    async def of(
        self, case: Case, hidden: Hidden = NO_HIDDEN, injected: Sequence[InjectedResult] = ()
    ) -> ToolCache:
        """What is fresh at the end of a request's chain."""
        rules, chain = Rules(case.policy.tools), case.chain
        if not rules.is_caching and not any(each.cache_exchanges for each in injected):
            return NOTHING_FRESH
        positions = [place for place, each in enumerate(chain.hashes) if each in hidden] if hidden else []
        request = _Request((case.key, case.policy.tools, tuple(injected)), chain, hidden, positions)
        start, onto = self._ancestor(request, rules)
        if start == len(chain):
            return onto.cache
        if _is_long(chain, start):
            onto, events = await asyncio.to_thread(_fold, request, onto, start)
        else:
            onto, events = _fold(request, onto, start)
        for result, count in events.items():
            self._metrics.tool_cache.labels(result=result).inc(count)
        self._remember(request, onto, start)
        return onto.cache

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: none of its results is kept."""
        self._known.drop_where(lambda place, _: place[0] == key)

    def _ancestor(self, request: _Request, rules: Rules) -> tuple[int, Folded]:
        """The deepest place of the chain of which it is known what it came to."""
        key, _, injected = request.line
        whole = len(request.chain)
        for length in range(whole, max(whole - _SEARCHED, 0), -1):
            known = self._known.get((key, request.chain.hashes[length - 1]))
            hidden = bisect_left(request.stand_ins, length)
            if known is not None and known.line == request.line and known.hidden == hidden:
                return length, known.folded
        return 0, begun(rules, injected)

    def _remember(self, request: _Request, found: Folded, start: int) -> None:
        key, hashes = request.line[0], request.chain.hashes
        if start and found.cache.weight >= _LARGE:
            self._known.drop((key, hashes[start - 1]))
        self._known.put((key, hashes[-1]), _Known(request.line, found, len(request.stand_ins)))


def _weight(known: _Known) -> int:
    return _CHAIN_BYTES + known.folded.cache.weight


def _fold(request: _Request, onto: Folded, start: int) -> tuple[Folded, Counter[str]]:
    """What a chain comes to, and what became of the results that are new in its last turn."""
    chain, events = request.chain, Counter[str]()
    middle = max(start, _last_answer(chain))
    old, new = _places(chain, start, middle), _places(chain, middle, len(chain))
    return folded(folded(onto, old, request.hidden), new, request.hidden, events), events


def _places(chain: Chain, start: int, end: int) -> Iterator[Place]:
    return zip(chain.messages[start:end], chain.raws[start:end], chain.hashes[start:end], strict=True)


def _last_answer(chain: Chain) -> int:
    """Where the part begins that no earlier request can have had: at the newest answer."""
    positions = range(len(chain) - 1, -1, -1)
    return next((place for place in positions if chain.messages[place].role == "assistant"), 0)


def _is_long(chain: Chain, start: int) -> bool:
    if len(chain) - start > _LONG_MESSAGES:
        return True
    return sum(map(len, chain.raws[start:])) > _LONG_BYTES
