"""One span for each managed request, from its head to the end of its answer; its steps are inside."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.engine.flow import Exchange
from proxy.tracing import (
    BUDGET,
    CONVERSATION,
    CUT,
    DEGRADED,
    EPOCH,
    FULL,
    MODE,
    POLICY,
    REQUEST_MODEL,
    SENT,
    STAGE,
    STATUS,
    Attributes,
    Trace,
    Tracer,
    within,
)

_FAILED = 500


class TracedRoute:
    """Wraps an application, with a trace in force for each of its requests."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = self._tracer.request(scope["headers"])

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                span.tell({STATUS: status})
                if status >= _FAILED:
                    span.fail(str(status))
            await send(message)

        with within(Trace(span)):
            await self._app(scope, receive, told)


def told_of(exchange: Exchange) -> Attributes:
    """Return the attributes of a request that is ready to be sent."""
    request, decision = exchange.request, exchange.decision
    return {
        CONVERSATION: request.session.id,
        REQUEST_MODEL: request.model.label,
        POLICY: request.incoming.policy.name,
        STAGE: decision.stage.value,
        EPOCH: decision.number,
        CUT: decision.plan.cut,
        MODE: "shadow" if request.incoming.is_shadow else None,
        SENT: exchange.sent_tokens,
        FULL: exchange.full_tokens,
        BUDGET: request.budget.tokens,
        DEGRADED: exchange.degraded or None,
    }
