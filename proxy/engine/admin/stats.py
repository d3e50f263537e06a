"""What requests took and cost over a time, by hour, day, model or session."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from itertools import groupby
from operator import add, itemgetter
from typing import Literal

from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.billing import Billing
from proxy.ports import BillStore, Clock, SessionAdmin, SessionKey
from proxy.ports.bill_store import HOUR, KEPT

By = Literal["hour", "day", "model", "session"]
MOST_SESSIONS = 1_000
"""Sessions that are told of, those used last."""


@dataclass(frozen=True)
class Row:
    """The bill of an hour, a day, a model or a session."""

    key: str
    bill: Bill
    name: str = ""
    """Of a session, as clients name it."""


@dataclass(frozen=True)
class Stats:
    """Adds up bills for people."""

    store: SessionAdmin
    bills: BillStore
    billing: Billing
    clock: Clock

    async def since(self, seconds: float, by: By) -> tuple[int, Bill, list[Row]]:
        """From when on (seconds since 1970, a whole hour), the sum since then, and the rows.

        Bills of sessions are of all their life: those of the sessions that were used since then.
        """
        await self.billing.written()
        last = int(self.clock.now()) // HOUR
        first = max(int(self.clock.now() - seconds) // HOUR, last - KEPT)
        hours = await self.bills.hours(first, last)
        cells = [
            (hour, model, bill) for hour, bills in sorted(hours.items()) for model, bill in bills.items()
        ]
        total = _sum(bill for _, _, bill in cells)
        if by == "session":
            return first * HOUR, total, await self._sessions(first * HOUR)
        key: Callable[[tuple[int, str, Bill]], str] = itemgetter(1) if by == "model" else _time(by)
        groups = groupby(sorted(cells, key=key), key)
        return first * HOUR, total, [Row(name, _sum(cell[2] for cell in group)) for name, group in groups]

    async def of_session(self, key: SessionKey) -> Bill:
        """A session's bill until now."""
        await self.billing.written()
        return (await self.bills.of_sessions([key]))[0]

    async def _sessions(self, since: float) -> list[Row]:
        listed = (await self.store.sessions(MOST_SESSIONS)).sessions
        used = [(key, session) for key, session in listed if session.updated >= since]
        bills = await self.bills.of_sessions([key for key, _ in used])
        return [
            Row(key.id_for(session.tenant), bill, session.name)
            for (key, session), bill in zip(used, bills, strict=True)
        ]


def _time(by: By) -> Callable[[tuple[int, str, Bill]], str]:
    form = "%Y-%m-%d" if by == "day" else "%Y-%m-%dT%H:00:00.000Z"
    return lambda cell: datetime.fromtimestamp(cell[0] * HOUR, UTC).strftime(form)


def _sum(bills: Iterable[Bill]) -> Bill:
    return reduce(add, bills, NOTHING)
