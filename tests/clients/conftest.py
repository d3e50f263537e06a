"""One proxy for all clients, before one scripted upstream; each client has a key of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.clients.programs import BUDGET
from tests.clients.serving import log_of, serving
from tests.support.clients import write_policy
from tests.support.servers import FakeUpstream
from tests.support.upstreams import Model

POLICY = f'extends = "balanced"\n[budget]\ntokens = {BUDGET}\n'


CUTS = (
    '"a conversation has reached warn"',
    '"emergency: a conversation is over its budget"',
    '"a summary is missing"',
)
"""Warnings about conversations that are to be cut, as these are."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def upstream() -> AsyncGenerator[FakeUpstream]:
    async with FakeUpstream().serve() as served:
        yield served


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def proxy(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    policy = write_policy(tmp_path_factory.mktemp("policies"), "small", POLICY)
    data = tmp_path_factory.mktemp("d")
    async with serving(f"{upstream.url}/v1", data, "--policy", str(policy)) as url:
        yield url
    expected = '"level":"info"', *CUTS
    lines = log_of(data).read_text().splitlines()
    unexpected = [line for line in lines if not any(each in line for each in expected)]
    assert unexpected == [], "the proxy complained"


@pytest.fixture
def model(upstream: FakeUpstream) -> Model:
    """A model for one test: it has a window, and refuses what the real API would refuse."""
    scripted = Model(window=BUDGET, url=f"{upstream.url}/v1")
    upstream.script = scripted.serve_one
    return scripted


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory for a client, without anybody's settings."""
    return tmp_path
