"""Sending a request, and once more where the upstream's refusal teaches how.

A POST is never repeated because of a fault; what is sent again is another request than the refused one. As
much of an answer is read here as tells a refusal from an answer, and no more.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.dialects.wire import WireFormat
from proxy.core.formats.sse import Decoder
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.engine.answers.added_parameters import AddedParameters
from proxy.engine.flow import Exchange, Incoming, Sent, header_of, is_stream
from proxy.engine.models.models import Models
from proxy.engine.planning.decisions import Decisions, reserve_of
from proxy.ports import Clock, Upstream, UpstreamResponse

_OK = 200
_BAD_REQUEST = 400
_REFUSALS = frozenset({_BAD_REQUEST, 413, 422, 500})
_BEGUN_BYTES = 2**20
_COMMENTS = 1.0
"""Seconds for which comments are held back: they keep a client waiting who would leave otherwise."""
_WANTS_ALTERNATION = re.compile(
    rb"roles?[^.]{0,40}alternat|consecutive[^.]{0,40}(?:role|user)|role .?user.? after role", re.IGNORECASE
)
"""What is said by who takes one user message after each assistant message, and no other."""


@dataclass(frozen=True)
class Sender:
    """Sends requests, and learns from what comes back."""

    wire: WireFormat
    upstream: Upstream
    models: Models
    decisions: Decisions
    added: AddedParameters
    clock: Clock

    async def send(self, exchange: Exchange) -> Sent:
        """Forward; a refusal for length teaches the window, and the request is pruned and sent once more.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse.
        """
        sent = await self.forward(exchange.incoming, exchange.body)
        try:
            if sent.response.status == _OK:
                self._answered(exchange)
                if not sent.told:
                    return sent
            is_changed = (
                self._let_alternate(exchange, sent)
                or (self.learn_refusal(exchange, sent) and await self.decisions.prune_harder(exchange))
                or self._withdraw_tool(exchange, sent)
                or self.added.take_out_refused(exchange, sent)
            )
            if not is_changed:
                return sent
        except BaseException:
            await sent.response.aclose()
            raise
        await sent.response.aclose()
        sent = await self.forward(exchange.incoming, exchange.body)
        if sent.response.status == _OK:
            self._answered(exchange)
        self.learn_refusal(exchange, sent)  # passed on all the same: the next turn acts on it
        return sent

    async def forward(self, incoming: Incoming, body: bytes) -> Sent:
        """Send a body as the client's request, and wait for the beginning of its answer.

        Raises UpstreamUnreachable, UpstreamTimeout.
        """
        envelope = incoming.envelope
        response = await self.upstream.send("POST", envelope.target, envelope.forwarded, body)
        try:
            return await _begin(response)
        except BaseException:
            await response.aclose()
            raise

    def _answered(self, exchange: Exchange) -> None:
        session = exchange.request.session
        session.lane.answered = self.clock.now()
        if exchange.is_tool_refused or exchange.is_cache_key_refused:
            self.added.taken(exchange)
        if session.cached.is_turn_lost:
            session.cached.is_turn_lost = False
            exchange.degraded.append("previous-turn")

    def _let_alternate(self, exchange: Exchange, sent: Sent) -> bool:
        """Whether notes were refused for the order of roles, and go out within their neighbours now."""
        if sent.response.status != _BAD_REQUEST or not _WANTS_ALTERNATION.search(sent.told):
            return False
        request = exchange.request
        request.model.alternates = True
        body = self.decisions.body(request, exchange.history, exchange.decision)
        is_changed = body != exchange.body
        exchange.set_body(body)
        return is_changed

    def _withdraw_tool(self, exchange: Exchange, sent: Sent) -> bool:
        """Whether a tool of ours was refused, and the request goes out without it now."""
        if not self.added.refuses_tool(exchange, sent):
            return False
        exchange.request = replace(exchange.request, tool=b"")
        exchange.set_body(self.decisions.body(exchange.request, exchange.history, exchange.decision))
        return True

    def learn_refusal(self, exchange: Exchange, sent: Sent, more: int = 0) -> bool:
        """Whether an answer is a refusal for length from which something was learned.

        ``more`` are counted tokens that went out after the view.
        """
        refusal = self.wire.refusal(sent.response.status, sent.told, exchange.body)
        if refusal is None:
            return False
        request, reserve = exchange.request, reserve_of(exchange.history, exchange.request.policy) or 0
        return self.models.learn_refusal(request.model, exchange.sent_tokens + more, reserve, refusal)


# --- how an answer begins ---


async def _begin(response: UpstreamResponse) -> Sent:
    """Read all of an error, or the first event of a stream."""
    if response.status == _OK:
        return await _begin_stream(response) if is_stream(response) else Sent(response, b"", is_over=False)
    begun = bytearray()
    async for chunk in response.chunks():
        begun += chunk
        if response.status not in _REFUSALS or len(begun) > _BEGUN_BYTES:
            return Sent(response, bytes(begun), is_over=False)
    told, coding = bytes(begun), header_of(response, b"content-encoding")
    if coding in CODINGS:  # a refusal that was compressed, though nobody had asked for that
        with suppress(UnpackingError):
            told = Unpacker(coding, _BEGUN_BYTES).feed(told)
    return Sent(response, bytes(begun), is_over=True, told=told)


async def _begin_stream(response: UpstreamResponse) -> Sent:
    """Read the first event. Comments before it (keep-alives) are held back for it, but not for long."""
    decoder, begun = Decoder(), bytearray()
    async for chunk in response.chunks():
        begun += chunk
        events = decoder.feed(chunk)
        if events:
            return Sent(response, bytes(begun), is_over=False, told=events[0].data)
        if len(begun) > _BEGUN_BYTES:
            return Sent(response, bytes(begun), is_over=False)
        if all(not line or line.startswith(b":") for line in begun.splitlines()):
            return await _after_comments(response, decoder, begun)
    return Sent(response, bytes(begun), is_over=True)


async def _after_comments(response: UpstreamResponse, decoder: Decoder, begun: bytearray) -> Sent:
    chunks, loop = response.chunks(), asyncio.get_running_loop()
    until = loop.time() + _COMMENTS
    while True:
        waited = _Waited(response, asyncio.ensure_future(anext(chunks, b"")))
        try:
            chunk = await waited.chunk(until - loop.time())
        except BaseException:
            await waited.aclose()
            raise
        if chunk is None:
            return Sent(waited, bytes(begun), is_over=False)
        begun += chunk
        events = decoder.feed(chunk)
        if events or not chunk or len(begun) > _BEGUN_BYTES:
            told = events[0].data if events else b""
            return Sent(response, bytes(begun), is_over=not chunk, told=told)


class _Waited:
    """An answer whose next chunk is waited for already."""

    def __init__(self, response: UpstreamResponse, following: asyncio.Future[bytes]) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._following = following

    async def chunk(self, seconds: float) -> bytes | None:
        """The next chunk, empty at the end; None where it does not come in time."""
        await asyncio.wait({self._following}, timeout=max(seconds, 0.0))
        return self._following.result() if self._following.done() else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The rest of the body."""
        if chunk := await self._following:
            yield chunk
        async for chunk in self._response.chunks():
            yield chunk

    async def aclose(self) -> None:
        """End the waiting, and close the answer."""
        self._following.cancel()
        await asyncio.wait({self._following})
        await self._response.aclose()
