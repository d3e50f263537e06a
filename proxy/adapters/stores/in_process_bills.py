"""The BillStore port in this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from proxy.core.economics.bill import Amounts, Bill, added
from proxy.core.proof.evidence import Counts
from proxy.ports import BatchId, Clock, SessionKey
from proxy.ports.bill_store import HOUR, KEPT_HOURS


class InProcessBills:
    """Holds bills of at most `most` sessions. `is_gone` returns whether a session existed and is gone."""

    def __init__(self, clock: Clock, is_gone: Callable[[SessionKey], bool], most: int) -> None:
        self._clock = clock
        self._is_gone = is_gone
        self._most = most
        self._hours: dict[int, dict[str, Amounts]] = {}
        self._evidence: dict[int, dict[str, Counts]] = {}
        self._sessions: OrderedDict[SessionKey, Amounts] = OrderedDict()
        """In the order of their last writes, oldest first."""

    async def add_to_hour(self, hour: int, bills: Mapping[str, Amounts], group: BatchId) -> None:
        """Add the bills. Calls cannot get lost here, so no group is sent twice and ``group`` is not used."""
        self._add(self._hours, hour, bills)

    async def add_evidence(self, hour: int, evidence: Mapping[str, Counts], group: BatchId) -> None:
        self._add(self._evidence, hour, evidence)

    def _add(self, hours: dict[int, dict[str, Counts]], hour: int, amounts: Mapping[str, Counts]) -> None:
        """Add amounts to those of an hour, and drop the hours that are too old."""
        of_hour = hours.setdefault(hour, {})
        for name, each in amounts.items():
            of_hour[name] = added(of_hour.get(name, {}), each)
        oldest = int(self._clock.now()) // HOUR - KEPT_HOURS
        while (first := min(hours, default=oldest)) < oldest:
            del hours[first]

    async def add_to_session(self, key: SessionKey, bill: Amounts, ttl: float, group: BatchId) -> None:
        """Add to the bill. `ttl` is not used: a session's bill is dropped together with the session."""
        if self._is_gone(key):
            return
        self._sessions[key] = added(self._sessions.get(key, {}), bill)
        self._sessions.move_to_end(key)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)

    async def hours(self, first: int, last: int) -> dict[int, dict[str, Bill]]:
        return {
            hour: {model: Bill.of(amounts) for model, amounts in bills.items()}
            for hour, bills in self._hours.items()
            if first <= hour <= last
        }

    async def evidence(self, first: int, last: int) -> dict[int, dict[str, Counts]]:
        return {hour: dict(each) for hour, each in self._evidence.items() if first <= hour <= last}

    async def of_sessions(self, keys: Sequence[SessionKey]) -> list[Bill]:
        return [Bill.of(self._sessions.get(key, {})) for key in keys]

    def drop(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)
