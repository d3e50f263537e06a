"""The bills of requests and of our own calls, added up here and written to the store in the background.

Nobody waits for the writing: amounts of one second go to the store together, by session and by hour and
model. A group that the store does not confirm is sent again unchanged, so that it counts once; newer amounts
wait for it. While the store is away all amounts stay here. Their number is limited: the sessions billed
longest ago are dropped first; the bills of hours, which are few, never.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import starmap
from typing import NamedTuple

from proxy.core.budget.prices import Prices
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import NANO, Bill, added, cost_of
from proxy.core.proof.evidence import Counts
from proxy.engine.models.asking import CallOptions
from proxy.errors import StoreUnavailable
from proxy.ports import BatchId, BillStore, Clock, SessionKey
from proxy.ports.bill_store import HOUR
from proxy.telemetry import Metrics, log_fault, log_warning

_MOST_SESSIONS, _MOST_MODELS = 10_000, 100
"""Most bills that wait for the store, and most models in one hour. Clients choose names of models: those
beyond the limit share one."""
_MODEL = 80
"""Most characters of a model's name."""
_OTHERS = "others"
LABEL_SEPARATOR = "\0"
"""Separates policy and model in the name of their evidence."""
_KINDS = ("answers", "hidden", "summaries", "memory", "proof", "without")
"""The kinds of cost, as in the metric."""
_PAUSE = 1.0
"""Seconds between two writes."""

_Amounts = dict[str, int]


class _EvidenceOf(NamedTuple):
    hour: int


_Subject = SessionKey | int | _EvidenceOf
"""The subject of amounts: the bill of a session or an hour, or the evidence about cuts in an hour."""


@dataclass
class _Pending:
    """The amounts of one bill that the store lacks, by model; for a session under an empty name."""

    new: dict[str, _Amounts] = field(default_factory=dict[str, _Amounts])
    sent: dict[str, _Amounts] = field(default_factory=dict[str, _Amounts])
    """Amounts being sent, or sent without confirmation."""
    group: BatchId | None = None
    """The group in which ``sent`` was sent."""
    ttl: float = 0.0


class Billing:
    """Adds up the bills of this process. ``prices`` returns a model's prices by its name."""

    def __init__(
        self, store: BillStore, clock: Clock, metrics: Metrics, prices: Callable[[str], Prices]
    ) -> None:
        self._prices = prices
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._dollars = {kind: metrics.dollars.labels(kind) for kind in _KINDS}
        self._pending: dict[_Subject, _Pending] = {}
        self._writer = secrets.token_hex(6)
        self._number = 0
        self._writing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        """Held while groups are being sent, so that each is sent once at a time."""

    def add(self, model: str, bill: Bill, session: SessionKey | None = None, ttl: float = 0.0) -> None:
        """Add a bill of a model, and for one session with this ttl (seconds) if it is for that alone."""
        amounts, metrics = bill.amounts(), self._metrics
        for kind, counter in self._dollars.items():
            if amount := getattr(bill, kind):
                counter.inc(amount / NANO)
        if bill.failing:
            metrics.would_have_failed.inc(bill.failing)
        if bill.unpriced:
            metrics.unpriced.inc(bill.unpriced)
        self._enqueue(int(self._clock.now()) // HOUR, model, amounts)
        if session is not None:
            self._enqueue(session, "", amounts, ttl=ttl)

    def add_evidence(self, policy: str, model: str, counts: Counts) -> None:
        """Add evidence about a policy's cuts, in conversations with a model."""
        self._enqueue(
            _EvidenceOf(int(self._clock.now()) // HOUR), model, counts, f"{policy}{LABEL_SEPARATOR}"
        )

    def _enqueue(
        self, place: _Subject, model: str, amounts: Counts, prefix: str = "", *, ttl: float = 0.0
    ) -> None:
        owed = self._pending.get(place)
        if owed is None:
            owed = self._pending[place] = _Pending()
            if len(self._pending) > _MOST_SESSIONS:
                oldest = next((each for each in self._pending if isinstance(each, SessionKey)), place)
                del self._pending[oldest]
        name = prefix + model[:_MODEL]
        if name not in owed.new and len(owed.new) >= _MOST_MODELS:
            name = prefix + _OTHERS
        owed.new[name] = added(owed.new.get(name, {}), amounts)
        owed.ttl = max(owed.ttl, ttl)
        if self._writing is None or self._writing.done():

            async def write() -> None:
                while self._pending:
                    await asyncio.sleep(_PAUSE)
                    await self.flush()

            self._writing = asyncio.create_task(write(), name="bills")

    def called(self, caller: CallOptions, usage: Usage | None) -> None:
        """Bill one of our own calls that was answered, whether the answer is of use or not."""
        prices = self._prices(caller.model)
        if usage is None or not prices.is_known:
            bill = Bill(unpriced=1)
        else:
            bill = Bill.of({caller.purpose: cost_of(usage, prices)})
        self.add(caller.model, bill, caller.session, caller.ttl)

    def failed(self, caller: CallOptions, reason: str) -> None:
        """Count a summary that could not be written."""
        self.add(caller.model, Bill(failed={reason: 1}), caller.session, caller.ttl)

    async def flush(self) -> bool:
        """Write what is owed now; return whether all of it is in the store."""
        async with self._lock:
            results = await asyncio.gather(*starmap(self._send, [*self._pending.items()]))
        return all(results)

    async def _send(self, place: _Subject, owed: _Pending) -> bool:
        """Write what the store lacks of one bill; an unconfirmed group is sent again first, unchanged."""
        while owed.group is not None or owed.new:
            if owed.group is None:
                self._number += 1
                owed.group = BatchId(self._writer, self._number)
                owed.sent, owed.new = owed.new, {}
            try:
                if isinstance(place, _EvidenceOf):
                    await self._store.add_evidence(place.hour, owed.sent, owed.group)
                elif isinstance(place, SessionKey):
                    await self._store.add_to_session(place, owed.sent[""], owed.ttl, owed.group)
                else:
                    await self._store.add_to_hour(place, owed.sent, owed.group)
            except StoreUnavailable:
                return False
            except Exception as error:  # noqa: BLE001 - what cannot be added now never can: the others can
                log_fault("a bill could not be written", error)
            owed.group = None
        if self._pending.get(place) is owed:
            del self._pending[place]
        return True

    async def aclose(self) -> None:
        """Write what is owed, as far as the store accepts it now."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        if not await self.flush():
            log_warning("bills could not be written before the end", bills=len(self._pending))
