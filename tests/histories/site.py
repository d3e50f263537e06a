"""Where histories happen: proxies on one Valkey, a model behind them, and what can be done to them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest

from proxy import app
from proxy.adapters.stores.redis import RedisStore
from proxy.cache import CacheMemory
from proxy.core.formats.json import loads
from proxy.engine.intake.naming import Naming
from proxy.ports import SessionStore
from tests.histories.history import Attempt, History, Kept, Message, Tree, without_head
from tests.histories.model import EchoModel
from tests.histories.scripts import WORKERS, Fault
from tests.support.clients import ADMIN, SECRET, proxying, write_policy
from tests.support.network import Shim, relaying
from tests.support.stores import HandClock, Server, serving, valkey_command

STORE_TIMEOUT = 0.4
"""Store timeout in seconds on disturbed sites; otherwise it is as long as a busy machine needs."""
_CALM_TIMEOUT = 10.0
_BREAKER = 0.1
_LEASE = 1.0
"""Seconds after which a killed worker's place in a queue is given up."""
_POLICY = 'extends = "balanced"\n[summary]\nenabled = false\n'
_STARTING = 30.0
"""Seconds within which workers must start."""
Plant = Callable[[SessionStore], SessionStore]
"""Puts a fault into a store."""


@dataclass
class Site:
    """Proxies that share a store."""

    urls: list[str]
    model: EchoModel
    server: Server
    relays: list[Shim]
    http: httpx2.AsyncClient
    store: RedisStore
    """The same store over a connection that is never disturbed."""
    is_calm: bool
    """Whether it is never disturbed."""
    supervisor: int = 0
    """Process id of the supervisor of workers; 0 where the proxies run in this process."""
    crashes: list[float] = field(default_factory=list[float])
    _harming: asyncio.Lock = field(default_factory=asyncio.Lock)

    # --- faults ---

    async def disturb(self, fault: Fault) -> None:
        """Disturb the store or the workers once, and undo that."""
        relay, seconds = self.relays[fault.worker % len(self.relays)], fault.milliseconds / 1000
        if fault.kind == "crash":
            self.crashes.append(asyncio.get_running_loop().time())
            _kill_a_worker(self.supervisor)
        elif fault.kind == "lose replies":
            relay.lose_replies = True
            await asyncio.sleep(seconds)
            relay.lose_replies = False
        elif fault.kind == "lag":
            relay.lag = seconds
            await asyncio.sleep(2 * seconds)
            relay.lag = 0.0
        elif fault.kind == "cut replies":
            relay.cut = fault.milliseconds % 50
            await asyncio.sleep(seconds)
            relay.cut = None
        elif fault.kind == "swallow replies":
            relay.swallow = True
            await asyncio.sleep(seconds)
            relay.swallow = False
        elif fault.kind == "stray replies":
            relay.stray = b"+OK\r\n"
            await asyncio.sleep(seconds)
            relay.stray = b""
        else:
            async with self._harming:
                await self._harm(fault.kind, seconds)

    async def _harm(self, kind: str, seconds: float) -> None:
        assert self.server.process is not None
        if kind == "cut":
            await asyncio.to_thread(self.server.run, "CLIENT", "KILL", "TYPE", "normal")
        elif kind == "freeze":
            os.kill(self.server.process.pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(self.server.process.pid, signal.SIGCONT)
        elif kind == "fill":
            await self._told_for(seconds, ("maxmemory", "1"), ("maxmemory", "0"))
        elif kind == "make read-only":
            await self._told_for(seconds, ("min-replicas-to-write", "1"), ("min-replicas-to-write", "0"))
        elif kind == "kill":
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)

    async def _told_for(self, seconds: float, first: tuple[str, str], then: tuple[str, str]) -> None:
        await asyncio.to_thread(self.server.run, "CONFIG", "SET", *first)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.server.run, "CONFIG", "SET", *then)

    # --- what was kept ---

    async def read(self, history: History) -> None:
        """Read all sessions of a history."""
        history.trees = {
            (attempt.tenant, name): await self._tree(attempt, name)
            for attempt in history.attempts
            if (name := attempt.session or attempt.header)
        }

    async def _tree(self, attempt: Attempt, name: str) -> Tree:
        naming = Naming(SECRET, CacheMemory())
        tenant = naming.tenant({b"authorization": attempt.tenant.encode()})
        key = naming.named(tenant, name)
        session = await self.store.session(key)
        nodes = await self.store.nodes(key)
        kept = [
            Kept(node.hash, node.parent, _message(node.raw), node.answer, node.complete)
            for node in nodes.values()
        ]
        told = await self._told(f"{tenant}.{key.tag}.{key.sid}") if session else []
        return Tree({each.hash: each for each in kept}, session.tip if session else b"", tuple(told))

    async def _told(self, session: str) -> list[Message]:
        url = f"{self.urls[0]}/unabridged/v1/sessions/{session}/transcript"
        response = await self.http.get(url, headers=ADMIN)
        if response.status_code != 200:
            return []
        messages: list[dict[str, Any]] = response.json()["messages"]
        return list(without_head([each["message"] for each in messages]))

    async def lost_turns(self) -> float | None:
        """Return the number of lost turns in the metrics; None if workers may be killed."""
        if self.supervisor:
            return None
        texts = [(await self.http.get(f"{url}/metrics")).text for url in self.urls]
        found = [re.search(r"^unabridged_lost_turns_total (\S+)", text, re.MULTILINE) for text in texts]
        return sum(float(each[1]) for each in found if each)


def _message(raw: bytes) -> Message:
    message: Any = loads(raw)
    return message


# --- sites to be ---


@asynccontextmanager
async def open_site(
    *, disturbed: bool = False, plant: Plant | None = None, alone: bool = False
) -> AsyncGenerator[Site]:
    """Two proxies in this process, or one that the store serves `alone`.

    What may be disturbed keeps what it was told when it is killed.
    """
    async with _ground(disturbed=disturbed) as (site, settings):
        stores = [relay.url for relay in site.relays] if disturbed else [site.server.url] * WORKERS
        async with AsyncExitStack() as stack:
            with planted(plant):
                proxies = [
                    proxying(site.model.url, store=store, owns_store=alone, **settings)
                    for store in (stores[:1] if alone else stores)
                ]
                site.urls = [await stack.enter_async_context(each) for each in proxies]
            yield site


@asynccontextmanager
async def open_site_of_workers() -> AsyncGenerator[Site]:
    """`unabridged serve` with two workers, which may be killed; any of them serves any turn."""
    async with _ground(disturbed=True) as (site, settings):
        with _served(site.model.url, site.relays[0].url, settings) as (url, supervisor):
            site.urls, site.supervisor = [url], supervisor
            await _ready(site)
            yield site


async def _ready(site: Site) -> None:
    """Wait until a worker serves."""
    async with asyncio.timeout(_STARTING):
        while True:
            with suppress(httpx2.TransportError):
                if (await site.http.get(f"{site.urls[0]}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _ground(*, disturbed: bool) -> AsyncGenerator[tuple[Site, dict[str, Any]]]:
    """Everything but the proxies, and the settings that they need."""
    options = ("--appendonly", "yes", "--appendfsync", "always") if disturbed else ()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="ua-")))
        server = stack.enter_context(serving(valkey_command(), *options))
        model = await stack.enter_async_context(EchoModel().serve())
        relays = [await stack.enter_async_context(relaying(server.socket)) for _ in range(WORKERS)]
        limits = httpx2.Limits(max_connections=8)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=None, limits=limits))
        store = RedisStore(server.url, HandClock(), timeout=_CALM_TIMEOUT, rest=_BREAKER)
        stack.push_async_callback(store.aclose)
        settings = {
            "policy": str(write_policy(directory, "histories", _POLICY)),
            "secret": SECRET,
            "store_timeout": STORE_TIMEOUT if disturbed else _CALM_TIMEOUT,
            "save_timeout": 1.0 if disturbed else _CALM_TIMEOUT,
            "store_breaker": _BREAKER,
            "line_lease": _LEASE if disturbed else _CALM_TIMEOUT,
        }
        yield Site([], model, server, relays, http, store, is_calm=not disturbed), settings


@contextmanager
def planted(plant: Plant | None) -> Generator[None]:
    """Put a bug into the stores of proxies that are built in the block."""
    opened = app.open_store

    def open_planted(*given: Any, **named: Any) -> SessionStore:
        store = opened(*given, **named)
        return plant(store) if plant else store

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "open_store", open_planted)
        yield


@contextmanager
def _served(upstream: str, store: str, settings: dict[str, Any]) -> Generator[tuple[str, int]]:
    """Run the program as operators do; yields its URL and process id."""
    variables = {f"UNABRIDGED_{name.upper()}": str(value) for name, value in settings.items()}
    given = {"UNABRIDGED_UPSTREAM": upstream, "UNABRIDGED_STORE": store, "UNABRIDGED_ADMIN_TOKEN": "admin"}
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--workers", str(WORKERS), "--json"]
    process = subprocess.Popen(
        command, env={**os.environ, **variables, **given}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        told: dict[str, str] = json.loads(process.stdout.readline())
        yield told["base_url"].removesuffix("/v1"), process.pid
    finally:
        process.terminate()
        process.wait()


def _kill_a_worker(supervisor: int) -> None:
    """Kill one worker as the system does when memory runs out; the supervisor starts another."""
    workers = [pid for pid in _children(supervisor) if b"spawn_main" in _command_line(pid)]
    if workers:
        os.kill(workers[0], signal.SIGKILL)


def _children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children")
    return [int(pid) for pid in found.read_text().split()]


def _command_line(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()
