"""What happens to the store and to the network while the soak goes on; each thing passes by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from random import Random

from tests.soak.talker import Talker
from tests.support.network import Shim
from tests.support.stores import Server

_PAUSE = (1.0, 4.0)
"""Seconds between two things that happen."""
_SECONDS = (0.1, 1.5)
"""How long one lasts."""

SERVER = ("kill", "freeze", "part", "fill", "make read-only")
WAY = ("lag", "lose replies", "cut replies", "stray replies")
UPSTREAM = ("lag upstream", "reset upstream", "cut upstream", "half-close upstream", "ail")


class Weather:
    """Harms a store, the way to it, and the way to the upstream."""

    def __init__(self, random: Random, server: Server, store: Shim, upstream: Shim, talker: Talker) -> None:
        self._random = random
        self._server, self._store, self._upstream, self._talker = server, store, upstream, talker
        self.happened: Counter[str] = Counter()

    async def blow(self, gate: asyncio.Event) -> None:
        """Until cancelled, while the gate is open."""
        while True:
            await gate.wait()
            await asyncio.sleep(self._random.uniform(*_PAUSE))
            kind = self._random.choice([*SERVER, *WAY, *UPSTREAM])
            self.happened[kind] += 1
            await self._harm(kind, self._random.uniform(*_SECONDS))

    async def _harm(self, kind: str, seconds: float) -> None:
        if kind == "ail":
            self._talker.is_well = False
            await asyncio.sleep(4 * seconds)
            self._talker.is_well = True
        elif kind in SERVER:
            await self._harm_server(kind, seconds)
        else:
            await self._harm_way(self._upstream if "upstream" in kind else self._store, kind, seconds)

    async def _harm_way(self, shim: Shim, kind: str, seconds: float) -> None:
        usual = Shim(shim.connect)
        if kind.startswith("lag"):
            shim.lag = seconds / 2
        elif kind.startswith("lose"):
            shim.lose_replies = True
        elif kind.startswith("cut"):
            shim.cut = self._random.randrange(40)
        elif kind.startswith("reset"):
            shim.cut, shim.resets = self._random.randrange(400), True
        elif kind.startswith("half-close"):
            shim.half_close = True
        else:
            shim.stray = b"+OK\r\n"
        await asyncio.sleep(seconds)
        for name in ("lag", "lose_replies", "cut", "resets", "half_close", "stray"):
            setattr(shim, name, getattr(usual, name))

    async def _harm_server(self, kind: str, seconds: float) -> None:
        if kind == "kill":
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._server.start)
        elif kind == "freeze":
            assert self._server.process is not None
            os.kill(self._server.process.pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(self._server.process.pid, signal.SIGCONT)
        elif kind == "part":
            await self._run("CLIENT", "KILL", "TYPE", "normal")
        elif kind == "fill":
            await self._run("CONFIG", "SET", "maxmemory", 1)
            await asyncio.sleep(seconds)
            await self._run("CONFIG", "SET", "maxmemory", 0)
        else:
            await self._run("REPLICAOF", "127.0.0.1", 1)
            await asyncio.sleep(seconds)
            await self._run("REPLICAOF", "NO", "ONE")

    async def _run(self, *command: str | int) -> None:
        await asyncio.to_thread(self._server.run, *command)
