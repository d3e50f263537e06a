"""The entry point: which application serves a path, and the proxy's own answers.

Raw ASGI, because every request passes here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import MethodNotAllowed, NotFound, StoreUnavailable, UnabridgedError, Unavailable
from proxy.http.asgi import send_error, with_headers
from proxy.http.drain import Drain
from proxy.http.origins import EXEMPT, Origins, is_preflight, send_preflight, with_cors
from proxy.http.request_head import HEAD, RequestHeads, asks_for_websocket, check_path, request_id
from proxy.ports import Policies, SessionStore
from proxy.telemetry import Metrics, log_event, log_request

_API = "/v1/"
_TWICE = "/v1/v1/"
_CHAT = "/v1/chat/completions"
_MOST_ROUTES = 100
"""Most routes that are logged, once each: ids that look like words cannot fill the log."""
_CLOSE = (b"connection", b"close")
_WORDS = frozenset(
    """
    assistants audio batches cancel chat checkpoints completions containers content conversations count_tokens
    edits embeddings events files fine_tuning generations images input_tokens items jobs messages models
    moderations parts realtime rerank responses runs search sessions speech steps threads transcriptions
    translations uploads variations vector_stores videos
    """.split()
)
"""Words in paths of OpenAI's API and similar ones; any other path segment counts as an id."""
_DEEPEST = 8
_VERSIONS = re.compile(r"(?:/v1)*(?=/|$)")


@dataclass(frozen=True)
class Front:
    """Sends ``POST /v1/chat/completions`` to ``managed``, others below ``/v1/`` to ``relay``.

    All other paths go to ``own``. Paths are compared in decoded form, decoded once. ``origins`` says which
    pages may ask, ``drain`` counts the requests in progress.
    """

    managed: ASGIApp
    relay: ASGIApp
    own: ASGIApp
    origins: Origins
    heads: RequestHeads
    drain: Drain
    _relayed: set[str] = field(default_factory=set[str])
    """Routes that were logged."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.own(scope, receive, send)
            return
        drain = self.drain
        drain.in_flight += 1
        try:
            if drain.has_begun:
                if drain.refuses_new and scope["path"].startswith(_API):
                    await send_error(scope, send, Unavailable("The proxy is ending."), unread=receive)
                    return
                send = with_headers(send, _CLOSE)
            try:
                part, send = self._part(scope, send)
            except UnabridgedError as error:
                await send_error(scope, send, error)
                log_request(route="front", status=error.status, id=request_id(scope), code=error.code)
                return
            await part(scope, receive, send)
        except asyncio.CancelledError:
            if not drain.is_over:
                raise  # else the server has reported it already
        finally:
            drain.leave()

    def _part(self, scope: Scope, send: Send) -> tuple[ASGIApp, Send]:
        """Return the application for a request, and its `send`.

        Raises InvalidPath, HostForbidden, OriginForbidden.
        """
        path = scope["path"]
        check_path(scope["raw_path"])
        if path == _CHAT and scope["method"] == "POST":
            head = scope[HEAD] = self.heads.of(scope)
            if not head.is_examined:
                head.origin, head.is_examined = self.origins.check(scope), True
            return self.managed, send if head.origin is None else with_cors(send, head.origin)
        origin = None if path in EXEMPT else self.origins.check(scope)
        if origin is not None:
            if is_preflight(scope):
                return partial(send_preflight, origin), send
            send = with_cors(send, origin)
        if not path.startswith(_API) or path.startswith(_TWICE):
            return self.own, send
        route = route_of(path)
        is_new = route not in self._relayed and len(self._relayed) < _MOST_ROUTES
        if is_new and not asks_for_websocket(scope["headers"]):
            self._relayed.add(route)
            log_event("relayed, not managed", method=scope["method"], route=route)
        if warning := self.heads.warning(scope["headers"]):
            send = with_headers(send, (b"x-unabridged-warning", warning))
        return self.relay, send


# --- the proxy's own answers: unknown paths, and what orchestrators and Prometheus ask ---


def route_of(path: str) -> str:
    """Return a path below `/v1` with ids replaced, such as `/v1/files/{id}/content`.

    The number of such routes is limited.
    """
    _, version, *segments = path.split("/", _DEEPEST)
    return "/".join(["", version, *(each if each in _WORDS else "{id}" for each in segments)])


def nothing_at(path: str) -> NotFound:
    """Return the error for an unknown path. Mostly a client's base URL has no `/v1`, or two."""
    route = route_of("/v1" + _VERSIONS.sub("", path, count=1))
    if route == "/v1" or route.startswith("/v1/{id}"):
        return NotFound()
    return NotFound(f"There is nothing here: use {route} (a base_url that ends in /v1, once).")


def exception_handlers() -> dict[Any, Callable[[Request, Exception], JSONResponse]]:
    """Return handlers that answer unknown paths, wrong methods and faults in our errors' shape, by status."""

    def answering(error: Callable[[str], UnabridgedError]) -> Callable[[Request, Exception], JSONResponse]:
        def answer(request: Request, raised: Exception) -> JSONResponse:
            found = error(request.scope["path"])
            # Names the methods that the path does answer (RFC 9110 15.5.6).
            allowed = dict(raised.headers or {}) if isinstance(raised, HTTPException) else {}
            headers = {**allowed, "X-Request-Id": request_id(request.scope)}
            return JSONResponse(found.body(), found.status, headers)

        return answer

    return {
        404: answering(nothing_at),
        405: answering(lambda _: MethodNotAllowed()),
        500: answering(lambda _: UnabridgedError()),
    }


_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(
    store: SessionStore,
    metrics: Metrics,
    drain: Drain,
    policies: Policies,
    counted: Callable[[], Awaitable[None]],
    *,
    is_shadow: bool,
) -> list[Route]:
    """Return the routes for probes and metrics.

    While the store is down, `/readyz` answers 200 if the default policy is open on faults, or in shadow.
    Stale policies are named, but make no server unready. ``counted`` updates the metrics that count what is
    remembered.
    """

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        if not drain.is_ready:
            return JSONResponse({"status": "starting or draining"}, 503)
        stale = policies.stale()
        also = {"stale_policies": stale} if stale else {}
        try:
            await store.ping()
        except StoreUnavailable as error:
            metrics.is_degraded = True
            is_open = is_shadow or policies.in_force.default.store.on_fault == "open"
            status = 200 if is_open else 503
            return JSONResponse({"status": "degraded", "store": error.message, **also}, status)
        metrics.is_degraded = False
        return JSONResponse({"status": "ready", **also})

    async def exposition(_: Request) -> Response:
        await counted()
        return Response(metrics.exposition(), media_type=_EXPOSITION)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", exposition)]
