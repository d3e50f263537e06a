"""Statistics: the tokens and costs of requests over a period, by hour, day, model or session."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from proxy.core.economics.bill import Bill, total
from proxy.core.proof.evidence import Counts, Evidence
from proxy.engine.billing import LABEL_SEPARATOR, Billing
from proxy.ports import BillStore, Clock, SessionAdmin, SessionKey
from proxy.ports.bill_store import HOUR, KEPT_HOURS

By = Literal["hour", "day", "model", "session"]
_DAY = 24 * HOUR
_MOST_SESSIONS = 1_000
"""How many sessions are listed, those used last."""


@dataclass(frozen=True)
class Row:
    """The bill of an hour, a day, a model or a session."""

    key: str
    bill: Bill
    name: str = ""
    """The name that clients give a session."""


@dataclass(frozen=True)
class Stats:
    """Adds up bills and evidence for the admin API."""

    store: SessionAdmin
    bills: BillStore
    billing: Billing
    clock: Clock

    async def since(self, seconds: float, by: By) -> tuple[int, Bill, list[Row]]:
        """Return the start of the period (seconds since 1970, a whole hour), its total, and its rows.

        ``seconds`` is the length of the period. Rows of sessions cover the whole life of each session that
        was used in the period.
        """
        first, last = await self._hours(seconds)
        hours = await self.bills.hours(first, last)
        summed, rows = await asyncio.to_thread(_grouped, hours, by)
        if by == "session":
            listed = (await self.store.sessions(_MOST_SESSIONS)).sessions
            used = [(key, session) for key, session in listed if session.updated >= first * HOUR]
            bills = await self.bills.of_sessions([key for key, _ in used])
            rows = [
                Row(key.id_for(session.tenant), bill, session.name)
                for (key, session), bill in zip(used, bills, strict=True)
            ]
        return first * HOUR, summed, rows

    async def today(self) -> Bill:
        """Return the bill of today (UTC)."""
        _, summed, _ = await self.since(self.clock.now() % _DAY, "day")
        return summed

    async def evidence(self, seconds: float) -> list[tuple[str, str, Evidence]]:
        """Return the evidence about cuts of the last ``seconds``, as (policy, model, evidence)."""
        first, last = await self._hours(seconds)
        found: defaultdict[str, list[Counts]] = defaultdict(list)
        for of_hour in (await self.bills.evidence(first, last)).values():
            for name, counts in of_hour.items():
                found[name].append(counts)
        rows: list[tuple[str, str, Evidence]] = []
        for name in sorted(found):
            policy, _, model = name.partition(LABEL_SEPARATOR)
            rows.append((policy, model, Evidence.of(found[name])))
        return rows

    async def _hours(self, seconds: float) -> tuple[int, int]:
        """Return the first and last of the ``seconds``' hours, once what is billed of them is written."""
        await self.billing.flush()
        now = self.clock.now()
        last = int(now) // HOUR
        return max(int(now - seconds) // HOUR, last - KEPT_HOURS), last

    async def of_session(self, key: SessionKey) -> Bill:
        await self.billing.flush()
        return (await self.bills.of_sessions([key]))[0]


def _grouped(hours: Mapping[int, Mapping[str, Bill]], by: By) -> tuple[Bill, list[Row]]:
    """Return the total, and the sums of each hour, day or model."""
    groups: defaultdict[str, list[Bill]] = defaultdict(list)
    for hour in sorted(hours):
        at = datetime.fromtimestamp(hour * HOUR, UTC)
        name = f"{at:%Y-%m-%d}" if by == "day" else f"{at:%Y-%m-%dT%H:00:00.000Z}"
        for model, bill in hours[hour].items():
            groups[model if by == "model" else name].append(bill)
    rows = [Row(name, total(groups[name])) for name in sorted(groups)]
    return total(row.bill for row in rows), rows
