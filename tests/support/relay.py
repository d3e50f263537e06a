"""The relay between a scripted upstream and real clients."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
from starlette.types import Scope

from proxy.adapters.upstream.httpx import HttpxUpstream
from proxy.http.limits import Admission, BodyMemory
from proxy.http.relay import Relay
from tests.support.servers import (
    FakeUpstream,
    serve,
)

REQUEST_ID = "req_1"
MIB = 2**20


@dataclass
class Stage:
    """A relay, the upstream behind it, and a client before it."""

    url: str
    upstream: FakeUpstream
    client: httpx2.AsyncClient


@contextmanager
def relay_to(base_url: str, read_timeout: float = 1.0) -> Generator[str]:
    upstream = HttpxUpstream(base_url, connect_timeout=1.0, read_timeout=read_timeout)
    relay = Relay(upstream, Admission(lambda: 1000, BodyMemory(0)), request_id, lambda _: None)
    with serve(relay, upstream.aclose) as url:
        yield url


def request_id(scope: Scope) -> str:
    return REQUEST_ID


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((line, "Host: proxy", *headers, "", "")).encode("latin-1")
