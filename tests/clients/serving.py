"""The proxy as people start it, `unabridged serve` with its embedded store, and what its admin API says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.clients import admin
from tests.support.upstreams import Message

START = 30.0
"""Seconds to start in, and to end in."""
PATIENCE = 10.0


def log_of(data: Path) -> Path:
    return data / "serve.log"


@asynccontextmanager
async def serving(upstream: str, data: Path, *flags: str) -> AsyncGenerator[str]:
    """A process of its own, with its data and its log in that directory; yields its URL once it is ready."""
    kept = {
        name: text for name, text in os.environ.items() if not name.startswith(("UNABRIDGED_", "OPENAI_"))
    }
    ours = {
        "UNABRIDGED_DATA_DIR": str(data),
        "UNABRIDGED_ADMIN_TOKEN": "admin",
        "UNABRIDGED_STORE_TIMEOUT": str(PATIENCE),  # a busy machine is not what these tests are about
    }
    words = ["-m", "proxy", "serve", "--port", "0", "--json", "--upstream", upstream, *flags]
    with log_of(data).open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=PIPE, stderr=log, env={**kept, **ours}
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START):
            told = json.loads(await process.stdout.readline() or "{}")
            url = str(told["base_url"]).removesuffix("/v1")
            await _ready(url)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(START):
            await process.wait()


async def _ready(url: str) -> None:
    async with httpx2.AsyncClient() as client:
        while True:
            try:
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass  # It does not listen yet.
            await asyncio.sleep(0.05)


async def sessions(url: str) -> dict[str, Any]:
    """Every session of every caller, by its id."""
    return {session["id"]: session for session in (await admin(url, "sessions"))["sessions"]}


async def transcript(url: str, session: str, length: int) -> list[Message]:
    """What was said in a session, without system messages, once it is this long."""
    kept: list[Message] = []
    for _ in range(int(PATIENCE / 0.1)):
        told = await admin(url, f"sessions/{session}/transcript")
        messages: list[Message] = [each["message"] for each in told["messages"]]
        kept = [message for message in messages if message["role"] != "system"]
        if len(kept) >= length:
            break
        await asyncio.sleep(0.1)
    return kept
