"""The way of a managed request, from its bytes to its answer: read it from top to bottom.

Whoever moves the bytes calls :meth:`Pipeline.prepare`, :meth:`Pipeline.answer`, and, once the answer is over,
:meth:`~proxy.engine.recording.recorder.Recorder.begin`, which writes the turn down.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.dialects.extension import take_extension
from proxy.core.dialects.wire import WireFormat
from proxy.core.economics.prices import Prices
from proxy.core.planning.chain import Chain
from proxy.core.planning.situation import Conditions
from proxy.core.policy.policy import Policy
from proxy.core.recall.tool import offered_tool
from proxy.core.tool_cache.cache import ToolCache
from proxy.engine.answers.added_parameters import AddedParameters
from proxy.engine.answers.sending import Sender
from proxy.engine.answers.tool_cache import NOTHING_FRESH, ToolCaches
from proxy.engine.answers.tool_loop import ToolLoop
from proxy.engine.background import Background
from proxy.engine.flow import Exchange, Incoming, Request, Sent, SessionState
from proxy.engine.intake.body_cache import BodyCache, ReadBody
from proxy.engine.intake.history import History, Reader, root_of
from proxy.engine.intake.naming import NAMED, Naming
from proxy.engine.models.models import Model, Models
from proxy.engine.planning.decisions import Decisions
from proxy.engine.recording.recorder import Recorder
from proxy.engine.sessions.attachments import Attachments
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.summaries.foreground import Foreground
from proxy.telemetry import log_fault


@dataclass(frozen=True)
class Pipeline:
    """Everything that a managed request needs, wired once."""

    wire: WireFormat
    naming: Naming
    body_cache: BodyCache
    reader: Reader
    recognition: Recognition
    attachments: Attachments
    models: Models
    decisions: Decisions
    tools: ToolCaches
    added: AddedParameters
    price_list: Callable[[str], Prices]
    sender: Sender
    tool_loop: ToolLoop
    recorder: Recorder
    foreground: Foreground
    background: Background

    async def prepare(self, incoming: Incoming) -> Exchange:
        """Decide what is forwarded. Raises the errors of a request that cannot be read.

        Raises StoreUnavailable for an appended turn, and where the policy is closed on faults.
        """
        policy, envelope, appended = incoming.policy, incoming.envelope, incoming.appended

        # What was sent: the body's messages on their chain, those that are new read and identified.
        scope = f"{envelope.caller.tenant}\0{envelope.caller.name}".encode(errors="surrogatepass")
        is_shared = envelope.caller.name is None
        read = self.body_cache.read(incoming.body, scope, policy.limits.messages, is_shared=is_shared)
        body, extension = take_extension(read.body)
        is_named = envelope.caller.key is not None and envelope.caller.key.sid == NAMED
        root = appended.root if appended else root_of(body, by_header=is_named)
        history = await self.reader.read_in_pieces(body, root, read.before)
        lane = lane_of(history.model, policy, envelope.budget)

        # Whose it is: the session, the epochs of its lane, what is pinned in it and was handed in for it.
        session, log = await self.recognition.recognise(
            envelope.caller, history, lane, needs_store=incoming.needs_store
        )
        places = appended.pins if appended else extension.pins_from_end(len(history.head))
        pinned = frozenset(history.hashes[-place] for place in places)
        pins, unsaved = await self.attachments.pins(session, pinned, policy.store.ttl)
        inject = appended.inject if appended else extension.inject
        injection, unkept = await self.attachments.injection(session, inject, policy.store.ttl)

        # What it costs, and what it may cost.
        model = self.models.of(session.tenant, history.model)
        chain = await self._count(read, history, session, model)
        history = history.completed(session.hidden, injection)
        chain = history.outgoing_chain(chain)
        tool = b"" if model.refuses_tools else offered_tool(policy, history.body)
        budget = await self.decisions.budget(model, history, policy, envelope.budget, tool, chain)
        stated = self.models.stated
        if stated.may_tell(model.stated, envelope.credentials):
            self.background.run(stated.ask(model.stated, envelope.credentials), is_needed=False)

        # What is cut of it, and the bytes that go out.
        rule = policy.summary.alternate
        request = Request(
            session=session,
            log=log,
            lane=lane,
            model=model,
            chain=chain,
            head_count=len(history.head),
            policy=policy,
            budget=budget,
            credentials=envelope.credentials,
            deadline=incoming.deadline,
            alternates=model.alternates if rule == "auto" else rule,
            conditions=self._conditions(session, history, lane, budget.head, boundary=envelope.is_boundary),
            tool=tool,
            pins=pins,
        )
        decision = await self.decisions.decide(request, history)
        exchange = Exchange(
            incoming=incoming,
            history=history,
            request=request,
            decision=decision,
            plain=self.decisions.body(request, history, decision),
            tools=await self._fresh(request, history),
            degraded=[*(("store",) if session.is_store_away else ()), *unsaved, *unkept],
            answerers=self.decisions.answerers(request, history, decision),
        )
        self.added.add(exchange)
        return exchange

    async def answer(self, exchange: Exchange) -> Sent:
        """The upstream's answer as the client is told it: calls of tools that we know are answered here.

        Raises UpstreamUnreachable, UpstreamTimeout and UpstreamInvalidResponse.
        """
        await self.foreground.given_way()
        sent = await self.sender.send(exchange)
        return await self.tool_loop.run(exchange, sent)

    async def _count(self, read: ReadBody, history: History, session: SessionState, model: Model) -> Chain:
        """Count what is new; the rest, and how the model counts, the store may know."""
        last = session.found.session
        if last is not None and last.model == history.model:
            model.remember_ratio(last.ratio)
        if not history.new:
            return history.counted
        self.reader.take_counts(history, session.found.counts)
        await self.reader.count(history)
        chain = history.chain()
        self.body_cache.keep(read, history.placed(chain))
        return chain

    def _conditions(
        self, session: SessionState, history: History, lane: str, head: int, *, boundary: bool
    ) -> Conditions:
        """What the provider may still have of a request whose head has ``head`` counted tokens.

        The store tells when a session was last answered, on any worker; what this process has sent itself it
        knows for each lane, so that two models in one session do not hide each other.
        """
        last, times = session.found.session, [session.lane.answered]
        is_same_lane = last is not None and last.lane == lane
        if last is not None and is_same_lane:
            times.append(last.updated)
        known = [each for each in times if each is not None]
        return Conditions(
            idle=max(self.recorder.clock.now() - max(known), 0.0) if known else None,
            boundary=boundary,
            prices=self.price_list(history.model),
            is_new_head=last is not None
            and is_same_lane
            and (last.head != history.head or last.head_tokens != head),
        )

    async def _fresh(self, request: Request, history: History) -> ToolCache:
        given = history.injection.tools if history.injection else ()
        if not (request.policy.tools or given):
            return NOTHING_FRESH
        try:
            return await self.tools.of(request, history.said_in_place, given)
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs what is kept, not the answer
            log_fault("reading tool results failed", error)
            return NOTHING_FRESH


def lane_of(model: str, policy: Policy, budget: int | None) -> str:
    """The lane of a request that allows itself so many tokens: those of one lane share their plans."""
    said = f"{model}\0{policy.name}\0{budget or ''}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]
