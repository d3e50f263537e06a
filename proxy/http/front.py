"""The front door: which part of the house serves a path. Raw ASGI, because every request passes here."""

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import MethodNotAllowed, UnabridgedError
from proxy.http.asgi import send_error, with_headers
from proxy.http.origins import EXEMPT, Origins, is_preflight, readable, send_preflight
from proxy.http.request_head import Heads, check_path, nothing_at, route_of
from proxy.telemetry import log_event, log_request

_API = "/v1/"
_TWICE = "/v1/v1/"
_CHAT = "/v1/chat/completions"
_MOST_ROUTES = 100
"""Which the log tells of once: ids that look like words do not fill it."""
_ID = "unabridged.request_id"
_prefix = secrets.token_hex(6)
_numbers = count(1)


def request_id(scope: Scope) -> str:
    """The id of a request, the same each time it is asked for; random by process, then counted."""
    found: str | None = scope.get(_ID)
    if found is None:
        found = scope[_ID] = f"req-{_prefix}-{next(_numbers)}"
    return found


def refusals() -> dict[Any, Callable[[Request, Exception], JSONResponse]]:
    """Answers in our errors' shape, by Starlette's status: wrong paths, wrong methods, faults."""

    def handler(error: Callable[[str], UnabridgedError]) -> Callable[[Request, Exception], JSONResponse]:
        def answer(request: Request, told: Exception) -> JSONResponse:
            found = error(request.scope["path"])
            headers = {**_allowed(told), "X-Request-Id": request_id(request.scope)}
            return JSONResponse(found.body(), found.status, headers)

        return answer

    return {
        404: handler(nothing_at),
        405: handler(lambda _: MethodNotAllowed()),
        500: handler(lambda _: UnabridgedError()),
    }


def _allowed(told: Exception) -> dict[str, str]:
    """The methods that a path answers, where it does not answer one (RFC 9110 15.5.6)."""
    return dict(told.headers or {}) if isinstance(told, HTTPException) else {}


class Front:
    """``POST /v1/chat/completions`` is managed, everything else under ``/v1/`` relayed, the rest is ours.

    Paths are compared as they are decoded, once; ``origins`` says who may ask.
    """

    def __init__(
        self, managed: ASGIApp, relay: ASGIApp, own: ASGIApp, origins: Origins, heads: Heads
    ) -> None:
        self._managed = managed
        self._relay = relay
        self._own = own
        self._origins = origins
        self._heads = heads
        self._relayed: set[str] = set()
        """Routes of which the log has told."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, path = scope["type"], scope.get("path", "")
        if kind == "lifespan":
            await self._own(scope, receive, send)
            return
        try:
            check_path(scope.get("raw_path") or path.encode())
            origin = None if path in EXEMPT else self._origins.check(scope)
        except UnabridgedError as error:
            if kind != "http":
                raise
            await send_error(send, error, request_id(scope))
            log_request(route="front", status=error.status, id=request_id(scope), code=error.code)
            return
        if origin is not None:
            if is_preflight(scope):
                await send_preflight(scope, send, origin)
                return
            send = readable(send, origin)
        part = self._part(scope)
        if part is self._relay and kind == "http" and (warning := self._heads.warning(scope["headers"])):
            send = with_headers(send, (b"x-unabridged-warning", warning))
        await part(scope, receive, send)

    def _part(self, scope: Scope) -> ASGIApp:
        path = scope["path"]
        if path == _CHAT and scope["type"] == "http" and scope["method"] == "POST":
            return self._managed
        if path.startswith(_API) and not path.startswith(_TWICE):
            self._tell(scope)
            return self._relay
        return self._own

    def _tell(self, scope: Scope) -> None:
        """Say once of each route that nothing is cut there."""
        route = route_of(scope["path"])
        if route not in self._relayed and len(self._relayed) < _MOST_ROUTES:
            self._relayed.add(route)
            log_event("relayed, not managed", method=scope.get("method", ""), route=route)
