"""Every metric, and the one log line of a request. Nothing else declares a metric.

No session, key or content in a label or in the log.
"""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from functools import cache, partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from proxy.log_lines import Lines

_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PATIENT = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """All metrics, in a registry of their own so that two apps in one process do not mix.

    ``cached`` says how many bytes this process remembers of sessions.
    """

    def __init__(self, cached: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, descriptors and CPU, under their usual names
        self._of_requests()
        self._of_contexts()
        self._of_what_is_kept(cached)

    def _of_requests(self) -> None:
        """How many there are, and how long they take."""
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("unabridged_requests", "Requests answered.", "route", "status")
        self._relayed = cache(partial(self.requests.labels, "relay"))
        self.overhead = histogram(
            "unabridged_overhead_seconds",
            "From a request's last byte to its forwarding: what the proxy itself takes.",
            _QUICK,
        )
        self.first_chunk = histogram(
            "unabridged_time_to_first_chunk_seconds",
            "From forwarding to the head of the answer, for a stream to its first event.",
            _PATIENT,
        )
        self.streams_active = 0
        gauge("unabridged_streams_active", "Answers on their way.").set_function(lambda: self.streams_active)
        gauge("unabridged_tasks", "Tasks that are alive.").set_function(_tasks)

    def _of_contexts(self) -> None:
        """What is made of what clients send."""
        counter = self._counter
        self.stages = counter("unabridged_stage", "Managed requests by stage.", "stage")
        tokens = counter("unabridged_tokens", "Prompt tokens received and sent.", "kind")
        self.tokens_received, self.tokens_sent = tokens.labels("received"), tokens.labels("sent")
        self.cached_tokens = counter(
            "unabridged_cached_tokens", "Prompt tokens that the upstream served from its cache."
        )
        self.epochs = counter("unabridged_epochs", "Epochs begun, by stage.", "stage")
        self.cut_messages = counter("unabridged_cut_messages", "Messages newly cut, by reason.", "reason")
        self.summaries = counter(
            "unabridged_summaries", "Summaries written, and why others were not.", "result"
        )
        self.recalls = counter(
            "unabridged_recalls", "Calls of the recall tool, by how they were answered.", "by"
        )
        self.tool_cache = counter(
            "unabridged_tool_cache", "Tool results that came in, and what became of them.", "result"
        )

    def _of_what_is_kept(self, cached: Callable[[], int]) -> None:
        """The store, what is remembered of it, and the policies' files."""
        counter, gauge = self._counter, self._gauge
        gauge("unabridged_cache_bytes", "What this process remembers of sessions.").set_function(cached)
        self.store = self._histogram("unabridged_store_seconds", "Time of store calls.", _QUICK, "op")
        self.is_degraded = False
        gauge("unabridged_degraded", "1 while the store cannot be used.").set_function(
            lambda: self.is_degraded
        )
        self.lost_turns = counter(
            "unabridged_lost_turns", "Turns whose writing failed (the next body heals them)."
        )
        self.policy_reloads = counter(
            "unabridged_policy_reloads",
            "Policies whose files were edited: loaded, or refused and kept as they were.",
            "result",
        )
        self.policies_stale = gauge(
            "unabridged_policies_stale", "Policies whose files cannot be used as they are now."
        )

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(name, told, labels, registry=self.registry)

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(name, told, registry=self.registry)

    def _histogram(self, name: str, told: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, told, labels, buckets=buckets, registry=self.registry)

    def relayed(self, status: int) -> None:
        """Count a request that was relayed without being managed."""
        self._relayed(status).inc()

    def exposition(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _tasks() -> int:
    """Tasks of the event loop that asks; 0 where none does."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


_log = logging.getLogger("proxy")
_server_log = logging.getLogger("uvicorn.error")


def set_up_logging(level: int = logging.INFO) -> None:
    """Send our log lines and the server's to standard error, one JSON object each."""
    out = Lines()
    for log in (_log, _server_log):
        log.handlers = [out]
        log.propagate = False
    _log.setLevel(level)


_REQUEST = logging.LogRecord(_log.name, logging.INFO, "", 0, "request", None, None)
"""What the records of all requests have in common: where in our code they are made is no news."""


def log_request(**fields: object) -> None:
    """The one line of a request: ids, numbers and outcomes."""
    if _log.isEnabledFor(logging.INFO):
        # A record's constructor asks for the thread, the process and the task: as much work as the line.
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__.update(_REQUEST.__dict__, created=time.time(), fields=fields)
        _log.handle(record)


def log_event(what: str, **fields: object) -> None:
    """Something that went as it should, and that an operator may wait for."""
    _log.info(what, extra={"fields": fields})


def log_content(request_id: str, request: bytes, answer: bytes | None) -> None:
    """What was sent and said, at debug level; only where the operator asked for it."""
    fields = {"id": request_id, "request": request.decode(errors="replace")}
    _log.debug("content", extra={"fields": fields | {"answer": (answer or b"").decode(errors="replace")}})


def log_fault(what: str, error: BaseException) -> None:
    """A fault of our own, told by its class and its place; its text may hold a request's content."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error(what, extra={"fields": {"error": type(error).__name__, "frames": frames}})


def log_warning(what: str, **fields: object) -> None:
    """Something that an operator should look at."""
    _log.warning(what, extra={"fields": fields})
