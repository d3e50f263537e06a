"""Sending a request, and once more where the upstream's refusal teaches how.

A POST is never repeated because of a fault; what is sent again is another request than the refused one.
"""

import re
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.dialects.wire import WireFormat
from proxy.engine.answers.added_parameters import AddedParameters
from proxy.engine.answers.first_event import begin
from proxy.engine.flow import Exchange, Incoming, Sent
from proxy.engine.models.models import Models
from proxy.engine.planning.decisions import Decisions, reserve_of
from proxy.ports import Clock, Upstream

_OK = 200
_BAD_REQUEST = 400
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
            return await begin(response)
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
        exchange.rewrite(body)
        return is_changed

    def _withdraw_tool(self, exchange: Exchange, sent: Sent) -> bool:
        """Whether a tool of ours was refused, and the request goes out without it now."""
        if not self.added.refuses_tool(exchange, sent):
            return False
        exchange.request = replace(exchange.request, tool=b"")
        exchange.rewrite(self.decisions.body(exchange.request, exchange.history, exchange.decision))
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
