"""Spans by OpenTelemetry's SDK, which sends them to a collector by OTLP over HTTP, in a thread of its own.

OpenTelemetry's own variables set the collector's address, further resource attributes, and the sampling rate.
Spans that cannot be sent are dropped: no request waits for a collector.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from threading import Thread

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace import Tracer as Spans
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.tracing import ERROR, METHOD, REQUEST, ROUTE, Attributes, Headers, Value

_NAME = "unabridged"
_SECOND = 10**9
_PATIENCE = 1.0
"""Seconds to wait for the collector when the last spans are sent."""
_CARRIED = (b"traceparent", b"tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()


class OpenTelemetrySpan:
    """Implements :class:`proxy.tracing.Span`."""

    def __init__(self, spans: Spans, span: Span) -> None:
        self._spans = spans
        self._span = span

    def child(
        self, name: str, attributes: Attributes, *, is_call: bool = False, seconds: float = 0.0
    ) -> OpenTelemetrySpan:
        span = self._spans.start_span(
            name,
            set_span_in_context(self._span, Context()),
            SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
            _without_none(attributes),
            start_time=time.time_ns() - int(seconds * _SECOND),
        )
        return OpenTelemetrySpan(self._spans, span)

    def set_attributes(self, attributes: Attributes) -> None:
        self._span.set_attributes(_without_none(attributes))

    def fail(self, error: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR))
        self._span.set_attribute(ERROR, error)

    def end(self, at: float | None = None) -> None:
        self._span.end(None if at is None else int(at * _SECOND))

    def continued(self, headers: Headers) -> Headers:
        carried: dict[str, str] = {}
        _PROPAGATOR.inject(carried, set_span_in_context(self._span, Context()))
        ours = [(name.encode(), value.encode("latin-1")) for name, value in carried.items()]
        return [*(pair for pair in headers if pair[0].lower() not in _CARRIED), *ours]


class OpenTelemetryTracer:
    """Implements :class:`proxy.tracing.Tracer`."""

    def __init__(self, provider: TracerProvider, exporter: OTLPSpanExporter) -> None:
        self._provider = provider
        self._exporter = exporter
        self._spans = provider.get_tracer(_NAME)

    def request(self, headers: Headers) -> OpenTelemetrySpan:
        carried: Mapping[str, str] = {
            name.lower().decode(): value.decode("latin-1")
            for name, value in headers
            if name.lower() in _CARRIED
        }
        method, _, route = REQUEST.partition(" ")
        said = {METHOD: method, ROUTE: route}
        context = _PROPAGATOR.extract(carried, Context())
        return OpenTelemetrySpan(self._spans, self._spans.start_span(REQUEST, context, SpanKind.SERVER, said))

    async def aclose(self) -> None:
        # Nothing breaks off a request that is under way, so it is left to a thread that nobody waits for.
        ending = Thread(target=self._provider.shutdown, name="traces", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, _PATIENCE)
        if ending.is_alive():
            self._exporter.shutdown()  # stops its retries


def open_tracer() -> OpenTelemetryTracer:
    """Make a tracer as the environment says, without connecting."""
    logging.getLogger("opentelemetry.util.re").addFilter(_without_header)
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: _NAME}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryTracer(provider, exporter)


def _without_header(record: logging.LogRecord) -> bool:
    """Leave a malformed header of the environment out of the record about it: it may be a credential."""
    record.msg, record.args = str(record.msg).replace("%s", "…"), None
    return True


def _without_none(attributes: Attributes) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}
