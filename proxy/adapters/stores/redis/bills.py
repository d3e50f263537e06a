"""The BillStore port over Redis or Valkey: hashes of integers that the server increments.

The keys are documented in :mod:`proxy.adapters.stores.redis.keys`. Amounts that are not numbers, and amounts
with unknown names, are left out when reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from proxy.adapters.stores.redis import keys as names
from proxy.adapters.stores.redis.scripts import Scripts
from proxy.core.economics.bill import Amounts, Bill
from proxy.core.proof.evidence import Counts
from proxy.ports import BatchId, SessionKey
from proxy.ports.bill_store import HOUR, KEPT_HOURS

_AT_ONCE: Final = 100
"""How many bills are read in one call, so that other callers get their turn in between."""


class RedisBills:
    """Bills in one server or a cluster. The methods are documented at the port."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def add_to_hour(self, hour: int, bills: Mapping[str, Amounts], group: BatchId) -> None:
        await self._add(names.hour(hour), bills, group)

    async def add_evidence(self, hour: int, evidence: Mapping[str, Counts], group: BatchId) -> None:
        await self._add(names.evidence(hour), evidence, group)

    async def _add(self, key: str, amounts: Mapping[str, Counts], group: BatchId) -> None:
        words = [
            word
            for label, counts in amounts.items()
            for name, amount in counts.items()
            if amount
            for word in (f"{name} {label}".encode(errors="replace"), amount)
        ]
        await self._scripts.of_key("add_to_hour", key, names.milliseconds(KEPT_HOURS * HOUR), *group, *words)

    async def add_to_session(self, key: SessionKey, bill: Amounts, ttl: float, group: BatchId) -> None:
        amounts = [word for pair in bill.items() if pair[1] for word in pair]
        life = names.unrecorded(ttl)
        await self._scripts.of_session("add_to_session", key, life, *group, *amounts)

    async def hours(self, first: int, last: int) -> dict[int, dict[str, Bill]]:
        found = await self._hours(names.hour, first, last)
        return {hour: {model: Bill.of(each) for model, each in of.items()} for hour, of in found.items()}

    async def evidence(self, first: int, last: int) -> dict[int, dict[str, Counts]]:
        return await self._hours(names.evidence, first, last)

    async def _hours(
        self, key_of: Callable[[int], str], first: int, last: int
    ) -> dict[int, dict[str, Counts]]:
        found: dict[int, dict[str, Counts]] = {}
        for start in range(first, last + 1, _AT_ONCE):
            asked = range(start, min(start + _AT_ONCE, last + 1))
            stored = await self._read([key_of(each) for each in asked])
            for hour, amounts in zip(asked, stored, strict=True):
                by_label: defaultdict[str, dict[str, int]] = defaultdict(dict)
                for name, amount in _amounts(amounts):
                    kind, _, label = name.partition(" ")
                    by_label[label][kind] = amount
                if by_label:
                    found[hour] = dict(by_label)
        return found

    async def of_sessions(self, keys: Sequence[SessionKey]) -> list[Bill]:
        found: list[Bill] = []
        for start in range(0, len(keys), _AT_ONCE):
            page = [names.session(each) + names.BILL for each in keys[start : start + _AT_ONCE]]
            found += (Bill.of(dict(_amounts(each))) for each in await self._read(page))
        return found

    async def _read(self, stored: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        return await self._scripts.connection.ask_all("inspect", *(("HGETALL", name) for name in stored))


def _amounts(stored: Mapping[bytes, bytes]) -> Iterator[tuple[str, int]]:
    for name, amount in stored.items():
        if not name.startswith(names.WRITER.encode()) and amount.removeprefix(b"-").isdigit():
            yield name.decode(errors="replace"), int(amount)
