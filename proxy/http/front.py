"""The front door: which part of the house serves a path. Raw ASGI, because every request passes here."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import MethodNotAllowed, UnabridgedError, Unavailable
from proxy.http.asgi import request_id, send_error, with_headers
from proxy.http.origins import EXEMPT, Origins, is_preflight, readable, send_preflight
from proxy.http.request_head import Heads, check_path, nothing_at, route_of
from proxy.http.server.drain import Drain
from proxy.telemetry import log_event, log_request

_API = "/v1/"
_TWICE = "/v1/v1/"
_CHAT = "/v1/chat/completions"
_MOST_ROUTES = 100
"""Which the log tells of once: ids that look like words do not fill it."""
_CLOSE = (b"connection", b"close")


def refusals() -> dict[Any, Callable[[Request, Exception], JSONResponse]]:
    """Answers in our errors' shape, by Starlette's status: wrong paths, wrong methods, faults."""

    def answering(error: Callable[[str], UnabridgedError]) -> Callable[[Request, Exception], JSONResponse]:
        def answer(request: Request, raised: Exception) -> JSONResponse:
            found = error(request.scope["path"])
            # The methods that a path answers, where it does not answer one (RFC 9110 15.5.6).
            allowed = dict(raised.headers or {}) if isinstance(raised, HTTPException) else {}
            headers = {**allowed, "X-Request-Id": request_id(request.scope)}
            return JSONResponse(found.body(), found.status, headers)

        return answer

    return {
        404: answering(nothing_at),
        405: answering(lambda _: MethodNotAllowed()),
        500: answering(lambda _: UnabridgedError()),
    }


class Front:
    """``POST /v1/chat/completions`` is managed, everything else under ``/v1/`` relayed, the rest is ours.

    Paths are compared as they are decoded, once; ``origins`` says who may ask, ``drain`` counts what is under
    way.
    """

    def __init__(
        self,
        managed: ASGIApp,
        relay: ASGIApp,
        own: ASGIApp,
        *,
        origins: Origins,
        heads: Heads,
        drain: Drain,
    ) -> None:
        self._managed = managed
        self._relay = relay
        self._own = own
        self._origins = origins
        self._heads = heads
        self._drain = drain
        self._relayed: set[str] = set()
        """Routes of which the log has told."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._own(scope, receive, send)
            return
        drain = self._drain
        drain.under_way += 1
        try:
            if drain.has_begun:
                if drain.refuses_new and scope["path"].startswith(_API):
                    await send_error(scope, send, Unavailable("The proxy is ending."), unread=receive)
                    return
                send = with_headers(send, _CLOSE)
            try:
                part, send = self._part(scope, send)
            except UnabridgedError as error:
                if scope["type"] != "http":
                    raise
                await send_error(scope, send, error)
                log_request(route="front", status=error.status, id=request_id(scope), code=error.code)
                return
            await part(scope, receive, send)
        except asyncio.CancelledError:
            if not drain.is_over:
                raise  # else the server has said so already
        finally:
            drain.leave()

    def _part(self, scope: Scope, send: Send) -> tuple[ASGIApp, Send]:
        """Who answers a request, and how. Raises InvalidPath, HostForbidden, OriginForbidden."""
        kind, path = scope["type"], scope.get("path", "")
        check_path(scope.get("raw_path") or path.encode())
        origin = None if path in EXEMPT else self._origins.check(scope)
        if origin is not None:
            if is_preflight(scope):
                return partial(send_preflight, origin), send
            send = readable(send, origin)
        if path == _CHAT and kind == "http" and scope["method"] == "POST":
            return self._managed, send
        if not path.startswith(_API) or path.startswith(_TWICE):
            return self._own, send
        route = route_of(path)
        if route not in self._relayed and len(self._relayed) < _MOST_ROUTES:
            self._relayed.add(route)
            log_event("relayed, not managed", method=scope.get("method", ""), route=route)
        if kind == "http" and (warning := self._heads.warning(scope["headers"])):
            send = with_headers(send, (b"x-unabridged-warning", warning))
        return self._relay, send
