"""Relay bytes unchanged between client and upstream: every `/v1/…` that is not managed (laws 1 and 7).

Bodies stream both ways, one chunk at a time, so each side sets the other's pace. When a client leaves, its
upstream connection is closed. Once an answer has begun its status cannot be changed, so a fault after that
closes the connection: the client sees a truncation, never a short answer that looks complete.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from proxy.errors import NotBuilt, UnabridgedError, UpstreamError
from proxy.http.answer import pump
from proxy.http.asgi import CLIENT, ClientDisconnected, Upload, send_error
from proxy.http.limits import Admission, Permit
from proxy.http.request_head import (
    announces_body,
    asks_for_websocket,
    check_credentials,
    to_client,
    to_upstream,
    upstream_target,
)
from proxy.ports import Upstream, UpstreamResponse
from proxy.telemetry import log_warning

_NO_LENGTH = 304
"""A status whose Content-Length describes a body that the response does not carry (RFC 9110 15.4.5)."""


class Relay:
    """An ASGI application that relays to `upstream`; `answered` is called with each answer's status."""

    def __init__(self, upstream: Upstream, admission: Admission, answered: Callable[[int], None]) -> None:
        self._upstream = upstream
        self._admission = admission
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        upload = Upload(receive, scope[CLIENT], has_body=announces_body(scope["headers"]))
        try:
            with Permit(self._admission):
                await self._relay(scope, upload, send)
        except ClientDisconnected:
            return
        except UnabridgedError as error:
            self._answered(error.status)
            await send_error(scope, send, error, unread=receive if upload.unread else None)

    async def _relay(self, scope: Scope, upload: Upload, send: Send) -> None:
        target = upstream_target(scope["raw_path"], scope["query_string"])
        headers = scope["headers"]
        check_credentials(headers)
        if asks_for_websocket(headers):
            raise NotBuilt("WebSockets are not relayed.")
        response: UpstreamResponse | None = None
        try:
            with scope[CLIENT]:
                sent = to_upstream(headers), upload.body()
                response = await self._upstream.send(scope["method"], target, *sent)
                status = response.status
                self._answered(status)
                fields = to_client(response.headers, same_body=status != _NO_LENGTH)
                await send({"type": "http.response.start", "status": status, "headers": fields})
                try:
                    await pump(response.chunks(), send)
                except UpstreamError as error:
                    # The answer stays incomplete; the server then closes the connection, which tells the
                    # client.
                    log_warning("the upstream broke off in mid-answer", code=error.code)
        finally:
            if response is not None:
                await response.aclose()
