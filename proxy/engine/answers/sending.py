"""Send a request, and send a changed one where the upstream's refusal tells what to change.

A POST is never repeated because of a fault; a changed request always differs from the refused one. Only as
much of an answer is read here as is needed to tell a refusal from an answer.

Keeps law 1 (transparent) for parameters that only the proxy wants: they are spliced into the finished body,
and every other byte stays as it was. A model is not asked again for a parameter that its upstream refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.answers import REFUSED, Refusal
from proxy.core.dialects.dialect import Dialect
from proxy.core.formats.sse import Decoder, begins_stream
from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError
from proxy.core.planning.plan import EMPTY, view_tokens
from proxy.engine.flow import Exchange, PeekedResponse, Request, reserve_of
from proxy.engine.intake.naming import BODY_DIGESTS
from proxy.engine.models.models import NOTHING_ADDED, Added, Models
from proxy.engine.planning.decisions import Decisions
from proxy.engine.sessions.session_cache import HeadUse, head_hash
from proxy.ports import ChangedResponse, Clock, Upstream, UpstreamResponse, coding_of, is_stream

_PEEK_BYTES = 2**20
_IDEMPOTENCY = b"idempotency-key"
_COMMENTS = 1.0
"""Seconds for which comments are held back; passed on, they keep a client waiting that would leave
otherwise."""


@dataclass(frozen=True)
class Sender:
    """Sends requests, and learns about models from the responses."""

    dialect: Dialect
    upstream: Upstream
    models: Models
    decisions: Decisions
    clock: Clock

    def add_parameters(self, exchange: Exchange) -> None:
        """Add the parameters that the proxy wants to the body.

        Usage of a streamed answer is asked for while it teaches something: from *warn* on while a model's
        ratio is hardly known, and while nobody knows the model's window.

        From its first epoch on, a session's requests carry a prompt cache key, unless the client set one.
        Providers that spread requests over machines then send them to the machine that has cached their
        prefix. A request that is sent whole, such as one of a session that was restored entirely, is not
        changed.
        """
        request, decision, window = exchange.request, exchange.decision, exchange.request.budget.window
        body, model = request.history.body, request.model
        may_teach = decision.stage is not Stage.CALM or window.tokens is None or window.is_least
        may_ask = body.is_streamed and not body.wants_usage and Added.USAGE not in exchange.refused
        if may_teach and may_ask and model.wants_usage(exchange.counted_tokens, window, request.media_tokens):
            exchange.body = self.dialect.asking_for_usage(exchange.body)
            exchange.adds_usage = True
        if decision.plan != EMPTY and request.cache_key and Added.CACHE_KEY not in exchange.refused:
            exchange.body = self.dialect.with_cache_key(exchange.body, request.cache_key)
            exchange.adds_cache_key = True

    async def send(self, exchange: Exchange) -> PeekedResponse:
        """Forward the request; after a refusal that something can be done about, send a changed one.

        A refusal for length teaches the window, and the request is pruned harder. Each kind of change is made
        once at most. Several may follow each other: upstreams look at parameters before they count tokens,
        and what a pruned request has for the first time, such as a cache key, may be refused in turn. In
        shadow the refusal is the answer. Raises UpstreamUnreachable, UpstreamTimeout,
        UpstreamInvalidResponse.
        """
        budget, is_first = exchange.request.budget, True
        while True:
            sent = await self.forward(exchange.request, exchange.body, is_first=is_first)
            is_first = False
            try:
                if sent.response.status == HTTPStatus.OK:
                    self._answered(exchange)
                    exchange.may_be_refused = not sent.possible_error
                    if exchange.may_be_refused:
                        return sent
                is_changed = await self._change(exchange, sent, budget)
            except BaseException:
                await sent.response.aclose()
                raise
            if not is_changed:
                return sent
            await sent.response.aclose()

    async def forward(self, request: Request, body: bytes, *, is_first: bool) -> PeekedResponse:
        """Send a body as the client's request, and read all of an error, or the first event of a stream.

        A body that is not the client's goes without the digests of that, and one after the first without the
        idempotency key, which would bring the first one's answer again. Raises UpstreamUnreachable,
        UpstreamTimeout.
        """
        incoming, envelope = request.incoming, request.incoming.envelope
        is_clients = incoming.appended is None and body == incoming.body
        headers = envelope.forwarded
        if not (is_clients and is_first):
            dropped = {*(() if is_clients else BODY_DIGESTS), *(() if is_first else (_IDEMPOTENCY,))}
            headers = [header for header in headers if header[0].lower() not in dropped]
        response = await self.upstream.send("POST", envelope.target, headers, body)
        try:
            if response.status == HTTPStatus.OK:
                may_stream = is_stream(response) or request.history.body.is_streamed
                return await _peek(response) if may_stream else PeekedResponse(response, b"", is_over=False)
            peeked = bytearray()
            async for chunk in response.chunks():
                peeked += chunk
                if response.status not in REFUSED or len(peeked) > _PEEK_BYTES:
                    return PeekedResponse(response, bytes(peeked), is_over=False)
            possible_error, coding = bytes(peeked), coding_of(response)
            if coding in CODINGS:  # a refusal that was compressed, though nobody had asked for that
                with suppress(UnpackingError):
                    possible_error = Unpacker(coding, _PEEK_BYTES).feed(possible_error)
            return PeekedResponse(response, bytes(peeked), is_over=True, possible_error=possible_error)
        except BaseException:
            await response.aclose()
            raise

    def _answered(self, exchange: Exchange) -> None:
        request, session, model = exchange.request, exchange.request.session, exchange.request.model
        hashes = request.chain.hashes
        use = HeadUse(self.clock.now(), len(hashes), hashes[-1] if hashes else b"")
        session.lane.learn_head(head_hash(request.history.head, request.budget.head), use)
        model.refuses |= exchange.refused
        model.refused_members |= exchange.refused_members
        if session.cached.is_turn_lost:
            session.cached.is_turn_lost = False
            exchange.degraded.append("previous-turn")

    # --- what is changed in a request that was refused ---

    async def _change(self, exchange: Exchange, sent: PeekedResponse, budget: Budget) -> bool:
        """Change a refused request so that it may be accepted; return whether it was changed.

        ``budget`` is the one before any change: a request that has another was pruned. A window is learned in
        any case: what is passed on all the same, the next turn acts on.
        """
        refusal = self.refusal(exchange, sent)
        may_change = not exchange.request.incoming.is_shadow
        if window := self.learn_window(exchange, refusal):
            may_prune = may_change and exchange.request.budget is budget
            is_pruned = may_prune and await self.decisions.prune_harder(exchange, window)
            if is_pruned:
                self.add_parameters(exchange)
            return is_pruned
        body = exchange.request.history.body
        is_of_tool = refusal.rejects_tools or (refusal.mentions_tools and body.has_format)
        is_unclear = refusal.is_invalid and refusal.overflow is None
        return may_change and (
            self._let_alternate(exchange, refusal)
            or (refusal.rejects_reasoning and await self.decisions.leave_out_reasoning(exchange))
            or self._leave_out_members(exchange, refusal)
            or (is_of_tool and self._withdraw_tool(exchange, is_known=True))
            or self._withdraw_parameters(exchange, refusal)
            or (is_unclear and self._withdraw_tool(exchange, is_known=False))
        )

    def refusal(self, exchange: Exchange, sent: PeekedResponse) -> Refusal:
        return self.dialect.refusal(sent.response.status, sent.possible_error, exchange.body)

    def learn_window(self, exchange: Exchange, refusal: Refusal, more: int = 0) -> int | None:
        """Learn the window from a refusal for length; return the one to prune the request to, if any.

        ``more`` are counted tokens that were sent after the view.
        """
        if refusal.overflow is None:
            return None
        request, counted = exchange.request, exchange.counted_tokens + more
        reserve = reserve_of(request.history, request.incoming.policy) or 0
        return self.models.learn_refusal(request.model, counted, reserve, refusal.overflow)

    def _let_alternate(self, exchange: Exchange, refusal: Refusal) -> bool:
        """If notes were refused for the order of roles, merge them into their neighbours.

        Returns whether that changes the body.
        """
        if not refusal.wants_alternation:
            return False
        request = exchange.request
        request.model.alternates = True
        body = self.decisions.body(request, exchange.decision)
        is_changed = body != exchange.base_body
        exchange.set_request(request, exchange.decision, body)
        return is_changed

    def _leave_out_members(self, exchange: Exchange, refusal: Refusal) -> bool:
        """If members of messages were refused that some have, leave them out; return whether any has.

        A client that appends never sent them: they are of answers. Once the model takes the request without
        them, later ones go without them too.
        """
        if not refusal.refused_members:
            return False
        body = self.dialect.without_members(exchange.base_body, refusal.refused_members)
        is_changed = body != exchange.base_body
        if is_changed:
            exchange.refused_members |= refusal.refused_members
            exchange.set_request(exchange.request, exchange.decision, body)
        return is_changed

    def _withdraw_tool(self, exchange: Exchange, *, is_known: bool) -> bool:
        """If the proxy's tool may have been refused, remove it; return whether it was removed.

        Once the model takes the request without tools, it is known to take none, or none beside a response
        format. Where the client has tools too, nothing is learned: one more may have been too many. Where it
        is not known whether the refusal was of tools, they are removed only if the client has none, and
        nothing is learned, nor that the parameters removed before were the reason.
        """
        tool, body = exchange.request.tool, exchange.request.history.body
        if not (tool and tool in exchange.body and (is_known or not body.has_tools)):
            return False
        if not is_known:
            exchange.refused = NOTHING_ADDED
        elif not body.has_tools:
            exchange.refused |= Added.TOOL_BESIDE_FORMAT if body.has_format else Added.TOOL
        request, plan = exchange.request.without_tool(), exchange.decision.plan
        decision = replace(exchange.decision, view_tokens=view_tokens(plan, request.chain.tokens))
        exchange.set_request(request, decision, self.decisions.body(request, decision))
        return True

    def _withdraw_parameters(self, exchange: Exchange, refusal: Refusal) -> bool:
        """If the proxy's own parameters may have been refused, remove all of them; return whether they were.

        That a model refuses them is learned only when the request is taken without them: the client may have
        made the mistake. For usage any refusal counts, since it is asked for so seldom.
        """
        refused, is_of_cache_key = NOTHING_ADDED, exchange.adds_cache_key and refusal.mentions_cache_key
        if is_of_cache_key or (exchange.adds_cache_key and refusal.has_unknown_parameter):
            refused |= Added.CACHE_KEY
        if exchange.adds_usage and refusal.is_invalid and not is_of_cache_key:
            refused |= Added.USAGE
        if refused:
            exchange.set_request(exchange.request, exchange.decision, exchange.base_body)
            exchange.refused |= refused
        return bool(refused)


# --- the beginning of an answer ---


async def _peek(response: UpstreamResponse) -> PeekedResponse:
    """Read the first event of a stream, or as much as tells that it is none, whatever its content type.

    Comments before the first event (keep-alives) are held back, but not for long.
    """
    decoder, peeked, is_typed = Decoder(), bytearray(), is_stream(response)
    is_plain, begins = coding_of(response) == b"identity", None
    async for chunk in response.chunks():
        peeked += chunk
        events = decoder.feed(chunk)
        begins = begins_stream(peeked) if is_plain else is_typed
        if peeked and not peeked.strip() and not is_typed:  # some keep the way open for JSON with blank lines
            return PeekedResponse(response, bytes(peeked), is_over=False)
        if begins is False and (not is_typed or _is_json(peeked)):
            return PeekedResponse(response, bytes(peeked), is_over=False)
        is_events = is_typed or bool(begins)
        if events or len(peeked) > _PEEK_BYTES:
            possible_error = events[0].data if events else b""
            return PeekedResponse(
                response, bytes(peeked), is_over=False, possible_error=possible_error, is_stream=is_events
            )
        if is_events and all(not line or line.startswith(b":") for line in peeked.splitlines()):
            return await _after_comments(response, decoder, peeked)
    return PeekedResponse(response, bytes(peeked), is_over=True, is_stream=is_typed or bool(begins))


async def _after_comments(response: UpstreamResponse, decoder: Decoder, peeked: bytearray) -> PeekedResponse:
    chunks, loop = response.chunks(), asyncio.get_running_loop()
    until = loop.time() + _COMMENTS
    while True:
        following = asyncio.ensure_future(anext(chunks, b""))
        waited = _waited(response, following)
        try:
            await asyncio.wait({following}, timeout=max(until - loop.time(), 0.0))
            if not following.done():
                return PeekedResponse(waited, bytes(peeked), is_over=False, is_stream=True)
            chunk = following.result()
        except BaseException:
            await waited.aclose()
            raise
        peeked += chunk
        events = decoder.feed(chunk)
        if events or not chunk or len(peeked) > _PEEK_BYTES:
            possible_error = events[0].data if events else b""
            is_events = not _is_json(peeked)
            return PeekedResponse(
                response, bytes(peeked), is_over=not chunk, possible_error=possible_error, is_stream=is_events
            )


def _is_json(peeked: bytearray) -> bool:
    return peeked.lstrip().startswith(b"{")


def _waited(response: UpstreamResponse, following: asyncio.Future[bytes]) -> UpstreamResponse:
    """Return a response whose next chunk is already being awaited."""

    async def chunks() -> AsyncIterator[bytes]:
        if chunk := await following:
            yield chunk
        async for chunk in response.chunks():
            yield chunk

    async def aclose() -> None:
        following.cancel()
        await asyncio.wait({following})
        await response.aclose()

    return ChangedResponse(response.status, response.headers, chunks, aclose)
