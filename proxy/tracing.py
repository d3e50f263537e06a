"""What a trace tells of a managed request: the names of its spans and attributes, and the span in force.

The edge puts a :class:`Trace` in force for the time of a request; whatever happens within it, in tasks that
it starts too, finds it there. Where none is in force, because tracing is off, each place asks once and makes
nothing. No contents and no keys are told.

Names are those of OpenTelemetry's semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai), for HTTP and for databases; what they have no
name for begins with `unabridged.`.
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
"""With the name of what was asked of it."""
CHAT: Final = "chat"
"""With the model's name: one call of the upstream."""
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
"""The session's id, which says nothing of whose it is."""
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
"""Of the input, what the provider read from its cache."""

# --- attributes: our own ---

STAGE: Final = "unabridged.stage"
EPOCH: Final = "unabridged.epoch"
POLICY: Final = "unabridged.policy"
CUT: Final = "unabridged.cut"
"""Messages."""
MODE: Final = "unabridged.mode"
SENT: Final = "unabridged.tokens.sent"
FULL: Final = "unabridged.tokens.full"
"""Of the whole conversation."""
BUDGET: Final = "unabridged.tokens.budget"
CACHED: Final = "unabridged.tokens.cached"
DEGRADED: Final = "unabridged.degraded"

NAME: Final = 80
"""Characters of a model's name: clients choose them."""

Value = str | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
"""None is not told."""
Headers = Sequence[tuple[bytes, bytes]]


class Span(Protocol):
    """Something that takes time, told to a collector once it is over."""

    def child(
        self, name: str, attributes: Attributes, *, is_call: bool = False, seconds: float = 0.0
    ) -> Span:
        """A span within this one, which began so many ``seconds`` ago; ```is_call``` of another server."""
        ...

    def tell(self, attributes: Attributes) -> None: ...

    def fail(self, error: str) -> None:
        """It did not come to its end because of this class of errors."""
        ...

    def end(self, at: float | None = None) -> None:
        """``at`` in seconds since 1970, if not now."""
        ...

    def continued(self, headers: Headers) -> Headers:
        """The headers of a call that belongs to this span: W3C's `traceparent` and `tracestate` are its."""
        ...


class Tracer(Protocol):
    """Tells a collector of requests."""

    def request(self, headers: Headers) -> Span:
        """The span of a request that has come in; it goes on with the trace that its headers name."""
        ...

    async def aclose(self) -> None:
        """Tell what is left to be told."""
        ...


class Trace:
    """A span in force, and the newest call of a model that was made for what it is about."""

    def __init__(self, span: Span, whole: Trace | None = None) -> None:
        """``whole`` is what it is a part of, if its calls are those of that."""
        self.span = span
        self._whole = whole
        self._call: Span | None = None

    def called(self, call: Span) -> None:
        """Let this be the newest call."""
        self._call = call
        if self._whole is not None:
            self._whole.called(call)

    def answered(self, answer: Answer) -> None:
        """Tell of an answer where it was asked for."""
        usage = answer.usage or Usage()
        self.span.tell({CACHED: usage.cached_tokens})
        if self._call is not None:
            self._call.tell(
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
    """A part of what is traced; nothing where nothing is.

    The calls made in what ``is_aside`` are no part of the answer to the client.
    """
    trace = _in_force.get()
    if trace is None:
        return UNTRACED
    return within(Trace(trace.span.child(name, {}), None if is_aside else trace))


UNTRACED: Final = nullcontext()
"""A step of what nobody traces."""


@contextmanager
def within(trace: Trace) -> Generator[None]:
    """Put a trace in force, and end its span."""
    token = _in_force.set(trace)
    try:
        yield
    except BaseException as error:
        trace.span.fail(type(error).__name__)
        raise
    finally:
        _in_force.reset(token)
        trace.span.end()
