"""A store that cannot be used is told by what is wrong with it: once, to the operator, and with its name."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path

import httpx2
import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.breaker import Breaker
from proxy.adapters.stores.redis.cluster import Command
from proxy.adapters.stores.redis.connection import Connection
from proxy.errors import StoreUnavailable
from tests.support.append_client import Appender
from tests.support.clients import Chat, proxying, user
from tests.support.servers import PATIENCE
from tests.support.stores import (
    DAY,
    KEY,
    HandClock,
    Server,
    found,
    free_port,
    is_left_alone,
    serving,
    turn,
    valkey_command,
)
from tests.support.upstreams import Model

CERTIFICATE = Path(__file__).parents[1] / "contract" / "certificate" / "certificate.pem"
WORD = "hunter2"
"""A password, which is told nowhere."""
UNUSUAL = ("hset", "hmget", "hgetall", "smembers", "zadd", "lrange", "pexpire", "unlink", "time")
"""Commands that are missing for a user of the store whose rights are a list of single commands."""


@pytest.fixture(scope="module")
def port() -> Generator[int]:
    """Where a Valkey listens that wants a password, and knows users who may not do everything."""
    port = free_port()
    with serving(valkey_command(), "--bind", "127.0.0.1", "--port", str(port)) as server:
        for name, rights in {"mute": "-@scripting", "reader": "-hset", "silent": "-echo"}.items():
            server.run("ACL", "SETUSER", name, "on", f">{WORD}", "~*", "+@all", rights)
        for command in UNUSUAL:
            server.run("ACL", "SETUSER", f"no-{command}", "on", f">{WORD}", "~*", "+@all", f"-{command}")
        server.run("ACL", "SETUSER", "default", f">{WORD}")
        yield port


async def encrypted(stack: AsyncExitStack) -> int:
    """The port of a server whose certificate nobody has signed but itself."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.read(1)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    await stack.enter_async_context(server)
    return server.sockets[0].getsockname()[1]


UNREACHABLE: dict[str, tuple[str, str]] = {
    "a closed port": (f"redis://:{WORD}@localhost:{{closed}}/0", "connection refused"),
    "no such name": (f"redis://:{WORD}@nobody.invalid:6379/0", "name not found"),
    "no such socket": ("unix:///tmp/nobody.sock", "no such file or directory"),
    "a certificate of its own": (f"rediss://:{WORD}@localhost:{{tls}}/0", "certificate not trusted"),
    "TLS to a plain server": (f"rediss://:{WORD}@localhost:{{port}}/0", "TLS handshake failed"),
    "no TLS to one that wants it": (f"redis://:{WORD}@localhost:{{tls}}/0", "connection closed"),
    "a wrong password": ("redis://:wrong@localhost:{port}/0", "wrong password (WRONGPASS)"),
    "no password": ("redis://localhost:{port}/0", "it wants a password (NOAUTH)"),
    "no such database": (f"redis://:{WORD}@localhost:{{port}}/77", "it has no database of that number"),
    "no cluster": (f"redis+cluster://:{WORD}@localhost:{{port}}", "it is not a cluster"),
}


@pytest.mark.parametrize("what", UNREACHABLE)
async def test_what_keeps_it_from_being_used_is_said_once(
    port: int, clock: HandClock, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, kind = UNREACHABLE[what]
    async with AsyncExitStack() as stack:
        url = url.format(port=port, closed=free_port(), tls=await encrypted(stack))
        store = await stack.enter_async_context(aclosing(RedisStore(url, clock, timeout=0.5, rest=1.0)))
        for call in (store.meet, *(lambda: found(store, "u1"), store.ping) * 2):
            with pytest.raises(StoreUnavailable) as refused:
                await call()
            assert kind in refused.value.message
            assert "local" not in refused.value.message
            clock.time += 1.0
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    fields: dict[str, str] = vars(told)["fields"]
    assert fields["why"] == kind
    host = url.rpartition("@")[2].removesuffix("/0").removesuffix("/77").rpartition("//")[2]
    assert what == "no such database" or host in fields["detail"]
    assert WORD not in str(fields)


FORBIDDEN = {"mute": "evalsha|eval", "reader": "hset", "silent": "echo"}


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_what_its_user_may_not_do_is_said_once_and_in_the_servers_words(
    port: int, clock: HandClock, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://{name}:{WORD}@127.0.0.1:{port}/0"
    async with aclosing(RedisStore(url, clock, timeout=0.5, rest=1.0)) as store:
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="NOPERM"):
                await store.record(KEY, turn("u1", "a1"), DAY)
            assert not is_left_alone(store)
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    fields: dict[str, str] = vars(told)["fields"]
    assert fields["why"] == "its user may not do that (NOPERM)"
    assert any(f"'{command}'" in fields["detail"] for command in FORBIDDEN[name].split("|"))


REFUSED: dict[str, tuple[Command, str, str]] = {
    "a write": (("SET", "secret key", WORD), "it misses replicas (NOREPLICAS)", ""),
    "what it does not know": (("NOPE", "secret key", WORD), "an error (ERR)", "unknown command"),
    "what cannot be": (("INCR", "text"), "an error (ERR)", "value is not an integer or out of range"),
    "what its user may not do": (
        ("ECHO", WORD),
        "its user may not do that (NOPERM)",
        "User default has no permissions to run the 'echo' command",
    ),
}


@pytest.mark.parametrize("transaction", [True, False], ids=["in a transaction", "among others"])
@pytest.mark.parametrize("what", REFUSED)
async def test_what_it_says_is_told_without_what_was_to_be_written(
    valkey: Server, clock: HandClock, caplog: pytest.LogCaptureFixture, what: str, *, transaction: bool
) -> None:
    valkey.run("SET", "text", WORD)
    valkey.run("CONFIG", "SET", "min-replicas-to-write", 0 if what == "what cannot be" else 1)
    valkey.run("ACL", "SETUSER", "default", "-echo")
    command, why, detail = REFUSED[what]
    connection = Connection(valkey.url, PATIENCE, Breaker(clock, 1.0), 0.0)
    with pytest.raises(StoreUnavailable) as refused:
        await connection.ask_all("", command, ("GET", "text"), transaction=transaction)
    await connection.aclose()
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert vars(told)["fields"] == {"why": why, "detail": detail}
    assert refused.value.message == f"The store refuses: {why}."


@pytest.mark.parametrize("command", UNUSUAL)
async def test_a_user_who_lacks_one_command_is_not_ready(port: int, clock: HandClock, command: str) -> None:
    url = f"redis://no-{command}:{WORD}@127.0.0.1:{port}/0"
    async with aclosing(RedisStore(url, clock, timeout=0.5, rest=0.0)) as store:
        with pytest.raises(StoreUnavailable, match="NOPERM"):
            await store.ping()


async def test_a_listing_that_may_not_be_read_is_not_called_damaged(port: int, clock: HandClock) -> None:
    able, unable = (f"redis://{name}{WORD}@127.0.0.1:{port}/0" for name in (":", "no-hmget:"))
    async with aclosing(RedisStore(able, clock, timeout=0.5, rest=0.0)) as store:
        await store.record(KEY, turn("u1", "a1"), DAY)
    async with aclosing(RedisStore(unable, clock, timeout=0.5, rest=0.0)) as store:
        with pytest.raises(StoreUnavailable, match="NOPERM"):
            await store.sessions(10)


SITES: dict[str, Callable[[int], str]] = {
    "wrong password": lambda port: f"redis://:wrong@localhost:{port}/0",
    "NOPERM": lambda port: f"redis://mute:{WORD}@localhost:{port}/0",
    "connection refused": lambda _: f"redis://localhost:{free_port()}/0",
    "name not found": lambda _: "redis://nobody.invalid/0",
}


@pytest.mark.parametrize("kind", SITES)
async def test_readiness_says_it_and_the_log_from_the_start_and_not_with_each_request(
    port: int, model: Model, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with (
        proxying(model.url, store=SITES[kind](port), store_timeout=0.5) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        await client.get("/healthz")  # it has started
        (first,) = warnings(capfd)
        assert kind in first["why"]
        chat, appender = Chat(url), Appender(url)
        async with chat.client, appender.client:
            for number in range(3):
                assert (await chat.ask(f"question {number}")).headers["x-unabridged-degraded"]
                assert (await appender.say(user("more"))).status_code == 503
        ready = (await client.get("/readyz")).json()
        assert ready["status"] == "degraded"
        assert kind in ready["store"]
        assert "localhost" not in str(ready)
        assert warnings(capfd) == []


def warnings(capfd: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """What the log has said of the store since it was asked last, but for turns that were not written."""
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    own = ("request", "a turn could not be written")
    return [line for line in lines if line["level"] != "info" and line["message"] not in own]
