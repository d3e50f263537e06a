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
    'unabridged_memory_items{state="remembered"}',
)
_QUIET = 4
"""So many readings in a row that are alike mean rest."""
_RESTLESS = 150.0
"""Seconds after which what has not come to rest never will: background work that gives way to users begins
after a pause of up to a minute."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Reading:
    """What was held at one moment."""

    memory: int
    """Bytes."""
    files: int
    tasks: int
    streams: int
    items: int
    """Of memories."""

    def __str__(self) -> str:
        held = f"{self.memory / MIB:7.1f} MiB  {self.files:3} files  {self.tasks:3} tasks"
        return f"{held}  {self.streams} streams  {self.items} items"


async def read(url: str) -> Reading:
    """Ask once, on a connection of its own."""
    async with httpx2.AsyncClient(timeout=10.0) as client:
        text = (await client.get(f"{url}/metrics")).text
    found = [re.search(rf"^{re.escape(name)} (\S+)", text, re.MULTILINE) for name in _NAMES]
    return Reading(*(int(float(each[1])) for each in found if each))


async def at_rest(url: str, tasks: int) -> Reading:
    """The reading once files no longer change, nothing is being answered and no more tasks are left.

    What a dead store has held up may take its time; after `_RESTLESS` seconds it is what it is.
    """
    deadline = asyncio.get_running_loop().time() + _RESTLESS
    files: list[int] = []
    while True:
        reading = await read(url)
        files = [*files[1 - _QUIET :], reading.files]
        is_quiet = len(files) == _QUIET and len(set(files)) == 1
        is_empty = reading.tasks <= tasks and not reading.streams
        if (is_quiet and is_empty) or asyncio.get_running_loop().time() > deadline:
            return reading
        await asyncio.sleep(0.5)
