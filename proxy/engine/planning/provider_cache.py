"""What the provider has kept of a lane: how long ago it was asked, and what its cache costs.

Fills the :class:`~proxy.core.planning.situation.Conditions` of a request. The store tells when a session
was last answered, on any worker; what this process has sent itself it knows for each lane, so that two models
in one session do not hide each other.
"""

from collections.abc import Callable

from proxy.cache import Lru, Memory
from proxy.core.economics.prices import Prices
from proxy.core.planning.situation import Conditions
from proxy.engine.flow import SessionState
from proxy.engine.intake.history import History
from proxy.ports import Clock, SessionKey


class ProviderCache:
    """Remembers when each lane was last answered."""

    def __init__(self, price_list: Callable[[str], Prices], clock: Clock, memory: Memory) -> None:
        self._price_list = price_list
        self._clock = clock
        self._answered: Lru[tuple[SessionKey, str], float] = Lru(memory)
        """Seconds since 1970."""

    def answered(self, key: SessionKey, lane: str) -> None:
        """The upstream takes a request of this lane."""
        self._answered.put((key, lane), self._clock.now())

    def conditions(
        self, session: SessionState, history: History, lane: str, head: int, *, boundary: bool
    ) -> Conditions:
        """The circumstances of a request whose head has ``head`` counted tokens.

        ``boundary`` is whether its client says that something new begins.
        """
        last = session.found.session
        is_same_lane = last is not None and last.lane == lane
        here = self._answered.get((session.key, lane))
        times = [here] if here is not None else []
        if last is not None and is_same_lane:
            times.append(last.updated)
        return Conditions(
            idle=max(self._clock.now() - max(times), 0.0) if times else None,
            boundary=boundary,
            prices=self._price_list(history.model),
            is_new_head=last is not None
            and is_same_lane
            and (last.head != history.head or last.head_tokens != head),
        )
