"""One managed request, from its bytes to the bytes that are forwarded.

The way through the house (DESIGN 3): read, name, look up once, count what is new, decide, splice, send.
Whoever moves the bytes calls :meth:`Engine.prepare` and :meth:`Engine.send`; what the turn leaves behind is
:mod:`proxy.engine.record`'s business.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.budget import Budget
from proxy.core.extension import take_extension
from proxy.core.overflow import is_overflow_error
from proxy.core.policy import Policy
from proxy.core.recall.tool import offered_tool
from proxy.core.situation import Chain
from proxy.core.tools.cache import ToolCache
from proxy.engine.asked import Asked, lane_of
from proxy.engine.background import Background
from proxy.engine.beginning import begin
from proxy.engine.bodies import Bodies
from proxy.engine.case import Case
from proxy.engine.deciding import Decisions, reserve_of
from proxy.engine.exchange import Appended, Incoming, Prepared, Sent
from proxy.engine.extras import Extras
from proxy.engine.foreground import Foreground
from proxy.engine.history import History, Reader, root_of
from proxy.engine.injections import Injections
from proxy.engine.models import Model, Models
from proxy.engine.naming import NAMED, Naming
from proxy.engine.pins import Pins
from proxy.engine.recognition import Recognised, Recognition
from proxy.engine.tools import NOTHING_FRESH, Tools
from proxy.engine.warmth import Warmth
from proxy.ports import Clock, Upstream
from proxy.telemetry import log_fault

_DEADLINE = 3.0
"""Seconds that a request may wait for everything of ours together."""
_OK = 200
_BAD_REQUEST = 400
_WANTS_ALTERNATION = re.compile(
    rb"roles?[^.]{0,40}alternat|consecutive[^.]{0,40}(?:role|user)|role .?user.? after role", re.IGNORECASE
)
"""What is said by who takes one user message after each assistant message, and no other."""


@dataclass(frozen=True)
class Engine:
    """Everything that a managed request needs, wired once."""

    upstream: Upstream
    bodies: Bodies
    reader: Reader
    models: Models
    recognition: Recognition
    decisions: Decisions
    pins: Pins
    injections: Injections
    naming: Naming
    foreground: Foreground
    background: Background
    extras: Extras
    warmth: Warmth
    tools: Tools
    policies: Callable[[str], Policy]
    """The policies in force by name, without a name the default; raises InvalidPolicy."""
    clock: Clock

    async def prepare(self, incoming: Incoming, policy: Policy, appended: Appended | None = None) -> Prepared:
        """Decide what is forwarded. Raises the errors of a request that cannot be read.

        Raises StoreUnavailable for an appended turn, and where the policy is closed on faults.
        """
        asked = self._read(incoming, policy, appended)
        recognised = await self.recognition.recognise(
            asked.envelope.caller, asked.history, asked.lane, needs_store=asked.needs_store
        )
        pins, unsaved = await self.pins.settle(recognised, asked.pinned, policy.store.ttl)
        injection, unkept = await self.injections.settle(recognised, asked.inject, policy.store.ttl)
        model = self.models.of(recognised.tenant, asked.history.model)
        chain = await self._count(asked, recognised, model)
        history = asked.history.completed(recognised.hidden, injection)
        tool = b"" if model.refuses_tools else offered_tool(policy, history.body)
        budget = await self.decisions.budget(model, history, policy, asked.envelope.budget, tool)
        case = self._case(asked, recognised, history.outgoing_chain(chain), pins, budget, tool, model)
        if self.models.needs_listing(model, case.model, case.credentials):
            self.background.run(self.models.read_listing(case.credentials), is_needed=False)
        verdict = await self.decisions.decide(case, history)
        prepared = Prepared(
            policy=policy,
            history=history,
            recognised=recognised,
            budget=budget,
            case=case,
            verdict=verdict,
            plain=self.decisions.body(case, history, verdict),
            tools=await self._fresh(case, history),
            arrived=asked.arrived,
            degraded=[*recognised.degraded, *unsaved, *unkept],
            appended=appended,
        )
        prepared.answerers = self.decisions.answerers(case, history, verdict)
        self.extras.add(prepared)
        return prepared

    def _read(self, incoming: Incoming, policy: Policy, appended: Appended | None) -> Asked:
        arrived = self.clock.monotonic()
        envelope, caller = incoming.envelope, incoming.envelope.caller
        scope = f"{caller.tenant}\0{caller.name}".encode(errors="surrogatepass")
        is_shared = caller.name is None
        read = self.bodies.read(incoming.body, scope, policy.limits.messages, is_shared=is_shared)
        body, extension = take_extension(read.body)
        is_named = caller.key is not None and caller.key.sid == NAMED
        root = appended.root if appended else root_of(body, by_header=is_named)
        history = self.reader.read(body, root, read.before)
        return Asked(
            arrived=arrived,
            envelope=envelope,
            policy=policy,
            read=read,
            history=history,
            lane=lane_of(history.model, policy, envelope.budget),
            pins=appended.pins if appended else extension.pins_from_end(len(history.head)),
            inject=appended.inject if appended else extension.inject,
            appended=appended,
        )

    async def _count(self, asked: Asked, recognised: Recognised, model: Model) -> Chain:
        """Count what is new; the rest, and how the model counts, the store may know."""
        history, last = asked.history, recognised.found.session
        if last is not None and last.model == history.model:
            model.remember_ratio(last.ratio)
        if not history.new:
            return history.counted
        self.reader.take_counts(history, recognised.found.counts)
        await self.reader.count(history)
        chain = history.chain()
        self.bodies.keep(asked.read, history.placed(chain))
        return chain

    def _case(
        self,
        asked: Asked,
        recognised: Recognised,
        chain: Chain,
        pins: frozenset[bytes],
        budget: Budget,
        tool: bytes,
        model: Model,
    ) -> Case:
        history, policy = asked.history, asked.policy
        rule = policy.summary.alternate
        return Case(
            tenant=recognised.tenant,
            key=recognised.key,
            lane=asked.lane,
            model=history.model,
            chain=chain,
            head_count=len(history.head),
            policy=policy,
            budget=budget,
            epochs=recognised.epochs,
            saved=recognised.saved,
            credentials=asked.envelope.credentials,
            deadline=asked.arrived + _DEADLINE,
            alternates=model.alternates if rule == "auto" else rule,
            conditions=self.warmth.conditions(
                recognised, history, asked.lane, budget.head, boundary=asked.envelope.is_boundary
            ),
            tool=tool,
            pins=pins,
        )

    async def _fresh(self, case: Case, history: History) -> ToolCache:
        given = history.injection.tools if history.injection else ()
        if not (case.policy.tools or given):
            return NOTHING_FRESH
        try:
            return await self.tools.of(case, history.said_in_place, given)
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs what is kept, not the answer
            log_fault("reading tool results failed", error)
            return NOTHING_FRESH

    async def send(self, prepared: Prepared, incoming: Incoming) -> Sent:
        """Forward; a refusal for length teaches the window, and the request is pruned and sent once more.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse.
        """
        await self.foreground.given_way()
        sent = await self.forward(incoming, prepared.body)
        try:
            if sent.response.status == _OK:
                self._answered(prepared)
                if not sent.told:
                    return sent
            is_changed = (
                self._let_alternate(prepared, sent)
                or (
                    self.learn_refusal(prepared, sent)
                    and await self.decisions.prune_harder(prepared, incoming)
                )
                or self._withdraw_tool(prepared, sent)
                or self.extras.take_out_refused(prepared, sent)
            )
            if not is_changed:
                return sent
        except BaseException:
            await sent.response.aclose()
            raise
        await sent.response.aclose()
        sent = await self.forward(incoming, prepared.body)
        if sent.response.status == _OK:
            self._answered(prepared)
        self.learn_refusal(prepared, sent)  # passed on all the same: the next turn acts on it
        return sent

    def _answered(self, prepared: Prepared) -> None:
        key = prepared.recognised.key
        self.warmth.answered(key, prepared.case.lane)
        self.extras.taken(prepared)
        if self.recognition.was_lost(key):
            prepared.degraded.append("previous-turn")

    def _let_alternate(self, prepared: Prepared, sent: Sent) -> bool:
        """Whether notes were refused for the order of roles, and go out within their neighbours now."""
        if sent.response.status != _BAD_REQUEST or not _WANTS_ALTERNATION.search(sent.told):
            return False
        case = prepared.case
        self.models.of(case.tenant, case.model).alternates = True
        body = self.decisions.body(case, prepared.history, prepared.verdict)
        is_changed = body != prepared.body
        prepared.rewrite(body)
        return is_changed

    def _withdraw_tool(self, prepared: Prepared, sent: Sent) -> bool:
        """Whether a tool of ours was refused, and the request goes out without it now."""
        if not self.extras.refuses_tool(prepared, sent):
            return False
        prepared.case = replace(prepared.case, tool=b"")
        prepared.rewrite(self.decisions.body(prepared.case, prepared.history, prepared.verdict))
        return True

    def learn_refusal(self, prepared: Prepared, sent: Sent, more: int = 0) -> bool:
        """Whether an answer is a refusal for length from which something was learned.

        ``more`` are counted tokens that went out after the view.
        """
        refusal = is_overflow_error(sent.response.status, sent.told, prepared.body)
        if refusal is None:
            return False
        case, reserve = prepared.case, reserve_of(prepared.history, prepared.policy) or 0
        tokens = prepared.sent_tokens + more
        model = self.models.of(case.tenant, case.model)
        return self.models.learn_refusal(model, tokens, reserve, refusal)

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
