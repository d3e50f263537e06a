"""The front door: which part of the house serves a path. Raw ASGI, because every request passes here."""

import secrets
from collections.abc import Callable
from itertools import count
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import MethodNotAllowed, NotFound, UnabridgedError
from proxy.http.asgi import send_error
from proxy.http.paths import check_path

_API = "/v1/"
_CHAT = "/v1/chat/completions"
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

    def handler(error: UnabridgedError) -> Callable[[Request, Exception], JSONResponse]:
        return lambda request, told: JSONResponse(
            error.body(), error.status, {**_allowed(told), "X-Request-Id": request_id(request.scope)}
        )

    mistakes = {404: NotFound(), 405: MethodNotAllowed(), 500: UnabridgedError()}
    return {status: handler(error) for status, error in mistakes.items()}


def _allowed(told: Exception) -> dict[str, str]:
    """The methods that a path answers, where it does not answer one (RFC 9110 15.5.6)."""
    return dict(told.headers or {}) if isinstance(told, HTTPException) else {}


class Front:
    """``POST /v1/chat/completions`` is managed, everything else under ``/v1/`` relayed, the rest is ours."""

    def __init__(self, managed: ASGIApp, relay: ASGIApp, own: ASGIApp) -> None:
        self._managed = managed
        self._relay = relay
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._own(scope, receive, send)
            return
        try:
            check_path(scope.get("raw_path") or scope["path"].encode())
        except UnabridgedError as error:
            if kind == "http":
                await send_error(send, error, request_id(scope))
                return
            raise
        path = scope["path"]
        if path == _CHAT and kind == "http" and scope["method"] == "POST":
            await self._managed(scope, receive, send)
        elif path.startswith(_API):
            await self._relay(scope, receive, send)
        else:
            await self._own(scope, receive, send)
