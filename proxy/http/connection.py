"""A client's connection, as uvicorn's server makes and ends it: requests in, answers out in the same order.

It stands for uvicorn's own protocol, without what nobody here asks for; each request with its answer is one
of `proxy.http.cycle`. A connection on which nothing is asked for `timeout_keep_alive` seconds is closed. One
timer looks after that; it is not set anew for each request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from proxy.http.cycle import Cycle

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from proxy.http.headers import Header


_MOMENT = 0.5
"""Seconds that a first request, or the rest of a head, may take when serving ends."""
_ASGI = {"version": "3.0", "spec_version": "2.3"}


@lru_cache(maxsize=64)
def _parts(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a request's target, decoded and as it is, and its query."""
    target = httptools.parse_url(url)
    path = target.path.decode("ascii")
    return unquote(path) if "%" in path else path, target.path, target.query or b""


class Connection(asyncio.Protocol):
    """What a connection does with requests whose heads were found to be good."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        self.app: ASGIApp = cast("Any", config).loaded_app
        self.loop = _loop or asyncio.get_event_loop()
        self.cycle: Cycle
        """That of the newest request; unset before the first."""
        self.running: Cycle | None = None
        """The one that is being answered, or was the last."""
        self.pipeline: deque[tuple[Cycle, Scope]] = deque()
        """What was asked while another is being answered."""
        self.idle_since: float | None = None
        """Monotonic seconds; None while something is asked or answered."""
        self._keep_alive = config.timeout_keep_alive
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_ending = False
        self._root_path = config.root_path
        self._app_state = app_state
        self._server = server_state
        self._held_by = cast("set[Connection]", server_state.connections)

    # --- asyncio.Protocol, and uvicorn's server ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.flow = FlowControl(self.transport)
        self._held_by.add(self)
        self._ends: dict[str, Any] = {
            "scheme": "https" if is_ssl(self.transport) else "http",
            "server": get_local_addr(self.transport),
            "client": get_remote_addr(self.transport),
        }
        self.await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left, or was sent away."""
        self._held_by.discard(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self.running is not None:
            self.running.leave()
            self.running = None
            self.pipeline.clear()
            del self.cycle  # which knows this connection: nothing is left for the garbage collector to find
        self.flow.resume_writing()

    def pause_writing(self) -> None:
        """The client does not take what is written."""
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """End the connection, after the answer that is under way, or to a request that is on its way."""
        self._is_ending = True
        if self.is_answering:
            self.cycle.keep_alive = False
        elif self.running is None or self.idle_since is None:  # nobody opens a connection to say nothing
            self.loop.call_later(_MOMENT, self._end)
        else:
            self.transport.close()

    def _end(self) -> None:
        """No request has come after all."""
        if not self.is_answering:
            self.transport.close()

    # --- requests ---

    def begin(
        self,
        parser: httptools.HttpRequestParser,
        url: bytes,
        headers: list[Header],
        *,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        """Have a request whose head is here answered, after those before it."""
        scope = self._scope(parser, url, headers)
        self.cycle = cycle = Cycle(
            self.transport,
            self.flow,
            self.on_response_complete,
            version=scope["http_version"],
            method=scope["method"],
            keep_alive=keep_alive and not self._is_ending,
            expects_continue=expects_continue,
        )
        if self.is_answering:
            self.flow.pause_reading()
            self.pipeline.append((cycle, scope))
        else:
            self._start(cycle, scope)

    @property
    def is_answering(self) -> bool:
        """Whether an answer is under way."""
        return self.running is not None and not self.running.is_complete

    def _scope(self, parser: httptools.HttpRequestParser, url: bytes, headers: list[Header]) -> Scope:
        path, raw_path, query = _parts(url)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": parser.get_http_version(),
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": self._root_path,
            "headers": headers,
            "state": self._app_state.copy(),
            **self._ends,
        }

    def _start(self, cycle: Cycle, scope: Scope) -> None:
        self.running = cycle
        task = self.loop.create_task(cycle.run(self.app, scope))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    # --- between requests ---

    def on_response_complete(self) -> None:
        """Answer the next, if it has come."""
        self._server.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start(*self.pipeline.popleft())
        else:
            self.await_request()

    def await_request(self) -> None:
        """Nothing is asked or answered; that may last so long."""
        self.idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._keep_alive, self._check_idle)

    def _check_idle(self) -> None:
        self._idle_timer = None
        if self.idle_since is None:
            return
        end = self.idle_since + self._keep_alive
        if self.loop.time() >= end:
            self.transport.close()
        else:
            self._idle_timer = self.loop.call_at(end, self._check_idle)
