"""Traces for a collector, where the environment names one; its library is imported there alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module

from proxy.adapters.tracing.upstream import TracedUpstream
from proxy.telemetry import log_warning
from proxy.tracing import DATABASE, DATABASE_OPERATION, STORE, Tracer, current

__all__ = ["TracedUpstream", "open_tracer", "traced_store"]

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Variables of every program that speaks OpenTelemetry."""


def open_tracer() -> Tracer | None:
    """Who tells a collector of requests; None where the environment names none, or has it switched off."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        tracer: Tracer = import_module("proxy.adapters.tracing.otlp").open_tracer()
    except ModuleNotFoundError:
        log_warning(
            "a collector of traces is named, and a package is missing: pip install 'unabridged[otel]'"
        )
        return None
    return tracer


def traced_store(timed: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """What is told of a store's calls (what for, and how many seconds), and tells the trace in force too."""

    def told(operation: str, seconds: float) -> None:
        timed(operation, seconds)
        if (trace := current()) is not None:
            attributes = {DATABASE: "redis", DATABASE_OPERATION: operation}
            trace.span.child(f"{STORE} {operation}", attributes, is_call=True, seconds=seconds).end()

    return told
