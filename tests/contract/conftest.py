from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager

import pytest

from proxy.adapters.redis.sealing import Keyring
from proxy.adapters.remembering import RememberingStore, TellingStore
from proxy.adapters.stores import open_store
from proxy.lru import Memory
from proxy.ports import SessionStore
from tests.cluster import Nodes, three_nodes
from tests.stores import (
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


@pytest.fixture(scope="session")
def valkey_url() -> Generator[str]:
    with embedded_valkey() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Generator[str]:
    command = redis_server_command()
    if command is None:
        pytest.skip("no redis-server is installed: the suite runs on memory and Valkey")
    with ExitStack() as stack:
        yield stack.enter_context(serving(command)).url


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


@pytest.fixture(params=["valkey", "redis", "cluster"])
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
    assert [name for server in site.servers for name in keys_without_ttl(server)] == []


@pytest.fixture(params=["valkey", "redis", "cluster"])
def server_url(request: pytest.FixtureRequest) -> Generator[str]:
    """A server without keys, which must leave none without a time to live."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    run(url, "FLUSHALL")
    yield url
    assert keys_without_ttl(url) == []


PLAIN = ["memory", "valkey", "redis", "cluster", "sealed"]


@contextmanager
def emptied(request: pytest.FixtureRequest, kind: str, clock: HandClock) -> Generator[TellingStore]:
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
    assert [name for server in servers for name in keys_without_ttl(server)] == []


@pytest.fixture(params=PLAIN)
async def plain(request: pytest.FixtureRequest, clock: HandClock) -> AsyncGenerator[TellingStore]:
    """Each of the stores that are themselves the place where sessions are kept."""
    with emptied(request, request.param, clock) as opened:
        yield opened
        await opened.aclose()


@pytest.fixture(params=[*PLAIN, "remembering memory", "remembering valkey"])
async def store(request: pytest.FixtureRequest, clock: HandClock) -> AsyncGenerator[SessionStore]:
    """Each of the stores."""
    kind: str = request.param.removeprefix("remembering ")
    with emptied(request, kind, clock) as opened:
        store = opened if kind == request.param else RememberingStore(opened, clock, Memory())
        yield store
        await store.aclose()
