from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Any

import httpx2
import pytest

from proxy.adapters.stores import open_store
from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.upstream import HttptoolsUpstream, HttpxUpstream
from proxy.ports import MemoryStore, Upstream
from tests.support.certificates import Authority
from tests.support.cluster import Nodes, three_nodes
from tests.support.outbound import outbound_proxy
from tests.support.servers import PATIENCE, FakeUpstream
from tests.support.stores import (
    SERVERS,
    HandClock,
    Site,
    embedded_valkey,
    free_port,
    keys_without_ttl,
    redis_server_command,
    run,
    serving,
    valkey_command,
    wait_until,
)


def pytest_report_header() -> list[str]:
    """Which stores the contract is held against, where it is not all of them."""
    if "redis" in SERVERS:
        return []
    return ["the contract suite runs on memory and Valkey: no redis-server is installed"]


@pytest.fixture(scope="session")
def valkey_url() -> Generator[str]:
    with embedded_valkey() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Generator[str]:
    command = redis_server_command()
    assert command is not None, "nothing asks for it where there is none"
    with serving(command) as server:
        yield server.url


@pytest.fixture(scope="session")
def cluster() -> Generator[Nodes]:
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def cluster_url() -> Generator[str]:
    """A node of a cluster, with all of its slots, reached as a server alone is."""
    bus = ["--bind", "127.0.0.1", "--cluster-port", str(free_port())]
    with serving(valkey_command(), "--cluster-enabled", "yes", *bus) as server:
        server.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in server.run("CLUSTER", "INFO"))
        yield server.url


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=SERVERS)
def site(request: pytest.FixtureRequest) -> Generator[Site]:
    """A store without keys, on one server or on three, which must leave none without a time to live."""
    if request.param == "cluster":
        nodes: Nodes = request.getfixturevalue("cluster")
        site = Site(nodes.url, [node.server.url for node in nodes.nodes])
    else:
        url: str = request.getfixturevalue(f"{request.param}_url")
        site = Site(url, [url])
    for server in site.servers:
        run(server, "FLUSHALL")
    yield site
    assert keys_without_ttl(*site.servers) == []


@pytest.fixture(params=SERVERS)
def server_url(request: pytest.FixtureRequest) -> Generator[str]:
    """A server without keys, which must leave none without a time to live."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    run(url, "FLUSHALL")
    yield url
    assert keys_without_ttl(url) == []


Store = InProcessStore | RedisStore


@contextmanager
def emptied(request: pytest.FixtureRequest, kind: str, clock: HandClock) -> Generator[Store]:
    """A store without sessions; `sealed` is a Valkey whose records are encrypted."""
    if kind == "memory":
        url, servers = "memory://", []
    elif kind == "cluster":
        nodes: Nodes = request.getfixturevalue("cluster")
        url, servers = nodes.url, [node.server.url for node in nodes.nodes]
    else:
        url = request.getfixturevalue(f"{kind.replace('sealed', 'valkey')}_url")
        servers = [url]
    for server in servers:
        run(server, "FLUSHALL")
    keyring = Keyring(["a secret"], lambda: kind == "sealed")
    yield open_store(url, clock, 2.0, 1.0, keyring)
    assert keys_without_ttl(*servers) == []


@pytest.fixture(params=["memory", *SERVERS, "sealed"])
async def store(request: pytest.FixtureRequest, clock: HandClock) -> AsyncGenerator[Store]:
    """Each of the stores."""
    with emptied(request, request.param, clock) as opened:
        yield opened
        await opened.aclose()


@pytest.fixture
def memories(store: Store) -> MemoryStore:
    """Each of the stores of memories."""
    return store.memories


@pytest.fixture
async def server() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serve() as serving:
        yield serving


@pytest.fixture(params=["httptools", "httpx", "httpx, forwarded", "httpx, tunnelled"])
async def make(
    request: pytest.FixtureRequest, server: FakeUpstream, authority: Authority
) -> AsyncIterator[Callable[..., Upstream]]:
    """Makes an upstream before a server that a test scripts: over each client, and by an outbound proxy."""
    tls = authority.serving("127.0.0.1") if "tunnelled" in request.param else None
    async with outbound_proxy(server.port, tls) as proxy:

        def made(path: str = "", **options: Any) -> Upstream:
            if request.param == "httptools":
                return HttptoolsUpstream(server.url + path, **options)
            by = httpx2.Proxy(proxy.url) if "," in request.param else None
            scheme, rest = server.url.split(":", 1)
            if tls is not None:
                scheme, options = "https", {"tls": authority.trusting(), **options}
            return HttpxUpstream(f"{scheme}:{rest}{path}", proxy=by, **options)

        server.proxies.append(proxy)
        yield made
        assert bool(proxy.carried) == ("," in request.param and server.requests != [])


@pytest.fixture
async def upstream(make: Callable[..., Upstream]) -> AsyncIterator[Upstream]:
    async with aclosing(make("/base/v1", connect_timeout=PATIENCE, read_timeout=0.6)) as made:
        yield made


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
