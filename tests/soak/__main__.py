"""`make soak`: a crowd of clients for a long time, while the store and the networks fail again and again.

One proxy, as operators start it, on one worker, before a real Valkey. Every now and then all clients pause,
and what the process then holds is read. Memory, file descriptors and tasks must be at the end what they were
after the warming up, no client may hear what no client should, and nothing in the log may be a fault of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console

from tests.soak.crowd import Tally, Visitor
from tests.soak.gauges import MIB, Reading, at_rest
from tests.soak.talker import Talker
from tests.soak.weather import Weather
from tests.support.clients import SECRET, write_policy
from tests.support.descriptors import file_limit
from tests.support.network import Shim, relaying, relaying_to_port
from tests.support.processes import LOG, serving
from tests.support.servers import FakeUpstream
from tests.support.stores import serving as serving_store
from tests.support.stores import valkey_command

POLICY = """
extends = "balanced"
[budget]
tokens = 1000
[summary]
wait = "200ms"
[memory]
enabled = true
every = 3
channel_every = 1
"""
ROUNDS = 10
"""Pauses for reading; the first three rounds warm up."""
WARM = 3
CACHES = "8MiB"
"""So little that warming up fills it: what grows afterwards is remembered by no cache."""
MEMORY = 8 * MIB
"""Bytes that resting memory may differ by: what allocators keep."""
FILES = 32
"""Descriptors that may be more: connections to the store, of which a pool keeps so many."""
TASKS = 5
"""What is alive where nobody is: the server, its lifespan, the watch over policies, memory's daily clock, and
whoever asks."""
STORE = ("--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes")
_FAULTS = {"a managed request failed", "background work failed", "planning failed"}
_OF_THE_WEATHER = {"unreachable", "timeout", "refused", "rate_limited"}
"""Why a summary may fail here."""

_console = Console()


@dataclass
class Ground:
    """Where it happens."""

    url: str
    gate: asyncio.Event
    visitors: list[Visitor]
    weather: Weather
    tally: Tally
    network: Shim
    """The way to the upstream."""
    log: Path

    async def go_on(self, seconds: float) -> Reading:
        """Let the crowd in for so long, then wait until everybody rests."""
        self.gate.set()
        await asyncio.sleep(seconds)
        self.gate.clear()
        while not all(visitor.is_at_rest for visitor in self.visitors):  # noqa: ASYNC110 - they are many
            await asyncio.sleep(0.1)
        self.network.part()  # how many idle connections are kept is chance
        return await at_rest(self.url, TASKS)


@asynccontextmanager
async def opened(seed: int, clients: int) -> AsyncGenerator[Ground]:
    """The proxy, all that stands around it, and the crowd before the gate."""
    random, gate, tally = Random(seed), asyncio.Event(), Tally()
    talker = Talker(random)
    async with AsyncExitStack() as stack:
        stack.enter_context(file_limit(4096))
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="ua-")))
        server = stack.enter_context(serving_store(valkey_command(), *STORE))
        store = await stack.enter_async_context(relaying(server.socket))
        upstream = await stack.enter_async_context(FakeUpstream(talker).serve())
        way = await stack.enter_async_context(relaying_to_port(upstream.port))
        served = await stack.enter_async_context(
            serving(
                directory,
                *("--upstream", f"{way.url}/v1", "--store", store.url),
                *("--policy", str(write_policy(directory, "soak", POLICY))),
                UNABRIDGED_SECRET=SECRET,  # a shared store asks for one
                UNABRIDGED_UPSTREAM_READ_TIMEOUT="1",
                UNABRIDGED_REQUEST_TIMEOUT="2",
                UNABRIDGED_CACHE_MEMORY=CACHES,
                UNABRIDGED_MEMORY_REST="1",
            )
        )
        weather = Weather(random, server, store, way, talker)
        visitors = [Visitor(number, served.url, gate, tally) for number in range(clients)]
        # A visitor that fails ends the soak: nobody would wait for its rest in vain.
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(each.visit()) for each in visitors]
        tasks += [group.create_task(weather.blow(gate)), group.create_task(_forget(upstream))]
        yield Ground(served.url, gate, visitors, weather, tally, way, directory / LOG)
        for task in tasks:
            task.cancel()


async def _forget(upstream: FakeUpstream) -> None:
    """The upstream remembers every request, for tests that are shorter."""
    while True:
        upstream.requests.clear()
        await asyncio.sleep(1.0)


def grown(first: Reading, last: Reading) -> dict[str, tuple[float, float, float]]:
    """What was held after the warming up, what is in the end, and the most that may be, by what it is."""
    return {
        "MiB": (first.memory / MIB, last.memory / MIB, (first.memory + MEMORY) / MIB),
        "files": (first.files, last.files, first.files + FILES),
        "tasks": (first.tasks, last.tasks, TASKS),
        "streams": (first.streams, last.streams, 0),
    }


def complaints(first: Reading, last: Reading, ground: Ground) -> list[str]:
    """What is wrong in the end."""
    told = [
        f"{now:.0f} {what} are held in the end, and may be {most:.0f}"
        for what, (_, now, most) in grown(first, last).items()
        if now > most
    ]
    told += [] if last.items else ["nothing is remembered"]
    told += [f"{count} times a client heard: {what}" for what, count in ground.tally.wrong.items()]
    told += [f"{count} times the log says: {what}" for what, count in faults_in(ground.log).items()]
    return told


def faults_in(log: Path) -> Counter[str]:
    """Lines of the log that no weather explains."""
    found: Counter[str] = Counter()
    for line in log.read_bytes().splitlines():
        try:
            told = msgspec.json.decode(line, type=dict[str, object])
        except msgspec.DecodeError:
            found[line.decode(errors="replace")[:300]] += 1
            continue
        if told.get("reason") in _OF_THE_WEATHER:
            continue
        if told.get("level") == "error" or told.get("message") in _FAULTS:
            found[f"{told}"[:600]] += 1
    return found


async def soak(minutes: float, seed: int, clients: int) -> int:
    """Soak for so long; the exit code."""
    async with opened(seed, clients) as ground:
        readings: list[Reading] = []
        for number in range(ROUNDS):
            readings.append(await ground.go_on(minutes * 60 / ROUNDS))
            told = sum(ground.tally.answers.values())
            _print(f"{number + 1:2} of {ROUNDS}  {readings[-1]}  {told} requests")
        _print(f"answers: {dict(ground.tally.answers)}")
        _print(f"weather: {dict(ground.weather.happened)}")
        first, last = readings[WARM - 1], readings[-1]
        for what, (before, now, most) in grown(first, last).items():
            _print(f"{what}: {before:.0f} after warming up, {now:.0f} in the end, at most {most:.0f}")
        found = complaints(first, last, ground)
        for each in found:
            _print(f"wrong: {each}")
        _print("failed" if found else "all is as it was")
        return 1 if found else 0


def _print(text: str) -> None:
    _console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(asyncio.run(soak(given.minutes, given.seed, given.clients)))
