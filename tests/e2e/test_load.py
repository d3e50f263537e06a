"""More load than fits, and as much as must fit."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.support.clients import ADMIN, CHAT, HELLO, STREAMED, proxying, write_policy
from tests.support.descriptors import file_limit, may_open
from tests.support.processes import Serving, serving
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, RawClient, connect, ok
from tests.support.upstreams import DONE, EVENTS, events, said, sse

ANSWER = "Hello there, whoever you are"
CHUNK_SIZE = re.compile(rb"\r\n[0-9a-f]+\r\n|\r\n$")
AT_ONCE = 2
"""Requests that the proxy of these tests answers at a time."""


class Holding:
    """A model that begins every answer, and ends none before it may; its list of models it gives at once."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            await ok(exchange)
            return
        await exchange.body()
        await exchange.start(200, [EVENTS])
        first, *others = events(said(ANSWER))
        await exchange.chunk(sse(first))
        self.begun += 1
        await self.go_on.wait()
        for event in others:
            await exchange.chunk(sse(event))
            await asyncio.sleep(0)
        await exchange.chunk(DONE)
        await exchange.end()


@pytest.fixture
def holding() -> Holding:
    return Holding()


@pytest.fixture
async def upstream(holding: Holding) -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream(holding).serve() as served:
        yield served


@pytest.fixture
async def url(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[str]:
    write_policy(tmp_path, "one", 'extends = "default"\n[limits]\nstreams = 1\n')
    write_policy(tmp_path, "many", 'extends = "default"\n')
    few = write_policy(tmp_path, "few", f'extends = "default"\n[limits]\nstreams = {AT_ONCE}\n')
    async with proxying(f"{upstream.url}/v1", policy=str(few), policies=tmp_path) as served:
        yield served


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as opened:
        yield opened


def request(body: bytes = STREAMED, path: str = CHAT) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


async def begin(stack: AsyncExitStack, url: str, path: str = CHAT) -> RawClient:
    """A stream that has begun, for as long as the stack is open."""
    raw = await stack.enter_async_context(connect(url))
    await raw.send(request(path=path))
    await raw.until(b"\n\n")
    return raw


@pytest.mark.parametrize("under_way", [CHAT, "/v1/responses"], ids=["managed", "relayed"])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"], ids=["managed beyond", "relayed beyond"])
async def test_one_request_too_many_is_told_at_once_to_come_again(
    url: str, client: httpx2.AsyncClient, holding: Holding, under_way: str, path: str
) -> None:
    async with AsyncExitStack() as stack:
        streams = [await begin(stack, url, under_way) for _ in range(AT_ONCE)]
        for _ in range(3):
            refused = await client.post(path, content=HELLO)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-request-id"]
        assert holding.begun == AT_ONCE, "nobody waits in a queue"
        holding.go_on.set()
        for stream in streams:
            assert DONE in await stream.until(DONE)
        assert (await client.post(path, content=HELLO)).status_code == 200, "there is room again"


async def test_a_refusal_does_not_wait_for_the_body(url: str) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await begin(stack, url)
        late = await stack.enter_async_context(connect(url))
        await late.send(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{" % CHAT.encode()
        )
        answer = await late.until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nconnection: close\r\n" in answer


async def test_a_client_that_leaves_makes_room(
    url: str, client: httpx2.AsyncClient, holding: Holding
) -> None:
    async with AsyncExitStack() as stack:
        await begin(stack, url)
        async with AsyncExitStack() as leaving:
            await begin(leaving, url)
            assert (await client.post(CHAT, content=HELLO)).status_code == 503
        holding.go_on.set()
        async with asyncio.timeout(PATIENCE):
            while (await client.post(CHAT, content=HELLO)).status_code != 200:
                pass


async def test_a_requests_own_policy_is_stricter_and_never_looser(
    url: str, client: httpx2.AsyncClient, holding: Holding
) -> None:
    async with AsyncExitStack() as stack:
        await begin(stack, url)
        refused = await client.post(CHAT, content=HELLO, headers={"X-Unabridged-Policy": "one"})
        assert refused.status_code == 503
        await begin(stack, url)
        refused = await client.post(CHAT, content=HELLO, headers={"X-Unabridged-Policy": "many"})
        assert refused.status_code == 503


async def test_probes_metrics_and_the_admin_api_answer_under_full_load(
    url: str, client: httpx2.AsyncClient
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await begin(stack, url)
        await client.post(CHAT, content=HELLO)
        await client.post("/v1/embeddings", content=HELLO)
        for path in ("/healthz", "/readyz", "/metrics", "/unabridged/v1/sessions"):
            assert (await client.get(path, headers=ADMIN)).status_code == 200
        counted = (await client.get("/metrics")).text
        for route in ("chat", "relay"):
            assert f'unabridged_requests_total{{route="{route}",status="503"}} 1.0' in counted


# --- many ---

LITTLE = 256
"""Files that a process may open where nobody has raised that."""
KIB = 1024
A_STREAM = 128 * KIB
"""Bytes of memory that a stream may take, its two connections included."""
UNREAD = 4 * KIB * KIB
"""Bytes that may wait for a client that does not read."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def memory(served: Serving) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * KIB


@linux
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.soak)])
async def test_many_streams_at_once_are_each_whole_and_small(
    holding: Holding, upstream: FakeUpstream, tmp_path: Path, count: int
) -> None:
    """On one worker, all under way at the same time, started where few files may be open."""
    room = 2 * count + LITTLE
    if not may_open(room):
        pytest.skip(f"the system does not let a process open {room} files")
    async with AsyncExitStack() as stack:
        with file_limit(LITTLE):
            served = await stack.enter_async_context(
                serving(tmp_path, "--store", "memory://", "--upstream", f"{upstream.url}/v1")
            )
        stack.enter_context(file_limit(room))
        before = memory(served)
        streams = [await begin(stack, served.url) for _ in range(count)]
        assert holding.begun == count
        assert memory(served) - before < count * A_STREAM
        holding.go_on.set()
        answers = await asyncio.gather(*(stream.until(b"\r\n0\r\n\r\n") for stream in streams))
        rest = b"".join(map(sse, events(said(ANSWER))[1:])) + DONE
        assert {CHUNK_SIZE.sub(b"", answer) for answer in answers} == {rest}


@linux
async def test_clients_that_do_not_read_cost_little_memory(tmp_path: Path) -> None:
    """What they do not take, the upstream cannot send, however long it goes on."""
    count, written = 20, [0]
    event = b": %b\n\n" % (b"x" * 60_000)

    async def pour(exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            await ok(exchange)
            return
        await exchange.body()
        await exchange.start(200, [EVENTS])
        while True:
            await exchange.chunk(event)
            written[0] += len(event)

    async with (
        FakeUpstream(pour).serve() as upstream,
        serving(tmp_path, "--store", "memory://", "--upstream", f"{upstream.url}/v1") as served,
        AsyncExitStack() as stack,
    ):
        before = memory(served)
        for number in range(count):
            raw = await stack.enter_async_context(connect(served.url))
            await raw.send(request(path=CHAT if number % 2 else "/v1/responses"))
        last = -1
        while last < written[0]:
            last = written[0]
            await asyncio.sleep(0.2)
        assert last > 0
        assert memory(served) - before < count * UNREAD
