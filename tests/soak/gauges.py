"""What a process holds, by its own account: memory, file descriptors, tasks."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

import httpx2

_NAMES = (
    "process_resident_memory_bytes",
    "process_open_fds",
    "unabridged_tasks",
    "unabridged_streams_active",
)
_QUIET = 4
"""So many readings in a row that are alike mean rest."""
_RESTLESS = 60.0
"""Seconds after which what has not come to rest never will."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Reading:
    """What was held at one moment."""

    memory: int
    """Bytes."""
    files: int
    tasks: int
    streams: int

    def __str__(self) -> str:
        memory = f"{self.memory / MIB:7.1f} MiB"
        return f"{memory}  {self.files:3} files  {self.tasks:3} tasks  {self.streams} streams"


async def read(url: str) -> Reading:
    """Ask once, on a connection of its own."""
    async with httpx2.AsyncClient(timeout=10.0) as client:
        text = (await client.get(f"{url}/metrics")).text
    found = [re.search(rf"^{name} (\S+)", text, re.MULTILINE) for name in _NAMES]
    return Reading(*(int(float(each[1])) for each in found if each))


async def at_rest(url: str) -> Reading:
    """The reading once files and tasks no longer change and nothing is being answered.

    Raises TimeoutError where that does not happen.
    """
    seen: list[tuple[int, ...]] = []
    async with asyncio.timeout(_RESTLESS):
        while True:
            reading = await read(url)
            seen = [*seen[1 - _QUIET :], (reading.files, reading.tasks, reading.streams)]
            if len(seen) == _QUIET and len(set(seen)) == 1 and not reading.streams:
                return reading
            await asyncio.sleep(0.5)
