"""The fresh tool results of a request, remembered in this process by chain hash.

Keeps law 8: a turn processes only its new messages. A worker that meets a chain for the first time processes
all of it once, off the event loop where it is long; a policy that caches nothing costs nothing. Each
remembered state belongs to one session, so that not even white space comes from another's (law 6), and
records how many hidden answers it took into account.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.extension import InjectedResult
from proxy.core.planning.chain import Chain
from proxy.core.policy.sections import Tool
from proxy.core.tool_cache.cache import ToolCache, ToolRules
from proxy.core.tool_cache.derive import NO_HIDDEN, ChainMessage, Derived, Hidden, derive, initial
from proxy.engine.flow import NOTHING_FRESH, Request
from proxy.engine.intake.reader import off_loop_if_long
from proxy.ports import SessionKey
from proxy.telemetry import Metrics, log_fault

_CHAIN_BYTES = 1024
"""Estimated bytes of a chain's state, beside its results."""
_LARGE = 64 * 1024
"""Bytes of a cache from which on only the newest state of a conversation is remembered."""
_SEARCHED = 256
"""Number of newest messages among which the end of an earlier request is looked for."""

_Origin = tuple[SessionKey, tuple[Tool, ...], tuple[InjectedResult, ...]]
"""What a chain's results depend on beside its messages: session, rules, and injected results."""


@dataclass(frozen=True, slots=True)
class _CachedChain:
    """The remembered state of a chain."""

    origin: _Origin
    derived: Derived
    hidden: int
    """Number of the chain's messages that were known to replace others upstream."""


class ToolCaches:
    """The fresh results of all sessions of this process."""

    def __init__(self, metrics: Metrics, memory: CacheMemory) -> None:
        self._metrics = metrics
        self._chains: Lru[tuple[SessionKey, bytes], _CachedChain] = Lru(
            memory, lambda cached: _CHAIN_BYTES + cached.derived.cache.weight
        )

    async def fresh(self, request: Request) -> ToolCache:
        """Return the tool results that are fresh for a request; none where reading them fails (law 7)."""
        history = request.history
        given = history.injection.tools if history.injection is not None else ()
        try:
            return await self.of(request, history.upstream_messages, given)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs the results, not the answer
            log_fault("reading tool results failed", error)
            return NOTHING_FRESH

    async def of(
        self, request: Request, hidden: Hidden = NO_HIDDEN, injected: Sequence[InjectedResult] = ()
    ) -> ToolCache:
        """Return the tool results that are fresh at the end of a request's chain."""
        rules, chain = ToolRules(request.incoming.policy.tools), request.chain
        if not rules.is_caching and not any(each.cache_exchanges for each in injected):
            return NOTHING_FRESH
        positions = [place for place, each in enumerate(chain.hashes) if each in hidden] if hidden else []
        key, hashes = request.session.key, chain.hashes
        origin = key, request.incoming.policy.tools, tuple(injected)
        # Go on from the longest part of the chain whose state is known.
        for start in range(len(chain), max(len(chain) - _SEARCHED, 0), -1):
            cached, stand_ins = self._chains.get((key, hashes[start - 1])), bisect_left(positions, start)
            if cached is not None and cached.origin == origin and cached.hidden == stand_ins:
                onto = cached.derived
                break
        else:
            start, onto = 0, initial(rules, injected)
        if start == len(chain):
            return onto.cache
        work = partial(_derived, chain, hidden, onto, start)
        onto, events = await off_loop_if_long(chain.raws[start:], work)
        for result, count in events.items():
            self._metrics.tool_cache.labels(result=result).inc(count)
        if start and onto.cache.weight >= _LARGE:
            self._chains.drop((key, hashes[start - 1]))
        self._chains.put((key, hashes[-1]), _CachedChain(origin, onto, len(positions)))
        return onto.cache

    def forget(self, key: SessionKey) -> None:
        self._chains.drop_where(lambda place, _: place[0] == key)


def _derived(chain: Chain, hidden: Hidden, onto: Derived, start: int) -> tuple[Derived, Counter[str]]:
    """Derive a chain's state, and count the outcomes of the results that are new in its last turn."""
    events = Counter[str]()
    middle = max(start, chain.sent_before)
    old, new = _places(chain, start, middle), _places(chain, middle, len(chain))
    before = derive(onto, old, chain.dialect, hidden)
    return derive(before, new, chain.dialect, hidden, events), events


def _places(chain: Chain, start: int, end: int) -> Iterator[ChainMessage]:
    return zip(chain.messages[start:end], chain.raws[start:end], chain.hashes[start:end], strict=True)
