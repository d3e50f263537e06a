"""A year of memory, by a clock turned by hand: it neither grows without end nor loses what matters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from proxy.core.memory.records import Scope
from proxy.engine import foreground
from proxy.ports.memory_store import DELETED_LOGS
from tests.support.clients import user
from tests.support.memory_world import MemoryWorld, Writer, memory_world, noted_in
from tests.support.remembering import note
from tests.support.stores import DAY, embedded_valkey, run
from tests.support.upstreams import Message, said

RULES = "capacity = {capacity}\ninject_tokens = 100"
BIKE = "My bike stands behind the old mill."
ALLERGY = "I am allergic to hazelnuts."
OFTEN = 2
"""Days between two uses of what is used often."""
SETTLED = 190
"""Days after which as much goes as comes: an item fades in 70, and is archived for 90."""
MONTHS = (182, 273, 364)
"""Days that end the sixth month, the ninth and the twelfth, of as many whole weeks."""
FLAT = 0.05
"""Share by which what the store holds may differ between them."""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is in front of calls of our own, and time is turned by hand."""
    monkeypatch.setattr(foreground, "_AFTER", 0.0)


def noting(text: str) -> list[Message]:
    """Notes all that users say, and of an allergy that it stays true."""
    noted = [each for each in noted_in(text) if each["text"] != "Well."]
    return [note(each["text"], standing="allergic" in each["text"]) for each in noted]


def day_of(number: int, name: str) -> Sequence[Message]:
    """Ten messages of a day, five of them a user's, all about things of that day."""
    crates = range(5 * number, 5 * number + 5)
    told = [user(f"Crate{each} of {name} went aboard the ship{each * 7}.") for each in crates]
    return [message for each in told for message in (each, said("Well."))]


class Year:
    """What became of a year."""

    def __init__(self, world: MemoryWorld, url: str, names: Sequence[str], every: int) -> None:
        self.world = world
        self.url = url
        """Of the store."""
        self.names = names
        self.every = every
        """Days between two sessions of a user."""
        self.sizes: list[int] = []
        """Items, archived ones and threads after each day."""
        self.bytes: list[int] = []
        """All that the store holds of memories, at the end of each of :data:`MONTHS`."""
        self.most = 0
        """Items of one user at most."""

    async def pass_by(self, days: int = 365) -> None:
        world = self.world
        for name in self.names:
            await world.converse(f"{name} first", name, [user(BIKE), user(ALLERGY)])
        for day in range(days):
            if day % self.every == 0:
                for name in self.names:
                    await world.converse(f"{name} day {day}", name, day_of(day, name))
            if day % OFTEN == 0:
                for name in self.names:
                    await world.request(
                        f"{name} bike {day}", name, [user("Where is my bike, behind which mill?")]
                    )
            await world.settled()
            await world.inside.memory_scheduler.daily.run()
            self.sizes.append(sum([await self._size(await self.scope(name)) for name in self.names]))
            if day + 1 in MONTHS and self.url != "memory://":
                self.bytes.append(bytes_of_memories(self.url))
            world.clock.time += DAY

    async def scope(self, name: str) -> Scope:
        return self.world.home(await self.world.request(f"{name} asking", name, [user("?")])).scope

    async def _size(self, scope: Scope) -> int:
        store = self.world.outside.store.memories
        items = len((await store.remembered(scope)).items)
        self.most = max(self.most, items)
        return items + len(await store.archive(scope)) + len(await store.threads(scope, 10_000))


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.soak), "valkey"])
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[str]:
    if request.param == "memory":
        yield "memory://"
        return
    with embedded_valkey() as url:
        yield url


async def test_a_year_of_a_user_ends_in_its_capacity_with_what_matters(store: str, tmp_path: Path) -> None:
    await a_year(store, tmp_path, users=1, every=7, capacity=40)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
async def test_a_year_of_ten_users_who_talk_every_day_does_too(store: str, tmp_path: Path) -> None:
    await a_year(store, tmp_path, users=10, every=1, capacity=150)


async def a_year(store: str, directory: Path, *, users: int, every: int, capacity: int) -> None:
    names = [f"user{number}" for number in range(users)]
    async with memory_world(Writer(noting), directory, RULES.format(capacity=capacity), store) as world:
        year = Year(world, store, names, every)
        await year.pass_by()
        assert 0.5 * capacity < year.most <= 0.9 * capacity + 5
        for name in names:
            copy = await world.outside.store.memories.remembered(await year.scope(name))
            alive = {item.text: item for item in copy.items.values() if item is not None}
            assert alive[BIKE].access_count >= 365 // OFTEN
            assert alive[BIKE].importance_score > 0.3
            assert alive[ALLERGY].importance_score >= 0.3
            assert len(alive) <= 0.9 * capacity
        before, after = year.sizes[SETTLED : SETTLED + 80], year.sizes[-80:]
        assert max(after) <= 1.05 * max(before)
        assert all(abs(one - other) <= 40 * users for one, other in pairwise(after))
        if store != "memory://":
            assert len(year.bytes) == len(MONTHS)
            assert max(year.bytes) <= (1 + FLAT) * min(year.bytes), year.bytes
            assert has_logs_of_what_is_there(store)
            assert is_of_no_large_records(store)


def has_logs_of_what_is_there(url: str) -> bool:
    """Whether each memory has a log for each of its items and, of those that are no more, for the newest."""

    def count(name: bytes, part: bytes) -> int:
        return run(url, "HLEN", name.replace(b":log", part))

    names: list[bytes] = run(url, "KEYS", "*:memory:log")
    rests = [count(name, b":log") - count(name, b":items") - count(name, b":archive") for name in names]
    return max(rests) <= DELETED_LOGS


def bytes_of_memories(url: str) -> int:
    """What all keys of memories take in the store."""
    names: list[bytes] = run(url, "KEYS", "*memor*")
    return sum(run(url, "MEMORY", "USAGE", name, "SAMPLES", 0) or 0 for name in names)


def is_of_no_large_records(url: str) -> bool:
    """Whether no key of a memory has more than a little for each thing that it holds."""
    names: list[bytes] = run(url, "KEYS", "*:memory:[ialr]*")
    hashes = [name for name in names if run(url, "TYPE", name) == b"hash"]
    return all(
        run(url, "MEMORY", "USAGE", name, "SAMPLES", 0) <= 2_048 * run(url, "HLEN", name) for name in hashes
    )
