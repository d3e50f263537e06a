"""Tracing of managed requests: the names of spans and attributes, and the span in force.

Names are those of OpenTelemetry's semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai), for HTTP and for databases; names of our own
begin with `unabridged.`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final, Protocol

from proxy.core.dialects.answers import Answer, Usage

# --- spans ---

REQUEST: Final = "POST /v1/chat/completions"
PLAN: Final = "plan"
STORE: Final = "store"
"""Followed by the name of the store's operation."""
CHAT: Final = "chat"
"""Followed by the model's name: one call of the upstream."""
ROUND: Final = "hidden round"
SUMMARY: Final = "summary"
MEMORY: Final = "memory"
PROOF: Final = "proof"

# --- attributes: of the conventions ---

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR: Final = "error.type"
DATABASE: Final = "db.system.name"
DATABASE_OPERATION: Final = "db.operation.name"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
"""The session's id, which does not reveal whose it is."""
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
"""Input tokens that the provider read from its cache."""

# --- attributes: our own ---

STAGE: Final = "unabridged.stage"
EPOCH: Final = "unabridged.epoch"
POLICY: Final = "unabridged.policy"
CUT: Final = "unabridged.cut"
"""Number of cut messages."""
MODE: Final = "unabridged.mode"
SENT: Final = "unabridged.tokens.sent"
FULL: Final = "unabridged.tokens.full"
"""Tokens of the whole conversation."""
BUDGET: Final = "unabridged.tokens.budget"
CACHED: Final = "unabridged.tokens.cached"
DEGRADED: Final = "unabridged.degraded"

Value = str | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
"""Attributes with the value None are left out."""
Headers = Sequence[tuple[bytes, bytes]]


class Span(Protocol):
    """A timed operation, reported to a collector once it is over."""

    def child(
        self, name: str, attributes: Attributes, *, is_call: bool = False, seconds: float = 0.0
    ) -> Span:
        """Begin a span within this one, ``seconds`` ago; ``is_call``: it is a call of another server."""
        ...

    def set_attributes(self, attributes: Attributes) -> None: ...

    def fail(self, error: str) -> None:
        """Mark the span as failed with this class of errors."""
        ...

    def end(self, at: float | None = None) -> None:
        """End the span; ``at`` is in seconds since 1970, by default now."""
        ...

    def continued(self, headers: Headers) -> Headers:
        """Return the headers with W3C's `traceparent` and `tracestate` of this span, for a call within it."""
        ...


class Tracer(Protocol):
    """Reports requests to a collector."""

    def request(self, headers: Headers) -> Span:
        """Begin the span of a request that has come in; it continues the trace that the headers name."""
        ...

    async def aclose(self) -> None:
        """Report the spans that are left."""
        ...


class Trace:
    """A span in force, and the newest call of a model that was made within it."""

    def __init__(self, span: Span, whole: Trace | None = None) -> None:
        """``whole`` is the enclosing trace, if this one's calls also count as calls of that."""
        self.span = span
        self._whole = whole
        self._call: Span | None = None

    def called(self, call: Span) -> None:
        """Set the newest call."""
        self._call = call
        if self._whole is not None:
            self._whole.called(call)

    def answered(self, answer: Answer) -> None:
        """Add an answer's attributes to the span and to the newest call."""
        usage = answer.usage or Usage()
        self.span.set_attributes({CACHED: usage.cached_tokens})
        if self._call is not None:
            self._call.set_attributes(
                {
                    RESPONSE_ID: answer.id,
                    RESPONSE_MODEL: answer.model,
                    FINISH_REASONS: (answer.finish_reason,) if answer.finish_reason else None,
                    INPUT_TOKENS: usage.prompt_tokens,
                    OUTPUT_TOKENS: usage.completion_tokens,
                    CACHED_TOKENS: usage.cached_tokens,
                }
            )


_in_force: ContextVar[Trace | None] = ContextVar("trace", default=None)

current = _in_force.get
"""The trace in force; None where nothing is traced."""


def step(name: str, *, is_aside: bool = False) -> AbstractContextManager[None]:
    """Return a context with a child span in force; without effect where nothing is traced.

    Calls made in a step that ``is_aside`` are not part of the answer to the client.
    """
    trace = _in_force.get()
    if trace is None:
        return UNTRACED
    return within(Trace(trace.span.child(name, {}), None if is_aside else trace))


UNTRACED: Final = nullcontext()
"""A step where nothing is traced."""


@contextmanager
def within(trace: Trace) -> Generator[None]:
    """Put a trace in force, and end its span on leaving."""
    token = _in_force.set(trace)
    try:
        yield
    except BaseException as error:
        trace.span.fail(type(error).__name__)
        raise
    finally:
        _in_force.reset(token)
        trace.span.end()
