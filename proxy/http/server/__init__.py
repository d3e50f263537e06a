"""HTTP/1.1 as we serve it: the wire guard, connections, and an orderly end."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from proxy.http.server.guard import WireGuard

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than clients' pools keep it, so that they close first."""
BACKLOG = 2048
SHUTDOWN_SECONDS = 1
"""Seconds for requests still unanswered when uvicorn stops: streams were drained before."""


def server_config(
    app: ASGIApp | Callable[[], ASGIApp], *, request_timeout: float, workers: int = 1, factory: bool = False
) -> uvicorn.Config:
    """Return uvicorn's configuration; ``request_timeout`` in seconds.

    It adds no Server and Date headers: answers come from the upstream, which has set its own.
    """
    return uvicorn.Config(
        app,
        factory=factory,
        workers=workers,
        interface="asgi3",
        http=cast("Any", partial(WireGuard, request_timeout=request_timeout)),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
