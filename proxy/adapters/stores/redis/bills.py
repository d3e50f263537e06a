"""The BillStore port over Redis or Valkey: hashes of integers, to which the server adds.

What the keys hold is in :mod:`proxy.adapters.stores.redis.keys`. An amount that is no number, and a name that
is not known here, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxy.adapters.stores.redis import keys as names
from proxy.adapters.stores.redis.connection import Connection
from proxy.adapters.stores.redis.scripts import Scripts
from proxy.core.economics.bill import Bill
from proxy.ports import Group, SessionKey
from proxy.ports.bill_store import HOUR, KEPT

_AT_ONCE: Final = 100
"""Bills that are read before others are let go on."""


class RedisBills:
    """Bills in one server, or in a cluster. The port says what each method does."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts

    async def add_to_hour(self, hour: int, bills: Mapping[str, Bill], group: Group) -> None:
        amounts = [
            word
            for model, bill in bills.items()
            for name, amount in bill.amounts().items()
            for word in (f"{name} {model}".encode(errors="replace"), amount)
        ]
        life = names.milliseconds(KEPT * HOUR)
        await self._scripts.of_key("add_to_hour", names.hour(hour), life, *group, *amounts)

    async def add_to_session(self, key: SessionKey, bill: Bill, ttl: float, group: Group) -> None:
        amounts = [word for pair in bill.amounts().items() for word in pair]
        life = names.lives(ttl).session
        await self._scripts.of_session("add_to_session", key, life, *group, *amounts)

    async def hours(self, first: int, last: int) -> dict[int, dict[str, Bill]]:
        found: dict[int, dict[str, Bill]] = {}
        for start in range(first, last + 1, _AT_ONCE):
            asked = range(start, min(start + _AT_ONCE, last + 1))
            stored = await self._read([names.hour(each) for each in asked])
            bills = zip(asked, map(_by_model, stored), strict=True)
            found |= {hour: by_model for hour, by_model in bills if by_model}
        return found

    async def of_sessions(self, keys: Sequence[SessionKey]) -> list[Bill]:
        found: list[Bill] = []
        for start in range(0, len(keys), _AT_ONCE):
            page = [names.session(each) + names.BILL for each in keys[start : start + _AT_ONCE]]
            found += (Bill.of(dict(_amounts(each))) for each in await self._read(page))
        return found

    async def _read(self, stored: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        return await self._connection.ask_all("inspect", *(("HGETALL", name) for name in stored))


def _by_model(stored: Mapping[bytes, bytes]) -> dict[str, Bill]:
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for name, amount in _amounts(stored):
        kind, _, model = name.partition(" ")
        found[model][kind] = amount
    return {model: Bill.of(amounts) for model, amounts in found.items()}


def _amounts(stored: Mapping[bytes, bytes]) -> Iterator[tuple[str, int]]:
    for name, amount in stored.items():
        if not name.startswith(names.WRITER.encode()) and amount.removeprefix(b"-").isdigit():
            yield name.decode(errors="replace"), int(amount)
