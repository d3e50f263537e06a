"""The relay between a scripted upstream and real clients."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2

from proxy.adapters.upstream import HttpxUpstream
from proxy.http.relay import Relay
from tests.support.admission import admission
from tests.support.servers import PATIENCE, FakeUpstream, serve

MIB = 2**20


@dataclass
class Stage:
    """A relay, the upstream behind it, and a client before it."""

    url: str
    upstream: FakeUpstream
    client: httpx2.AsyncClient


@contextmanager
def relay_to(base_url: str, read_timeout: float = PATIENCE) -> Generator[str]:
    upstream = HttpxUpstream(base_url, connect_timeout=PATIENCE, read_timeout=read_timeout)
    relay = Relay(upstream, admission(), lambda _: None)
    with serve(relay, upstream.aclose) as url:
        yield url


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((line, "Host: proxy", *headers, "", "")).encode("latin-1")
