"""`unabridged serve` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.support.servers import PATIENCE

PROGRAM = (sys.executable, "-m", "proxy")
LOG = "serve.log"
START = 30.0
"""Seconds that a process may take to serve on a busy machine."""


def environment(data: Path) -> dict[str, str]:
    """Return an environment without settings of the person who runs the tests."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("UNABRIDGED_", "OPENAI_"))
    }
    return {**kept, "UNABRIDGED_DATA_DIR": str(data), "XDG_CONFIG_HOME": str(data / "nothing")}


class Serving:
    """A running `unabridged serve`, which has printed its URL but may not be ready."""

    def __init__(self, process: subprocess.Popen[str], told: dict[str, str]) -> None:
        self.process = process
        self.told = told

    @property
    def url(self) -> str:
        return self.told["base_url"].removesuffix("/v1")

    async def readiness(self) -> int | None:
        """Return the answer of a readiness probe; None if nothing listens."""
        try:
            async with httpx2.AsyncClient(timeout=PATIENCE) as probe:
                return (await probe.get(f"{self.url}/readyz")).status_code
        except httpx2.HTTPError:
            return None

    async def becomes(self, status: int) -> None:
        """Wait until a readiness probe gets this answer."""
        async with asyncio.timeout(START):
            while await self.readiness() != status:
                assert self.process.poll() is None, "serve ended"
                await asyncio.sleep(0.02)

    async def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it by SIGTERM, and return its exit code."""
        self.process.send_signal(by)
        return await self.ends()

    async def ends(self) -> int:
        return await asyncio.to_thread(self.process.wait, START)


@asynccontextmanager
async def serving(
    data: Path, *flags: str, ready: bool = True, program: Sequence[str] = PROGRAM, **variables: str
) -> AsyncGenerator[Serving]:
    """Run `unabridged serve` on a free port, with its log in `data`; killed at the end if it still runs."""
    with (data / LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - forks and returns
            [*program, "serve", "--port", "0", "--json", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**environment(data), **variables},
        )
    assert process.stdout is not None
    try:
        served = Serving(process, json.loads(await asyncio.to_thread(process.stdout.readline) or "{}"))
        if ready:
            await served.becomes(200)
        yield served
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()
