"""``POST /v1/chat/completions``: the one route whose requests are managed. Raw ASGI, because it is hot.

This module moves bytes and answers errors; what a request becomes is :mod:`proxy.engine.request`'s business,
and what its turn leaves behind :mod:`proxy.engine.record`'s.
"""

from collections.abc import Sequence
from contextlib import ExitStack, aclosing, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.core.budget import Stage
from proxy.core.policy import Policy
from proxy.engine.append import Appends
from proxy.engine.collector import Collector
from proxy.engine.exchange import Incoming, Prepared, Sent
from proxy.engine.hidden import Hidden
from proxy.engine.naming import Headers
from proxy.errors import InvalidHeader, UnabridgedError
from proxy.http.admission import Admission
from proxy.http.answer import send_answer, send_appended
from proxy.http.asgi import (
    CLIENT,
    ClientDisconnected,
    WhilePresent,
    decode_body,
    read_body,
    require_json,
    send_error,
)
from proxy.http.body_memory import Share
from proxy.http.front import request_id as id_of
from proxy.http.headers import Header, check_credentials, content_length, to_client, to_upstream, value
from proxy.http.paths import upstream_target
from proxy.telemetry import Metrics, log_content, log_fault, log_request

MODE_HEADER = b"x-unabridged-mode"
_ROUTE = "chat"
_MODES = frozenset({"full", "append", "off"})
_ANSWERED = 200
_NAME = 80
"""Characters of a model's name in the log: clients choose them."""


@dataclass
class _Passage:
    """What is told of a request once it is over."""

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
    fields: dict[str, object] = field(default_factory=dict[str, object])


class Managed:
    """The managed route; ``relay`` serves what a client or policy asks not to be managed."""

    def __init__(
        self,
        hidden: Hidden,
        appends: Appends,
        relay: ASGIApp,
        metrics: Metrics,
        admission: Admission,
        *,
        logs_content: bool = False,
    ) -> None:
        self._engine = engine = hidden.engine
        self._hidden = hidden
        self._recorder = hidden.recorder
        self._appends = appends
        self._relay = relay
        self._clock = engine.clock
        self._metrics = metrics
        self._stages = {stage: metrics.stages.labels(stage.value) for stage in Stage}
        self._requests = cache(partial(metrics.requests.labels, _ROUTE))
        self._admission = admission
        self._logs_content = logs_content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        passage = _Passage(self._clock.monotonic(), self._admission.bodies.share())
        request_id = id_of(scope)
        try:
            headers = _by_name(scope["headers"])
            policy, mode = self._engine.policy_of(headers), _mode(headers)
            # A policy that cuts nothing still needs an appended history.
            if mode == "off" or (mode == "full" and policy.strategy.name == "off"):
                await self._relay(scope, receive, send)
                return
            admitted = self._admission.admitted(policy.limits.streams)
            with admitted, self._metrics.streams.track_inprogress(), passage.share:
                incoming = await _read(scope, receive, headers, policy, passage)
                with WhilePresent(scope[CLIENT]):
                    await self._answer(scope, send, incoming, policy, passage, appends=mode == "append")
        except ClientDisconnected:
            passage.status = passage.status or 499
        except UnabridgedError as error:
            passage.fields["code"] = error.code
            unread = None if passage.is_read else receive
            await self._refuse(error, passage, send, request_id, unread)
        except Exception as error:  # noqa: BLE001 - the edge: whatever is wrong inside, the client hears of it
            log_fault("a managed request failed", error)
            await self._refuse(UnabridgedError(), passage, send, request_id)
        self._tell(passage, request_id)

    async def _refuse(
        self,
        error: UnabridgedError,
        passage: _Passage,
        send: Send,
        request_id: str,
        unread: Receive | None = None,
    ) -> None:
        """Answer with an error; an answer that has begun stays incomplete, which cuts the connection."""
        if not passage.has_begun:
            passage.status = error.status
            await send_error(send, error, request_id, unread=unread)

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        incoming: Incoming,
        policy: Policy,
        passage: _Passage,
        *,
        appends: bool,
    ) -> None:
        turn = self._appends.turn(incoming, policy) if appends else nullcontext((incoming, None))
        async with turn as (whole, appended):
            passage.share.take(len(whole.body) - len(incoming.body))
            prepared = await self._engine.prepare(whole, policy, appended)
            self._note(prepared, passage)
            if appended is not None:
                await self._recorder.announce(prepared)
            with ExitStack() as in_flight:
                passage.forwarded = self._clock.monotonic()
                sent = await self._engine.send(prepared, whole, in_flight)
                sent = await self._hidden.told(prepared, whole, sent)
                async with aclosing(sent.response):
                    passage.status = sent.response.status
                    collector = Collector(sent.response)
                    if sent.response.status == _ANSWERED and not collector.is_readable:
                        prepared.degraded.append("answer-unread")
                    try:
                        await self._send(prepared, sent, collector, send, passage)
                    finally:
                        if sent.response.status == _ANSWERED:
                            self._recorder.begin(prepared, collector)
                        if self._logs_content:
                            log_content(id_of(scope), prepared.body, collector.answer().message)

    async def _send(
        self, prepared: Prepared, sent: Sent, collector: Collector, send: Send, passage: _Passage
    ) -> None:
        async def begin() -> None:
            headers = to_client(sent.response.headers, same_body=not collector.is_stream)
            headers += prepared.response_headers()
            passage.has_begun = True
            await send({"type": "http.response.start", "status": passage.status, "headers": headers})
            self._metrics.first_chunk.observe(self._clock.monotonic() - passage.forwarded)

        adds_usage = prepared.adds_usage
        if prepared.appended is not None and sent.response.status == _ANSWERED:

            async def acknowledged() -> bool:
                return await self._appends.acknowledged(prepared, collector)

            await send_appended(sent, collector, begin, send, acknowledged, adds_usage=adds_usage)
        else:
            await send_answer(sent, collector, begin, send, adds_usage=adds_usage)

    def _note(self, prepared: Prepared, passage: _Passage) -> None:
        stage = prepared.verdict.stage
        self._stages[stage].inc()
        self._metrics.degraded.set("store" in prepared.degraded)
        self._metrics.overhead.observe(self._clock.monotonic() - prepared.arrived)
        real = prepared.budget.real
        passage.fields |= {
            "session": prepared.recognised.key.tag[:8],
            "model": prepared.case.model[:_NAME],
            "stage": stage.value,
            "epoch": prepared.verdict.number,
            "sent": real(prepared.sent_tokens),
            "full": real(prepared.case.counted),
            "budget": prepared.budget.tokens,
        }

    def _tell(self, passage: _Passage, request_id: str) -> None:
        seconds = round(self._clock.monotonic() - passage.began, 4)
        self._requests(passage.status).inc()
        log_request(route=_ROUTE, status=passage.status, seconds=seconds, id=request_id, **passage.fields)


async def _read(
    scope: Scope, receive: Receive, named: Headers, policy: Policy, passage: _Passage
) -> Incoming:
    """The request, whole and decoded."""
    headers: Sequence[Header] = scope["headers"]
    check_credentials(headers)
    require_json(value(headers, b"content-type"))
    body = await read_body(receive, policy.limits.body, passage.share, content_length(headers))
    passage.is_read = True
    encoding = value(headers, b"content-encoding")
    decoded = await decode_body(body, encoding, policy.limits.body)
    if decoded is not body:
        passage.share.take(len(decoded))
    forwarded = to_upstream(
        headers,
        accept_encoding=b"identity",
        without=(b"content-length", b"content-encoding", b"expect"),
    )
    target = upstream_target(scope["raw_path"], scope["query_string"])
    return Incoming(target, named, decoded, forwarded)


def _by_name(headers: Sequence[Header]) -> dict[bytes, bytes]:
    """Headers by lower-case name; of a repeated one the values are joined by a comma."""
    named: dict[bytes, bytes] = {}
    for name, content in headers:
        lower = name.lower()
        named[lower] = named[lower] + b"," + content if lower in named else content
    return named


def _mode(headers: Headers) -> str:
    """`full`, `append` or `off`. Raises InvalidHeader."""
    mode = headers.get(MODE_HEADER, b"").strip().lower().decode("latin-1") or "full"
    if mode not in _MODES:
        raise InvalidHeader("X-Unabridged-Mode is full, append or off.")
    return mode
