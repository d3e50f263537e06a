"""The budget of a request, the decision what to cut, and the body to send.

The budget comes from the policy and what is known of the model, the plan from
:mod:`proxy.engine.planning.epochs`. If the upstream refuses a request for its length, both are computed
again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage, Window, WindowSource, budget_tokens, stage_of
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan, view_tokens
from proxy.core.planning.reasoning import signed_in
from proxy.core.planning.strategies import acts_by_usage
from proxy.engine.flow import Decision, Exchange, Incoming, Request, reserve_of
from proxy.engine.intake.history import History
from proxy.engine.intake.reader import Reader
from proxy.engine.models.models import Model, Models
from proxy.engine.planning.epochs import Epochs
from proxy.engine.sessions.session_cache import SessionCache
from proxy.engine.tool_rounds import Answerer
from proxy.errors import ContextLengthExceeded
from proxy.telemetry import log_fault, log_warning

# A ceiling in bytes beside the token budget, for upstreams that refuse a request by its size.
_BESIDE = 256
"""Bytes kept free for the parameters that only the proxy asks for."""
_ROUNDS = 2
"""Attempts to cut only as much as the byte ceiling requires."""
_STRICTER = 1.5
"""Factor by which the budget shrinks further after an attempt whose body was still too large."""


async def within_bytes(
    request: Request,
    decision: Decision,
    size_of: Callable[[Decision], int],
    decide: Callable[[Request], Awaitable[Decision]],
) -> Decision:
    """Return a decision whose body stays within the policy's bytes, as far as anything may be cut."""

    async def again(before: Decision, chain: Chain, budget: Budget) -> Decision:
        made = await decide(replace(request, chain=chain, budget=budget, epoch_log=before.epoch_log))
        return replace(made, view_tokens=view_tokens(made.plan, request.chain.tokens))

    most = request.incoming.policy.budget.bytes
    fullness = (size_of(decision) + _BESIDE) / most
    is_fuller = fullness > request.budget.usage(decision.view_tokens)
    if not is_fuller or stage_of(fullness, request.incoming.policy.stages) is Stage.CALM:
        return decision
    if request.epoch_log is None and fullness <= 1:
        return decision  # each turn is planned from scratch, and one budget gives the same beginning
    for number in range(_ROUNDS):
        chain = request.chain.with_estimated_tokens(decision.plan)
        view = view_tokens(decision.plan, chain.tokens)
        budget = request.budget.filled(view, fullness * _STRICTER**number)
        decision = await again(decision, chain, budget)
        fullness = (size_of(decision) + _BESIDE) / most
        if fullness <= 1:
            return decision
    return await again(decision, request.chain, request.budget.filled(1, request.budget.limit))


@dataclass(frozen=True)
class Decisions:
    """Decides what is forwarded."""

    reader: Reader
    models: Models
    sessions: SessionCache
    epochs: Epochs
    recall: Callable[[Request, Plan], Answerer]
    """Makes the answerer for the tool with which the model reads messages that a plan has cut."""

    async def budget(
        self,
        incoming: Incoming,
        history: History,
        chain: Chain,
        model: Model,
        tool: bytes,
        refused: int | None = None,
    ) -> Budget:
        """Return the request's budget: what the policy allows, or less where the client asks for less.

        It is made for no larger window than was just ``refused`` to this request.
        """
        policy, asked = incoming.policy, incoming.lower_budget
        reserve = reserve_of(history, policy)
        window, ratio = self.models.window(model, policy), model.ratio.value
        if refused is not None and (window.limit is None or refused < window.limit):
            window = Window(refused, WindowSource.REFUSAL)
        limit = None if window.is_least else window.tokens
        added = await self.reader.member_tokens(tool) if tool else 0
        head, last_user = await self.reader.head_tokens(history) + added, chain.last_user_tokens
        needed = ceil((head + last_user) * ratio)
        counts_answer = model.evidence.counts_answer
        stated = policy.budget.limit if asked is None else asked
        tokens = budget_tokens(stated, limit, reserve, needed, counts_answer=counts_answer)
        return Budget(tokens, ratio, head, window, last_user, chain.tokens.total, added)

    async def decide(self, request: Request) -> Decision:
        """Decide what to cut. Raises ContextLengthExceeded where the policy wants that instead."""
        policy, budget, log = request.incoming.policy, request.budget, request.epoch_log
        whole = request.chain.tokens.total
        try:
            is_new = log is not None and not log.epochs and not policy.stages.max_units
            is_calm = is_new and stage_of(budget.usage(whole), policy.stages) is Stage.CALM
            if is_calm and acts_by_usage(policy.strategy.name):  # the common case
                decision = Decision(plan=EMPTY, stage=Stage.CALM, view_tokens=whole, epoch_log=log)
            else:
                decision = await self.epochs.decide(request)
            if policy.budget.bytes:
                decision = await within_bytes(
                    request, decision, lambda each: len(self.body(request, each)), self.epochs.decide
                )
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs the pruning, not the answer
            log_fault("planning failed", error)
            decision = replace(Decision.under(request, EMPTY), degraded=("not-planned",))
        session = request.session
        is_news = decision.epoch_log != request.epoch_log and session.cached.holds(session.lane)
        if decision.epoch_log is not None and is_news:
            self.sessions.keep_log(session.key, session.lane.id, decision.epoch_log)
        if decision.stage is not Stage.CALM:
            _log_overrun(request)
            _log_usage(request, decision)
        if policy.budget.overflow == "error" and budget.usage(decision.view_tokens) > 1:
            raise ContextLengthExceeded(
                needed=budget.real(request.counted_tokens),
                kept=budget.real(budget.head + decision.view_tokens),
                limit=budget.tokens or 0,
            )
        return decision

    def body(self, request: Request, decision: Decision) -> bytes:
        """Return the body to send: the client's own bytes, unless something is cut, added or was refused."""
        history, plan, epoch = request.history, decision.plan, decision.epoch
        if decision.is_unsigned or (epoch is None and plan != EMPTY):
            unsigned = signed_in(request.chain)  # no epoch says what was made before the plan (law 9)
        else:
            unsigned = epoch.without_reasoning if epoch is not None else ()
        tool = request.tool_under(plan)
        body = history.body.raw
        if plan != EMPTY or history.hidden or history.injection is not None or unsigned or tool:
            body = history.edited_body(plan, unsigned, alternates=request.alternates(epoch), tool=tool)
        refused = request.model.refused_members
        return request.chain.dialect.without_members(body, refused) if refused else body

    def recaller(self, request: Request, decision: Decision) -> Answerer | None:
        """Return what answers the tool that the proxy added to this request; None if it added none."""
        return self.recall(request, decision.plan) if request.tool_under(decision.plan) else None

    async def leave_out_reasoning(self, exchange: Exchange) -> bool:
        """Decide again without the refused signed reasoning; return False if there was none."""
        decision = await self.epochs.without_reasoning(exchange.request, exchange.decision)
        return decision is not None and self._take(exchange, exchange.request, decision)

    async def prune_harder(self, exchange: Exchange, window: int) -> bool:
        """Decide again with a window in tokens, after a refusal; return False if the body stays the same."""
        old = exchange.request
        budget = await self.budget(old.incoming, old.history, old.chain, old.model, old.tool, window)
        request = replace(old, budget=budget, epoch_log=exchange.decision.epoch_log)
        return self._take(exchange, request, await self.decide(request))

    def _take(self, exchange: Exchange, request: Request, decision: Decision) -> bool:
        """Make this the request to send; return False if its body is the same as before."""
        body = self.body(request, decision)
        if body == exchange.base_body:
            return False
        exchange.recaller = self.recaller(request, decision)
        exchange.set_request(request, decision, body)
        return True


def _log_overrun(request: Request) -> None:
    """Warn, once for each model, where cutting cannot help."""
    budget, model, window = request.budget, request.model, request.budget.window
    if not budget.is_overrun or model.is_overrun_logged:
        return
    model.is_overrun_logged = True
    needed = budget.real(budget.head + budget.last_user_tokens)
    if window.limit is not None and needed > window.limit:
        log_warning(
            "head and last message exceed the context window: it must be wrong, or the head too large",
            model=model.label,
            window=window.tokens,
            window_from=window.source.value,
            needed=needed,
        )
    else:
        log_warning(
            "the head alone exceeds the budget: the budget must be too small, or the head too large",
            model=model.label,
            budget=budget.tokens,
            head=budget.real(budget.head),
        )


def _log_usage(request: Request, decision: Decision) -> None:
    """Log a warning when a session first reaches *warn* in an epoch, and when it first exceeds its budget."""
    is_over, lane = decision.stage is Stage.EMERGENCY, request.session.lane
    reached = decision.number - decision.begins_epoch(request), is_over
    if reached <= lane.logged:
        return
    lane.logged = reached
    log_warning(
        "emergency: a conversation is over its budget" if is_over else "a conversation has reached warn",
        session=request.session.id,
        stage=decision.stage.value,
        epoch=reached[0],
        full=request.budget.real(request.counted_tokens - request.budget.tool),
        budget=request.budget.tokens,
    )
