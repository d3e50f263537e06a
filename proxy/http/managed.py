"""``POST /v1/chat/completions``: the one route whose requests are managed. Raw ASGI, because it is hot.

This module moves bytes and answers errors. :mod:`proxy.engine.pipeline` decides what is sent upstream, and
:mod:`proxy.engine.recording.recorder` stores the turn.
"""

from functools import cache, partial

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy import tracing
from proxy.core.budget.budget import Stage
from proxy.core.conversation.extension import MEMBER
from proxy.core.policy.policy import Candidates
from proxy.engine.append.append import Appends, StoredAnswer
from proxy.engine.flow import Exchange, Incoming, PeekedResponse
from proxy.engine.intake.naming import Envelope, readable
from proxy.engine.pipeline import Pipeline
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.recorder import UNREAD
from proxy.engine.state import SessionSnapshot, SummaryCounts, role_texts
from proxy.errors import RequestTooLarge, UnabridgedError
from proxy.http.answer import send_answer, send_appended
from proxy.http.asgi import (
    CLIENT,
    ClientDisconnected,
    decode_body,
    read_body,
    send_error,
    with_headers,
)
from proxy.http.limits import Admission, Permit
from proxy.http.request_head import HEAD, RequestHead, content_length, request_id, to_client
from proxy.telemetry import Metrics, log_content, log_fault, log_request, log_state, logs_state

_ROUTE = "chat"
_ANSWERED, _FAILED = 200, 500


class _RequestContext(msgspec.Struct, kw_only=True):
    """One request in progress, and what is logged of it once it is over."""

    scope: Scope
    receive: Receive
    send: Send
    began: float
    status: int = 0
    is_read: bool = False
    """Whether the request's body has been read."""
    body: bytes = b""
    """The request's body as it came; kept only in shadow."""
    has_begun: bool = False
    """Whether the head of the answer was sent to the client."""
    forwarded: float = 0.0
    """When the request was sent upstream; monotonic seconds, like `began`."""
    fields: dict[str, object] = {}


class Managed:
    """The managed route; ``relay`` serves requests that the client or a policy wants unmanaged."""

    def __init__(
        self,
        pipeline: Pipeline,
        appends: Appends,
        relay: ASGIApp,
        metrics: Metrics,
        admission: Admission,
        *,
        logs_content: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._appends = appends
        self._relay = relay
        self._policies = admission.policies
        self._now = pipeline.recorder.clock.monotonic
        self._metrics = metrics
        self._stages = {stage: metrics.stages.labels(stage.value) for stage in Stage}
        self._requests = cache(partial(metrics.requests.labels, _ROUTE))
        self._admission = admission
        self._logs_content = logs_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = _RequestContext(scope=scope, receive=receive, send=send, began=self._now())
        try:
            if await self._manage(scope[HEAD], context):
                return
        except ClientDisconnected:
            context.status = context.status or 499
        except UnabridgedError as error:
            context.fields["code"] = error.code
            await self._refuse(error, context, unread=None if context.is_read else receive)
        except Exception as error:  # noqa: BLE001 - the edge: whatever fails, the client is answered
            log_fault("a managed request failed", error)
            await self._refuse(UnabridgedError(), context)
        seconds = round(self._now() - context.began, 4)
        self._requests(context.status).inc()
        log_request(
            route=_ROUTE, status=context.status, seconds=seconds, id=request_id(scope), **context.fields
        )

    async def _manage(self, head: RequestHead, context: _RequestContext) -> bool:
        """Answer a request; return True if it was relayed, as a header, its policy or shadow may require."""
        scope, receive = context.scope, context.receive
        if head.warning:
            context.send = with_headers(context.send, (b"x-unabridged-warning", head.warning))
        candidates = head.candidates(self._policies.in_force)
        # If the policy cuts nothing and the client sends its history, the body need not be read.
        if head.mode == "off" or (head.mode != "append" and candidates.are_off):
            await self._relay(scope, receive, context.send)
            return True
        body = scope[CLIENT].whole_body()
        context.is_read = body is not None
        envelope = head.envelope  # its errors are reported before more is read
        with Permit(self._admission, candidates.streams) as permit:
            self._metrics.streams_active += 1
            try:
                incoming = await self._read(head, envelope, body, candidates, context, permit)
                is_relayed = incoming is None
                if incoming is not None:
                    with scope[CLIENT]:
                        is_relayed = not await self._answer(head.mode, incoming, context, permit)
            finally:
                self._metrics.streams_active -= 1
            if is_relayed:
                permit.release_slot()
                await self._relay(scope, receive, context.send)
        return is_relayed

    async def _refuse(
        self, error: UnabridgedError, context: _RequestContext, unread: Receive | None = None
    ) -> None:
        """Answer with an error; an answer that has begun stays incomplete, which closes the connection."""
        if not context.has_begun:
            context.status = error.status
            await send_error(context.scope, context.send, error, unread=unread)

    async def _read(
        self,
        head: RequestHead,
        envelope: Envelope,
        body: bytes | None,
        candidates: Candidates,
        context: _RequestContext,
        permit: Permit,
    ) -> Incoming | None:
        """Read and decode the whole body; None where the model's policy has the request relayed."""
        limit = candidates.body
        if body is None:
            announced = content_length(context.scope["headers"])
            body = await read_body(context.receive, limit, permit, announced)
            context.is_read = True
        else:
            if len(body) > limit:
                raise RequestTooLarge
            permit.take(len(body))
        decoded = body
        if head.encoding:
            decoded = await decode_body(body, head.encoding, limit)
            permit.take(len(decoded) if decoded is not body else 0)
        options = candidates.options
        is_one, dialect = len(options) == 1, self._pipeline.dialect
        candidate = options[0] if is_one else candidates.chosen(dialect.model_of(decoded))
        policy, is_shadow = candidate.policy, head.mode == "shadow"
        if head.mode != "append" and policy.strategy.name == "off":
            context.scope[CLIENT].put_back(body)
            return None
        if len(decoded) > policy.limits.body:
            raise RequestTooLarge
        if is_shadow:
            context.body, policy = body, policy.in_shadow
        return Incoming(envelope, decoded, policy, self._now(), candidate.by, is_shadow=is_shadow)

    async def _answer(self, mode: str, incoming: Incoming, context: _RequestContext, permit: Permit) -> bool:
        """Answer a request; False for a shadow request that cannot be decided on, and is to be relayed.

        In shadow the client gets an error only if the proxy's own member of the body is wrong.
        """
        pipeline = self._pipeline
        if mode == "append":
            async with self._appends.turn(incoming) as turn:
                if isinstance(turn, StoredAnswer):
                    await self._replay(incoming, turn, context)
                else:
                    permit.take(len(turn.body) - len(incoming.body))
                    await self._send(await pipeline.prepare(turn), context)
            return True
        try:
            exchange = await pipeline.prepare(incoming)
        except Exception as error:  # law 7: in shadow a fault of ours costs only the record
            is_ours = not isinstance(error, UnabridgedError)
            if mode == "full" or (not is_ours and (error.param or "").partition(".")[0] == MEMBER):
                raise
            if is_ours:
                log_fault("a request could not be decided on in shadow", error)
            context.scope[CLIENT].put_back(context.body)
            return False
        await self._send(exchange, context)
        return True

    async def _replay(self, incoming: Incoming, stored: StoredAnswer, context: _RequestContext) -> None:
        caller = incoming.envelope.caller
        kind = b"text/event-stream" if stored.is_stream else b"application/json"
        headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(stored.body)),
            (b"idempotent-replayed", b"true"),
            (b"x-request-id", request_id(context.scope).encode()),
            (b"x-unabridged-session", (caller.name or "").encode("latin-1", "replace")),
        ]
        context.fields |= {"session": caller.key and caller.key.id_for(caller.tenant), "replayed": True}
        context.status, context.has_begun = _ANSWERED, True
        await context.send({"type": "http.response.start", "status": _ANSWERED, "headers": headers})
        await context.send({"type": "http.response.body", "body": stored.body, "more_body": False})

    async def _send(self, exchange: Exchange, context: _RequestContext) -> None:
        pipeline, metrics = self._pipeline, self._metrics
        metrics.is_degraded = "store" in exchange.degraded
        metrics.overhead.observe(self._now() - exchange.request.incoming.arrived)
        with pipeline.foreground:
            try:
                if exchange.request.incoming.appended is not None:
                    await pipeline.recorder.announce(exchange)
                context.forwarded = self._now()
                sent = await pipeline.answer(exchange)
            finally:  # not before: a request that was refused for its length has been pruned again
                self._tell(exchange, context)
            try:
                await self._pass_on(exchange, sent, context)
            finally:
                await sent.response.aclose()

    def _tell(self, exchange: Exchange, context: _RequestContext) -> None:
        """Tell metrics, log and trace what was sent."""
        request, decision = exchange.request, exchange.decision
        self._stages[decision.stage].inc()
        context.fields |= {
            "session": request.session.id,
            "model": request.model.label,
            "stage": decision.stage,
            "epoch": decision.number,
            "sent": exchange.sent_tokens,
            "full": exchange.full_tokens,
            "budget": request.budget.tokens,
        }
        if request.incoming.is_shadow:
            context.fields["mode"] = "shadow"
        if (trace := tracing.current()) is not None:
            trace.span.set_attributes(
                {
                    tracing.CONVERSATION: request.session.id,
                    tracing.REQUEST_MODEL: request.model.label,
                    tracing.POLICY: request.incoming.policy.name,
                    tracing.STAGE: decision.stage.value,
                    tracing.EPOCH: decision.number,
                    tracing.CUT: decision.plan.cut,
                    tracing.MODE: "shadow" if request.incoming.is_shadow else None,
                    tracing.SENT: exchange.sent_tokens,
                    tracing.FULL: exchange.full_tokens,
                    tracing.BUDGET: request.budget.tokens,
                    tracing.DEGRADED: exchange.degraded or None,
                }
            )

    async def _pass_on(self, exchange: Exchange, sent: PeekedResponse, context: _RequestContext) -> None:
        """Pass the answer on, and have its turn recorded even if it breaks off."""
        context.status, is_answered = sent.response.status, sent.response.status == _ANSWERED
        incoming, collector = exchange.request.incoming, Collector(self._pipeline.dialect, sent)
        if is_answered and not collector.is_readable:
            exchange.degraded.append(UNREAD)

        async def begin() -> None:
            headers = to_client(sent.response.headers, same_body=not collector.is_stream, is_managed=True)
            headers += exchange.response_headers()
            context.has_begun = True
            await context.send({"type": "http.response.start", "status": context.status, "headers": headers})
            self._metrics.first_chunk.observe(self._now() - context.forwarded)

        try:
            chunks, send, adds_usage = sent.chunks(), context.send, exchange.adds_usage
            if incoming.appended is not None and is_answered:
                acknowledged = partial(self._appends.wait_saved, exchange, collector)
                await send_appended(chunks, collector, begin, send, acknowledged, adds_usage=adds_usage)
            else:
                await begin()
                tells_end = not incoming.is_shadow
                await send_answer(chunks, collector, send, adds_usage=adds_usage, tells_end=tells_end)
        finally:
            if is_answered:
                self._pipeline.recorder.begin(exchange, collector)
            if exchange.degraded:
                context.fields["degraded"] = exchange.degraded
            if logs_state():
                self._log_state(exchange, context)
            if self._logs_content:
                log_content(request_id(context.scope), exchange.body, collector.answer().message)

    def _log_state(self, exchange: Exchange, context: _RequestContext) -> None:
        """Log the state of the request's session, as the request was sent."""
        request, log = exchange.request, exchange.decision.epoch_log
        try:
            sent = self._pipeline.dialect.read_body(exchange.body, request.incoming.policy.limits.messages)
            state = SessionSnapshot(
                id=request.session.id,
                session=readable(request.session.name),
                exchanges=request.chain.exchanges,
                summarised=SummaryCounts.of(log.epochs if log else ()),
                functions=[*exchange.tool_cache],
                messages=role_texts(sent.messages, request.chain.dialect),
            )
            log_state(request_id(context.scope), state.lines(with_content=self._logs_content))
        except Exception as error:  # noqa: BLE001 - the answer goes on
            log_fault("the state of a session could not be logged", error)


# --- tracing: one span for each request, from its head to the end of its answer; its steps are inside ---


class TracedRoute:
    """Wraps the managed route, with a trace in force for each of its requests."""

    def __init__(self, app: ASGIApp, tracer: tracing.Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = self._tracer.request(scope["headers"])

        async def send_response(message: Message) -> None:
            if message["type"] == "http.response.start":
                status: int = message["status"]
                span.set_attributes({tracing.STATUS: status})
                if status >= _FAILED:
                    span.fail(str(status))
            await send(message)

        with tracing.within(tracing.Trace(span)):
            await self._app(scope, receive, send_response)
