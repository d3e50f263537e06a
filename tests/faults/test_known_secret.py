"""That a store knows its secret, while a server runs on, and where it was away at the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial

import pytest

from proxy.adapters.stores import watch_secret
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.keys import REMEMBERED, SECRETS
from proxy.app import SystemClock
from tests.support.clients import proxying
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import Server

SOON, NEVER = 0.01, 1_000.0
WARNING = "written with another UNABRIDGED_SECRET"


@asynccontextmanager
async def running(url: str, secret: str, knows: bool | None, day: float = NEVER) -> AsyncGenerator[None]:
    """A server that runs with this secret, and has found at its start that the store knows it or not."""
    keyring = Keyring([secret], lambda: False)
    async with aclosing(RedisStore(url, SystemClock(), PATIENCE, SOON, keyring)) as store:
        watching = asyncio.create_task(watch_secret(store, knows=knows, again=SOON, day=day))
        yield
        watching.cancel()


def left(server: Server) -> float:
    """Seconds for which the store still knows with which secrets it was written."""
    return float(server.run("PTTL", SECRETS)) / 1_000


async def test_a_server_that_runs_on_is_known_by_its_secret_for_thirty_days_after_each_day(
    valkey: Server,
) -> None:
    async with running(valkey.url, "ours", knows=True, day=SOON):
        for _ in range(2):
            await eventually(lambda: left(valkey) > REMEMBERED - 60.0)
            valkey.run("PEXPIRE", SECRETS, 5_000)
        await eventually(lambda: left(valkey) > REMEMBERED - 60.0)


async def test_a_store_that_was_away_on_one_day_is_told_the_secret_once_it_is_back(
    durable: Server, caplog: pytest.LogCaptureFixture
) -> None:
    durable.kill()
    async with running(durable.url, "ours", knows=True, day=SOON):
        await eventually(lambda: "the store cannot be used" in caplog.text)
        durable.start()
        await eventually(lambda: left(durable) > REMEMBERED - 60.0)


@pytest.mark.parametrize("secret", ["ours", "mistyped"])
async def test_a_store_that_was_away_at_the_start_is_asked_for_its_secret_once_it_is_back(
    durable: Server, caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    ours = Keyring(["ours"], lambda: False).ids
    durable.run("SADD", SECRETS, *ours)
    durable.kill()
    async with running(durable.url, secret, knows=None):
        await eventually(lambda: "the store cannot be used" in caplog.text)
        durable.start()
        await eventually(lambda: WARNING in caplog.text or left(durable) > REMEMBERED - 60.0)
    assert (WARNING in caplog.text) == (secret == "mistyped")
    assert durable.run("SMEMBERS", SECRETS) == set(ours)


async def test_a_store_of_another_secret_is_warned_of_once_and_left_alone(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Keyring(["ours"], lambda: False).ids
    valkey.run("SADD", SECRETS, *ours)
    async with running(valkey.url, "mistyped", knows=None, day=SOON):
        await eventually(lambda: WARNING in caplog.text)
        await asyncio.sleep(10 * SOON)
        assert caplog.text.count(WARNING) == 1
        assert (valkey.run("SMEMBERS", SECRETS), left(valkey)) == (set(ours), -0.001)


async def test_a_server_asks_as_long_as_it_runs(durable: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.app.watch_secret", partial(watch_secret, again=SOON, day=SOON))
    durable.kill()
    async with proxying("http://127.0.0.1:1", store=durable.url):
        durable.start()
        for _ in range(2):
            await eventually(lambda: left(durable) > REMEMBERED - 60.0)
            durable.run("PEXPIRE", SECRETS, 5_000)
