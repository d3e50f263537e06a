"""``POST /v1/chat/completions``: the one route whose requests are managed. Raw ASGI, because it is hot.

This module moves bytes and answers errors; what a request becomes is :mod:`proxy.engine.pipeline`'s business,
and what its turn leaves behind :mod:`proxy.engine.recording.recorder`'s.
"""

from collections.abc import Sequence
from functools import cache, partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.budget.budget import Stage
from proxy.core.dialects.chat.body import model_of
from proxy.core.policy.policy import Policy, Way, chosen
from proxy.engine.append.append import Appends, StoredAnswer
from proxy.engine.flow import Exchange, Incoming, Sent
from proxy.engine.intake.envelope import Envelope
from proxy.engine.intake.naming import Naming
from proxy.engine.pipeline import Pipeline
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.recorder import UNREAD
from proxy.errors import RequestTooLarge, UnabridgedError
from proxy.http.answer import send_answer, send_appended
from proxy.http.asgi import (
    CLIENT,
    ClientDisconnected,
    Reread,
    WhilePresent,
    decode_body,
    read_body,
    send_error,
    whole_body,
    with_headers,
)
from proxy.http.front import request_id as id_of
from proxy.http.headers import content_length, to_client
from proxy.http.limits import Admission, Share
from proxy.http.request_head import Head, Heads
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
        pipeline: Pipeline,
        appends: Appends,
        relay: ASGIApp,
        metrics: Metrics,
        admission: Admission,
        heads: Heads,
        *,
        logs_content: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._heads = heads
        self._appends = appends
        self._relay = relay
        self._now = pipeline.recorder.clock.monotonic
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
            if head.warning:
                send = passage.send = with_headers(send, (b"x-unabridged-warning", head.warning))
            ways = head.ways(self._pipeline.rules())
            policies = [self._pipeline.policies(way.policy) for way in ways]
            if head.mode == "off" or all(_is_relayed(head, policy) for policy in policies):
                await self._relay(scope, receive, send)
                return
            with share:
                with self._admission.admitted(max([policy.limits.streams for policy in policies])):
                    unmanaged = await self._manage(head, ways, policies, passage)
                if unmanaged is not None:
                    await self._relay({**scope, CLIENT: Reread(scope[CLIENT], unmanaged)}, receive, send)
                    return
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

    async def _manage(
        self, head: Head, ways: Sequence[Way], policies: Sequence[Policy], passage: _Passage
    ) -> bytes | None:
        """Answer the request. Where the model says that it is to be relayed instead, its body as it came."""
        self._metrics.streams_active += 1
        try:
            limit = max([policy.limits.body for policy in policies])
            envelope, raw, body = await _read(head, self._pipeline.naming, limit, passage)
            way = ways[0] if len(ways) == 1 else chosen(ways, model_of(body))
            policy = policies[ways.index(way)]
            if _is_relayed(head, policy):
                return raw
            if len(body) > policy.limits.body:
                raise RequestTooLarge
            incoming = Incoming(envelope, body, policy, self._now(), way.by)
            with WhilePresent(passage.scope[CLIENT]):
                if head.mode == "append":
                    async with self._appends.turn(incoming) as turn:
                        if isinstance(turn, StoredAnswer):
                            await self._tell_again(incoming, turn, passage)
                        else:
                            passage.share.take(len(turn.body) - len(incoming.body))
                            await self._answer(turn, passage)
                else:
                    await self._answer(incoming, passage)
        finally:
            self._metrics.streams_active -= 1
        return None

    async def _tell_again(self, incoming: Incoming, stored: StoredAnswer, passage: _Passage) -> None:
        """Send the stored answer to a turn that was sent again."""
        caller = incoming.envelope.caller
        kind = b"text/event-stream" if stored.is_stream else b"application/json"
        headers = [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(stored.body)),
            (b"idempotent-replayed", b"true"),
            (b"x-request-id", id_of(passage.scope).encode()),
            (b"x-unabridged-session", (caller.name or "").encode("latin-1", "replace")),
        ]
        passage.fields |= {"session": caller.key and caller.key.id_for(caller.tenant), "replayed": True}
        passage.status, passage.has_begun = _ANSWERED, True
        await passage.send({"type": "http.response.start", "status": _ANSWERED, "headers": headers})
        await passage.send({"type": "http.response.body", "body": stored.body, "more_body": False})

    async def _answer(self, incoming: Incoming, passage: _Passage) -> None:
        exchange = await self._pipeline.prepare(incoming)
        self._note(exchange, passage)
        if incoming.appended is not None:
            await self._pipeline.recorder.announce(exchange)
        with self._pipeline.foreground.request():
            passage.forwarded = self._now()
            sent = await self._pipeline.answer(exchange)
            try:
                await self._pass_on(exchange, sent, passage)
            finally:
                await sent.response.aclose()

    async def _pass_on(self, exchange: Exchange, sent: Sent, passage: _Passage) -> None:
        """Relay an answer, and have its turn recorded however far it comes."""
        passage.status = sent.response.status
        is_answered = passage.status == _ANSWERED
        collector = Collector(sent.response)
        if is_answered and not collector.is_readable:
            exchange.degraded.append(UNREAD)
        begin = partial(self._begin, exchange, sent, collector, passage)
        adds_usage = exchange.adds_usage
        try:
            if exchange.incoming.appended is not None and is_answered:
                acknowledged = partial(self._appends.acknowledged, exchange, collector)
                await send_appended(sent, collector, begin, passage.send, acknowledged, adds_usage=adds_usage)
            else:
                await send_answer(sent, collector, begin, passage.send, adds_usage=adds_usage)
        finally:
            if is_answered:
                self._pipeline.recorder.begin(exchange, collector)
            if exchange.degraded:
                passage.fields["degraded"] = exchange.degraded
            if self._logs_content:
                log_content(id_of(passage.scope), exchange.body, collector.answer().message)

    async def _begin(self, exchange: Exchange, sent: Sent, collector: Collector, passage: _Passage) -> None:
        """Send the head of an answer."""
        headers = to_client(sent.response.headers, same_body=not collector.is_stream)
        headers += exchange.response_headers()
        passage.has_begun = True
        await passage.send({"type": "http.response.start", "status": passage.status, "headers": headers})
        self._metrics.first_chunk.observe(self._now() - passage.forwarded)

    def _note(self, exchange: Exchange, passage: _Passage) -> None:
        stage = exchange.decision.stage
        self._stages[stage].inc()
        self._metrics.is_degraded = "store" in exchange.degraded
        self._metrics.overhead.observe(self._now() - exchange.incoming.arrived)
        request = exchange.request
        passage.fields |= {
            "session": request.session.key.id_for(request.session.tenant),
            "model": request.model.name[:_NAME],
            "stage": stage,
            "epoch": exchange.decision.number,
            "sent": exchange.sent,
            "full": exchange.full,
            "budget": request.budget.tokens,
        }

    def _tell(self, passage: _Passage) -> None:
        seconds = round(self._now() - passage.began, 4)
        self._requests(passage.status).inc()
        log_request(
            route=_ROUTE, status=passage.status, seconds=seconds, id=id_of(passage.scope), **passage.fields
        )


def _is_relayed(head: Head, policy: Policy) -> bool:
    """Whether a policy cuts nothing, and the client has no history that would have to be read."""
    return head.mode == "full" and policy.strategy.name == "off"


async def _read(head: Head, naming: Naming, limit: int, passage: _Passage) -> tuple[Envelope, bytes, bytes]:
    """What the head asks for, and the whole body: as it came, and decoded."""
    share = passage.share
    body = whole_body(passage.scope[CLIENT], limit, share)
    passage.is_read = body is not None
    envelope = head.envelope(naming)  # what is wrong with it is told before any more is read
    if body is None:
        announced = content_length(passage.scope["headers"])
        body = await read_body(passage.receive, limit, share, announced)
        passage.is_read = True
    decoded = body
    if head.encoding:
        decoded = await decode_body(body, head.encoding, limit)
        share.take(len(decoded) if decoded is not body else 0)
    return envelope, body, decoded
