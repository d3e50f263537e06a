"""Sends traces to a collector, if the environment names one; only then is OpenTelemetry imported."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from urllib.parse import urlsplit

from proxy import tracing
from proxy.config import PORTS
from proxy.core.dialects.dialect import Dialect
from proxy.ports import Upstream, UpstreamResponse
from proxy.telemetry import log_warning

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Standard environment variables of OpenTelemetry."""
_FAILED = 400
_NAME = 80
"""Most characters of a model's name: clients choose the names."""


def open_tracer() -> tracing.Tracer | None:
    """Make a tracer; None where the environment names no collector or turns tracing off."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        tracer: tracing.Tracer = import_module("proxy.adapters.tracing.otlp").open_tracer()
    except ModuleNotFoundError:
        log_warning(
            "a collector of traces is named, and a package is missing: pip install 'unabridged[otel]'"
        )
        return None
    return tracer


def traced_store(timed: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """Wrap a callback that gets operation and seconds of each store call; also add a span to the trace."""

    def traced(operation: str, seconds: float) -> None:
        timed(operation, seconds)
        if (trace := tracing.current()) is not None:
            attributes = {tracing.DATABASE: "redis", tracing.DATABASE_OPERATION: operation}
            trace.span.child(f"{tracing.STORE} {operation}", attributes, is_call=True, seconds=seconds).end()

    return traced


class TracedUpstream:
    """An upstream whose chat requests are traced; other requests, such as the list of models, are not."""

    def __init__(self, upstream: Upstream, url: str, dialect: Dialect) -> None:
        """Trace requests to ``upstream`` at ``url``, written in ``dialect``."""
        parts = urlsplit(url)
        self._upstream = upstream
        self._dialect = dialect
        self._attributes: tracing.Attributes = {
            tracing.OPERATION: tracing.CHAT,
            tracing.PROVIDER: "openai",  # the API's owner; the actual provider behind it is unknown
            tracing.SERVER_ADDRESS: parts.hostname,
            tracing.SERVER_PORT: parts.port or PORTS[parts.scheme],
        }
        self.aclose = upstream.aclose

    async def send(
        self,
        method: str,
        target: str,
        headers: tracing.Headers,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        trace = tracing.current()
        is_chat = target.partition("?")[0] == self._dialect.path
        if trace is None or not is_chat or not isinstance(body, bytes):
            return await self._upstream.send(method, target, headers, body, at_root=at_root)
        model = self._dialect.model_of(body)[:_NAME]
        call = trace.span.child(
            f"{tracing.CHAT} {model}", {**self._attributes, tracing.REQUEST_MODEL: model}, is_call=True
        )
        trace.called(call)
        try:
            response = await self._upstream.send(
                method, target, call.continued(headers), body, at_root=at_root
            )
        except BaseException as error:
            call.fail(type(error).__name__)
            call.end()
            raise
        call.set_attributes({tracing.STATUS: response.status})
        if response.status >= _FAILED:
            call.fail(str(response.status))
        return _TracedResponse(response, call)


class _TracedResponse:
    """An answer that ends its span when it is closed."""

    def __init__(self, response: UpstreamResponse, call: tracing.Span) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._call = call

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.chunks():
                yield chunk
        except Exception as error:
            self._call.fail(type(error).__name__)
            raise

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            # The caller reads the answer now, and adds its attributes to the span before that ends.
            asyncio.get_running_loop().call_soon(self._call.end, time.time())
