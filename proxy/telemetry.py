"""All metrics, and logging: JSON or text on standard error, in as few writes as possible.

No other module declares a metric. Neither labels nor the log hold sessions, keys or content.
"""

import asyncio
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import TextIO

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PATIENT = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """All metrics, in a registry of their own so that two apps in one process do not mix.

    ``cached`` returns the bytes that this process's caches hold.
    """

    def __init__(self, cached: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, descriptors and CPU, under their usual names
        self.streams_active, self.is_degraded = 0, False
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._declare_requests()
        self._declare_contexts()
        self._declare_money()
        self._declare_store(cached)
        self._declare_files()

    def _declare_requests(self) -> None:
        """How many requests there are, and how long they take."""
        self.requests = self._counter("unabridged_requests", "Requests answered.", ("route", "status"))
        self._relayed = cache(partial(self.requests.labels, "relay"))
        self.overhead = self._histogram(
            "unabridged_overhead_seconds",
            "From a request's last byte to its forwarding: what the proxy itself takes.",
            buckets=_QUICK,
        )
        self.first_chunk = self._histogram(
            "unabridged_time_to_first_chunk_seconds",
            "From forwarding to the head of the answer, for a stream to its first event.",
            buckets=_PATIENT,
        )
        self._gauge("unabridged_streams_active", "Answers on their way.").set_function(
            lambda: self.streams_active
        )
        self._gauge("unabridged_tasks", "Tasks that are alive.").set_function(_tasks)

    def _declare_contexts(self) -> None:
        """What happens to the conversations that clients send."""
        self.stages = self._counter("unabridged_stage", "Managed requests by stage.", ("stage",))
        tokens = self._counter("unabridged_tokens", "Prompt tokens received and sent.", ("kind",))
        self._tokens_received, self._tokens_sent = tokens.labels("received"), tokens.labels("sent")
        self._shadow_tokens = tokens.labels("shadow_received"), tokens.labels("shadow_sent")
        self.cached_tokens = self._counter(
            "unabridged_cached_tokens", "Prompt tokens that the provider read from its cache."
        )
        self.epochs = self._counter("unabridged_epochs", "Epochs begun, by stage.", ("stage",))
        self.cut_messages = self._counter(
            "unabridged_cut_messages", "Messages newly cut, by reason.", ("reason",)
        )
        self.summaries = self._counter(
            "unabridged_summaries", "Summaries written, and why others were not.", ("result",)
        )
        self.recalls = self._counter(
            "unabridged_recalls", "Calls of the recall tool, by how they were answered.", ("by",)
        )
        self.tool_cache = self._counter(
            "unabridged_tool_cache", "Tool results that came in, and what became of them.", ("result",)
        )

    def _declare_money(self) -> None:
        """What requests cost, what doing nothing would have cost, and what is found out about cuts."""
        text = "Money by the price list, and what doing nothing would have cost."
        self.dollars = self._counter("unabridged_dollars", text, ("kind",))
        self.would_have_failed = self._counter(
            "unabridged_would_have_failed",
            "Requests whose whole conversation would not have fitted the model's window.",
        )
        self.unpriced = self._counter(
            "unabridged_price_unknown", "Requests, and calls of our own, whose price nobody knows."
        )
        self.regret = self._counter(
            "unabridged_regret",
            "Messages that were asked for again while they were cut.",
            ("policy", "signal", "kind", "retention"),
        )
        self.proof = self._counter(
            "unabridged_proof",
            "Answers asked for once more, by what was asked: same, different, or why not compared.",
            ("policy", "arm", "result"),
        )

    def _declare_store(self, cached: Callable[[], int]) -> None:
        """The store, the caches before it, and what it remembers beyond sessions."""
        self._gauge("unabridged_cache_bytes", "What this process remembers of sessions.").set_function(cached)
        self.store = self._histogram(
            "unabridged_store_seconds", "Time of store calls.", ("op",), buckets=_QUICK
        )
        self._stored = cache(self.store.labels)
        self._gauge("unabridged_degraded", "1 while the store cannot be used.").set_function(
            lambda: self.is_degraded
        )
        self.lost_turns = self._counter(
            "unabridged_lost_turns", "Turns whose writing failed (the next body heals them)."
        )
        self.memory_items = self._gauge(
            "unabridged_memory_items", "What is remembered, by state.", ("state",)
        )
        self.memory_archive = self._gauge("unabridged_memory_archive_count", "Items that are in the archive.")
        self.memory_compression = self._gauge(
            "unabridged_memory_compression_rate", "What compressing archived items saved, as a share."
        )

    def _declare_files(self) -> None:
        """The files of policies and settings."""
        self.policy_reloads = self._counter(
            "unabridged_policy_reloads",
            "Policies whose files were edited: loaded, or refused and kept as they were.",
            ("result",),
        )
        self.policies_stale = self._gauge(
            "unabridged_policies_stale", "Policies whose files cannot be used as they are now."
        )
        self.settings_reloads = self._counter(
            "unabridged_settings_reloads",
            "Edits of the settings file: loaded, or refused and all kept as it was.",
            ("result",),
        )
        self.settings_stale = self._gauge(
            "unabridged_settings_stale", "1 while the settings file cannot be used as it is now."
        )

    def relayed(self, status: int) -> None:
        self._relayed(status).inc()

    def count_tokens(self, full: int, view: int, cached: int, *, is_shadow: bool) -> None:
        """Count prompt tokens as a request's bill has them: all that came in, those of the view, and cached.

        In shadow the view was not sent.
        """
        self.cached_tokens.inc(cached)
        self._tokens_received.inc(full)
        self._tokens_sent.inc(full if is_shadow else view)
        if is_shadow:
            received, sent = self._shadow_tokens
            received.inc(full)
            sent.inc(view)

    def stored(self, op: str, seconds: float) -> None:
        self._stored(op).observe(seconds)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _tasks() -> int:
    """Return the number of tasks of the running event loop; 0 where none runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


# --- logging ---

_log = logging.getLogger("proxy")
_server_log = logging.getLogger("uvicorn.error")
_collector_log = logging.getLogger("opentelemetry")


def set_up_logging(level: int = logging.INFO, form: str | None = None, worker: int | None = None) -> None:
    """Send our log lines and the server's to standard error, as `text` or `json`, with a worker's number."""
    out = Lines(form, worker)
    for log in (_log, _server_log, _collector_log):
        log.handlers = [out]
        log.propagate = False
    _log.setLevel(level)


_REQUEST = logging.LogRecord(_log.name, logging.INFO, "", 0, "request", None, None)
"""The common part of all request records; the place in the code is always the same."""


def log_request(**fields: object) -> None:
    """Log the one line of a request: ids, numbers and outcomes."""
    if _log.isEnabledFor(logging.INFO):
        # A record's constructor asks for the thread, the process and the task: as much work as the line.
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__.update(_REQUEST.__dict__, created=time.time(), fields=fields)
        _log.handle(record)


def log_event(what: str, **fields: object) -> None:
    """Log an expected event that an operator may look for."""
    _log.info(what, extra={"fields": fields})


def log_content(request_id: str, request: bytes, answer: bytes | None) -> None:
    """Log request and answer at debug level; only where the operator asked for it."""
    fields = {"id": request_id, "request": request.decode(errors="replace")}
    _log.debug("content", extra={"fields": fields | {"answer": (answer or b"").decode(errors="replace")}})


logs_state = partial(_log.isEnabledFor, logging.DEBUG)
"""Whether the states of sessions are logged."""


def log_state(request_id: str, state: str) -> None:
    """Log the state of a request's session at debug level, on lines of its own."""
    _log.debug("memory state", extra={"fields": {"id": request_id, "state": state}})


def log_fault(what: str, error: BaseException) -> None:
    """Log a fault of our own by its class and its place; its text may hold a request's content."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error(what, extra={"fields": {"error": type(error).__name__, "frames": frames}})


def log_error(what: str, **fields: object) -> None:
    """Log an error that is not a fault of ours."""
    _log.error(what, extra={"fields": fields})


def log_warning(what: str, **fields: object) -> None:
    """Log something that an operator should look at."""
    _log.warning(what, extra={"fields": fields})


# --- how lines are written ---

_PIPED = 4096
"""Bytes that a pipe takes in one piece (Linux), so that no other worker's lines come between."""
_PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)
"""Text that needs no quotes."""
_BELOW = ("frames", "exception")
"""Fields with several lines: in text form they are written below their line."""


class JSONLines(logging.Formatter):
    """One JSON object a line. ``worker`` is the number of this process among several."""

    _encode = msgspec.json.Encoder(enc_hook=str).encode

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker: dict[str, object] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(record)
        try:
            return self._encode(line).decode()
        except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, a number without end
            return json.dumps(line, default=str)

    def _line(self, record: logging.LogRecord) -> dict[str, object]:
        line: dict[str, object] = {
            "at": f"{_second(int(record.created))}.{int(record.created % 1 * 1000):03}+00:00",
            "level": record.levelname.lower(),
            **self._worker,
            "message": record.getMessage(),
        }
        fields: dict[str, object] | None = getattr(record, "fields", None)
        if fields is not None:
            line |= fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return line


class TextLines(JSONLines):
    """Text lines for people: one line for each record, with stack frames below it."""

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(record)
        level, message, at = line.pop("level"), str(line.pop("message")), line.pop("at")
        state = str(line.pop("state", ""))
        below = [str(line.pop(name)).rstrip("\n") for name in _BELOW if name in line]
        fields = [f"{name}={_quoted(value)}" for name, value in line.items()]
        shown = message if message.isprintable() else _quoted(message)
        first = " ".join([str(at), f"{level:<7}", shown, *fields])
        indented = ("    " + each.replace("\n", "\n    ") for each in below)
        return "\n".join([first, *indented, *([state] if state else [])])


def _quoted(value: object) -> str:
    """Return a value as text for a terminal, without control characters: clients choose some values."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if _PLAIN.fullmatch(text) or not isinstance(value, str):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


@lru_cache(maxsize=1)
def _second(at: int) -> str:
    """Return a second since 1970 in ISO 8601; cached, since many lines share it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Lines(logging.StreamHandler[TextIO]):
    """Writes the lines of one pass of the event loop at once, and warnings and errors immediately."""

    def __init__(self, form: str | None = None, worker: int | None = None) -> None:
        """``form`` is `text` or `json`; None is text on a terminal, else JSON."""
        super().__init__(sys.stderr)
        is_text = form == "text" if form else sys.stderr.isatty()
        self.setFormatter((TextLines if is_text else JSONLines)(worker))
        self._unwritten: list[str] = []
        self._held = 0
        """Bytes in ``_unwritten``."""
        self._flushed_by: asyncio.AbstractEventLoop | None = None
        """The loop that is about to write the lines; a loop that has ended never does."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 - whatever is wrong with a line, logging says so by itself
            self.handleError(record)
            return
        size = len(line.encode())
        if self._held + size > _PIPED:
            self.flush()
        self._unwritten.append(line)
        self._held += size
        try:
            loop = asyncio.get_running_loop() if record.levelno < logging.WARNING else None
        except RuntimeError:  # no running loop
            loop = None
        if loop is None:
            self.flush()
        elif loop is not self._flushed_by:
            self._flushed_by = loop
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the lines that are held; logging also calls this at the end of the process."""
        self.acquire()
        try:
            lines, self._unwritten, self._held, self._flushed_by = self._unwritten, [], 0, None
            if lines:
                self.stream.write("".join(lines))
                self.stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads standard error any more, or it is closed: there is nowhere to say so
        finally:
            self.release()
