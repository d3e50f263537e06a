"""``POST /v1/chat/completions``: the one route whose requests are managed. Raw ASGI, because it is hot.

This module moves bytes and answers errors; what a request becomes is :mod:`proxy.engine.request`'s business,
and what its turn leaves behind :mod:`proxy.engine.record`'s.
"""

from functools import cache, partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.budget import Stage
from proxy.core.policy import Policy
from proxy.engine.append import Appends
from proxy.engine.collector import Collector
from proxy.engine.exchange import Appended, Incoming, Prepared, Sent
from proxy.engine.hidden import Hidden
from proxy.engine.naming import Naming
from proxy.errors import UnabridgedError
from proxy.http.admission import Admission
from proxy.http.answer import send_answer, send_appended
from proxy.http.asgi import (
    CLIENT,
    ClientDisconnected,
    WhilePresent,
    decode_body,
    read_body,
    send_error,
    whole_body,
)
from proxy.http.body_memory import Share
from proxy.http.front import request_id as id_of
from proxy.http.headers import content_length, to_client
from proxy.http.heads import Head, Heads
from proxy.lru import Memory
from proxy.telemetry import Metrics, log_content, log_fault, log_request

_ROUTE = "chat"
_ANSWERED = 200
_NAME = 80
"""Characters of a model's name in the log: clients choose them."""


class _Passage(msgspec.Struct, kw_only=True):
    """One request on its way, and what is told of it once it is over."""

    scope: Scope
    receive: Receive
    send: Send
    began: float
    share: Share
    """Of the memory for bodies."""
    status: int = 0
    is_read: bool = False
    """Whether the request's body has been read."""
    has_begun: bool = False
    """Whether the client has the head of its answer."""
    forwarded: float = 0.0
    """When the request went to the upstream; monotonic seconds, as `began`."""
    fields: dict[str, object] = {}


class Managed:
    """The managed route; ``relay`` serves what a client or policy asks not to be managed."""

    def __init__(
        self,
        hidden: Hidden,
        appends: Appends,
        relay: ASGIApp,
        metrics: Metrics,
        admission: Admission,
        memory: Memory,
        *,
        logs_content: bool = False,
    ) -> None:
        self._engine = engine = hidden.engine
        self._heads = Heads(memory)
        self._hidden = hidden
        self._recorder = hidden.recorder
        self._appends = appends
        self._relay = relay
        self._now = engine.clock.monotonic
        self._metrics = metrics
        self._stages = {stage: metrics.stages.labels(stage.value) for stage in Stage}
        self._requests = cache(partial(metrics.requests.labels, _ROUTE))
        self._admission = admission
        self._logs_content = logs_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        share = self._admission.bodies.share()
        passage = _Passage(scope=scope, receive=receive, send=send, began=self._now(), share=share)
        try:
            head = self._heads.of(scope)
            policy = self._engine.policies(head.policy_name)
            # A policy that cuts nothing still needs an appended history.
            if head.mode == "off" or (head.mode == "full" and policy.strategy.name == "off"):
                await self._relay(scope, receive, send)
                return
            with self._admission.admitted(policy.limits.streams), share:
                await self._manage(head, policy, passage)
        except ClientDisconnected:
            passage.status = passage.status or 499
        except UnabridgedError as error:
            passage.fields["code"] = error.code
            await self._refuse(error, passage, unread=None if passage.is_read else receive)
        except Exception as error:  # noqa: BLE001 - the edge: whatever is wrong inside, the client hears of it
            log_fault("a managed request failed", error)
            await self._refuse(UnabridgedError(), passage)
        self._tell(passage)

    async def _refuse(self, error: UnabridgedError, passage: _Passage, unread: Receive | None = None) -> None:
        """Answer with an error; an answer that has begun stays incomplete, which cuts the connection."""
        if not passage.has_begun:
            passage.status = error.status
            await send_error(passage.send, error, id_of(passage.scope), unread=unread)

    async def _manage(self, head: Head, policy: Policy, passage: _Passage) -> None:
        self._metrics.streams_active += 1
        try:
            incoming = await _read(head, self._engine.naming, policy, passage)
            with WhilePresent(passage.scope[CLIENT]):
                if head.mode == "append":
                    async with self._appends.turn(incoming, policy) as (whole, appended):
                        passage.share.take(len(whole.body) - len(incoming.body))
                        await self._answer(whole, policy, passage, appended)
                else:
                    await self._answer(incoming, policy, passage)
        finally:
            self._metrics.streams_active -= 1

    async def _answer(
        self, incoming: Incoming, policy: Policy, passage: _Passage, appended: Appended | None = None
    ) -> None:
        prepared = await self._engine.prepare(incoming, policy, appended)
        self._note(prepared, passage)
        if appended is not None:
            await self._recorder.announce(prepared)
        with self._engine.foreground.request():
            passage.forwarded = self._now()
            sent = await self._engine.send(prepared, incoming)
            sent = await self._hidden.told(prepared, incoming, sent)
            try:
                await self._pass_on(prepared, sent, passage)
            finally:
                await sent.response.aclose()

    async def _pass_on(self, prepared: Prepared, sent: Sent, passage: _Passage) -> None:
        """Relay an answer, and have its turn recorded however far it comes."""
        passage.status = sent.response.status
        is_answered = passage.status == _ANSWERED
        collector = Collector(sent.response)
        if is_answered and not collector.is_readable:
            prepared.degraded.append("answer-unread")
        begin = partial(self._begin, prepared, sent, collector, passage)
        adds_usage = prepared.adds_usage
        try:
            if prepared.appended is not None and is_answered:
                acknowledged = partial(self._appends.acknowledged, prepared, collector)
                await send_appended(sent, collector, begin, passage.send, acknowledged, adds_usage=adds_usage)
            else:
                await send_answer(sent, collector, begin, passage.send, adds_usage=adds_usage)
        finally:
            if is_answered:
                self._recorder.begin(prepared, collector)
            if self._logs_content:
                log_content(id_of(passage.scope), prepared.body, collector.answer().message)

    async def _begin(self, prepared: Prepared, sent: Sent, collector: Collector, passage: _Passage) -> None:
        """Send the head of an answer."""
        headers = to_client(sent.response.headers, same_body=not collector.is_stream)
        headers += prepared.response_headers()
        passage.has_begun = True
        await passage.send({"type": "http.response.start", "status": passage.status, "headers": headers})
        self._metrics.first_chunk.observe(self._now() - passage.forwarded)

    def _note(self, prepared: Prepared, passage: _Passage) -> None:
        stage = prepared.verdict.stage
        self._stages[stage].inc()
        self._metrics.is_degraded = "store" in prepared.degraded
        self._metrics.overhead.observe(self._now() - prepared.arrived)
        real = prepared.budget.real
        passage.fields |= {
            "session": prepared.recognised.key.tag[:8],
            "model": prepared.case.model[:_NAME],
            "stage": stage,
            "epoch": prepared.verdict.number,
            "sent": real(prepared.sent_tokens),
            "full": real(prepared.case.counted),
            "budget": prepared.budget.tokens,
        }

    def _tell(self, passage: _Passage) -> None:
        seconds = round(self._now() - passage.began, 4)
        self._requests(passage.status).inc()
        log_request(
            route=_ROUTE, status=passage.status, seconds=seconds, id=id_of(passage.scope), **passage.fields
        )


async def _read(head: Head, naming: Naming, policy: Policy, passage: _Passage) -> Incoming:
    """The request, whole and decoded."""
    limit, share = policy.limits.body, passage.share
    body = whole_body(passage.scope[CLIENT], limit, share)
    passage.is_read = body is not None
    envelope = head.envelope(naming)  # what is wrong with it is told before any more is read
    if body is None:
        announced = content_length(passage.scope["headers"])
        body = await read_body(passage.receive, limit, share, announced)
        passage.is_read = True
    if head.encoding:
        decoded = await decode_body(body, head.encoding, limit)
        share.take(len(decoded) if decoded is not body else 0)
        body = decoded
    return Incoming(envelope, body)
