"""How uvicorn serves the proxy, in production and in tests."""

from __future__ import annotations

from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from proxy.http.server.guard import WireGuard

KEEP_ALIVE = 75
"""Seconds that an idle connection is kept: longer than clients' pools do, so that they close first."""
BACKLOG = 2048
LAST_WORDS = 1
"""Seconds for what is still unanswered when uvicorn stops: streams were drained before."""


class ServerConfig(uvicorn.Config):
    """No Server and Date headers: answers are the upstream's, and it has sent its own."""

    def __init__(
        self,
        app: ASGIApp | Callable[[], ASGIApp],
        *,
        request_timeout: float,
        workers: int = 1,
        factory: bool = False,
    ) -> None:
        super().__init__(
            app,
            factory=factory,
            workers=workers,
            interface="asgi3",
            http=WireGuard,
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
            timeout_graceful_shutdown=LAST_WORDS,
        )
        self.request_timeout = request_timeout
        """Seconds (`Pace`)."""
