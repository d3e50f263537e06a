"""Which plan a request is forwarded with, and whether an epoch begins at it.

The core decides (:mod:`proxy.core.planning.planner`); here its decision is carried out: the epochs in force
come from the store, summaries from the upstream, and a new epoch is written
(:mod:`proxy.engine.planning.epochs`) before anything is forwarded, so that two workers which reach it
together send the same bytes (law 3).
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from proxy.cache import Memory
from proxy.core.budget.budget import Stage, stage_of
from proxy.core.economics.economy import account_of, is_cold, late_account, prices_in, shortfall
from proxy.core.planning.changes import Change
from proxy.core.planning.life import NO_PAST, Gate, in_force, past_of
from proxy.core.planning.plan import EMPTY, Account, Epoch, Plan, Verb, Verdict, view_tokens
from proxy.core.planning.planner import (
    Draft,
    acts_now,
    cuts_protected,
    draft,
    due_strategy,
    finish,
    with_late,
    yielded_protection,
)
from proxy.core.planning.reasoning import is_amid_reasoning, signed_in
from proxy.core.planning.situation import Situation
from proxy.engine.background import off_loop
from proxy.engine.flow import Decision, Request
from proxy.engine.models.asking import Caller
from proxy.engine.planning.planning_cache import PendingDrafts, PlanCache
from proxy.engine.sessions.session_cache import EpochLog
from proxy.engine.summaries.wanted import SummaryJobs, unsummarised
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, SessionKey, TokenCounter, TurnStore
from proxy.telemetry import Metrics

_RACES = 4
MOST_WAITING = 3.0
"""Seconds from its arrival for which a request may wait for summaries and what comes before them."""
_PROTECTED_CUT = ("protected-cut",)


class Epochs:
    """Decides on plans for all sessions of this process."""

    def __init__(
        self,
        store: TurnStore,
        summary_jobs: SummaryJobs,
        counter: TokenCounter,
        clock: Clock,
        metrics: Metrics,
        memory: Memory,
    ) -> None:
        self._store = store
        self._summary_jobs = summary_jobs
        self._counter = counter
        self._clock = clock
        self._metrics = metrics
        self._drafts = PendingDrafts(memory)
        self._from_scratch = PlanCache(counter.count, memory)

    async def decide(self, request: Request, races: int = _RACES) -> Decision:
        """The plan for a request; a new epoch is in the store when this returns, unless that is degraded."""
        log = request.log
        if log is None:
            # Its own past is replayed, so that each turn without a store cuts what the last one cut.
            plan, number = await self._from_scratch.of(request)
            return replace(_unchanged(request, plan), number=number)
        if log.saved < len(log.epochs):
            with suppress(StoreUnavailable):
                log = await self._append(request, log)
                request = replace(request, log=log)
        situation, epoch = self._situation(request, log.epochs)
        standing = _unchanged(request, situation.plan, epoch)
        if epoch is not None and _was_decided(epoch, request, standing.stage):
            return standing
        decided = None
        if epoch is None and standing.stage is Stage.EMERGENCY:
            decided = await self._replayed(request, situation, standing), False
        elif due_strategy(situation, standing.stage) is not None:
            decided = await self._drafted(request, situation, standing)
        if decided is None:
            if unsummarised(situation) and is_cold(situation) and not is_amid_reasoning(situation.chain):
                return await self._bring_late(request, log, situation, standing, races)
            return standing
        decision, may_wait = decided
        if decision.plan == situation.plan:
            return standing
        account = account_of(situation, decision.plan, may_wait=may_wait)
        if account is not None and account.verdict is Verdict.WAITS:
            return standing
        return await self._begin(request, log, situation, decision, account, races)

    async def without_reasoning(self, request: Request, decision: Decision) -> Decision | None:
        """The same, but for the signed reasoning, which was refused; None where it holds no more of that.

        It is written as an epoch, so that the turns after it leave out the same.
        """
        refused, epoch = signed_in(request.chain), decision.epoch
        plan, already = decision.plan, epoch.without_reasoning if epoch is not None else ()
        if decision.is_unsigned or all(plan.covers(place) or place in already for place in refused):
            return None
        if decision.log is None:
            return replace(decision, is_unsigned=True)
        request = replace(request, log=decision.log)
        situation, standing = self._situation(request, decision.log.epochs)
        account, before = Account(Verdict.REFUSED), replace(decision, plan=situation.plan, epoch=standing)
        return await self._begin(request, decision.log, situation, before, account, 0)

    def untouched(self, request: Request) -> Decision:
        """The request as the client wrote it: the last resort where planning itself is at fault."""
        return replace(_unchanged(request, EMPTY), degraded=("not-planned",))

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: nothing decided for it is kept."""
        self._drafts.forget(key)

    def _situation(self, request: Request, epochs: Sequence[Epoch]) -> tuple[Situation, Epoch | None]:
        """What an epoch would be planned from, and the epoch in force."""
        chain, conditions, epoch = request.chain, request.conditions, None
        hashes = chain.hashes
        if epochs:  # what a chain asks is looked at where there is an epoch to choose
            epoch = in_force(epochs, hashes, request.counted, chain.is_spared_by, chain.settled)
        if request.incoming.policy.stages.max_units and epoch is not None:
            conditions = replace(conditions, since=epoch.length_at_start(hashes))
        situation = Situation(
            chain=chain,
            plan=epoch.plan if epoch is not None else EMPTY,
            policy=request.incoming.policy,
            budget=request.budget,
            count=self._counter.count,
            conditions=conditions,
            pins=request.pins,
            past=past_of(epochs, epoch, hashes) if epoch is not None else NO_PAST,
        )
        return situation, epoch

    async def _replayed(self, request: Request, situation: Situation, standing: Decision) -> Decision:
        """What is forwarded of a first request that is over its budget: its own past is replayed."""
        plan, _ = await self._from_scratch.of(request, request.conditions)
        is_at_cost = await off_loop(request.chain, lambda: cuts_protected(situation, plan))
        return replace(standing, plan=plan, summary="none", degraded=_PROTECTED_CUT if is_at_cost else ())

    async def _drafted(
        self, request: Request, situation: Situation, standing: Decision
    ) -> tuple[Decision, bool] | None:
        """What an epoch that begins now would forward, and whether it may wait; None where none begins."""
        parent = standing.epoch.id if standing.epoch is not None else ""
        decided = await self._intend(request, situation, standing.stage, parent)
        if decided is None:
            return None
        wanted = await self._summary_jobs.wanted(decided, request.session, _caller(request))
        missing = wanted.start_missing()
        if missing and decided.waits:
            left = request.incoming.arrived + MOST_WAITING - self._clock.monotonic()
            await wanted.wait(missing, min(request.incoming.policy.summary.wait, left))
        summaries = wanted.texts()
        plan = await off_loop(request.chain, lambda: finish(decided, summaries))
        if plan == situation.plan:  # a summary had no room, and a notice is longer than what it stands for
            return None
        degraded = _PROTECTED_CUT if yielded_protection(decided) else ()
        summary = wanted.outcome(waited=bool(missing))
        return replace(standing, plan=plan, summary=summary, degraded=degraded), decided.may_wait

    async def _bring_late(
        self, request: Request, log: EpochLog, situation: Situation, standing: Decision, races: int
    ) -> Decision:
        """Put summaries that came too late in the place of their notices: it costs nothing now."""
        texts = self._summary_jobs.late(situation, request.session, _caller(request))
        if not texts:
            return standing
        new = await off_loop(request.chain, lambda: with_late(situation, texts))
        usage = request.budget.usage(view_tokens(new, request.chain.tokens))
        if new == situation.plan or usage >= situation.policy.stages.trim:
            return standing
        decision = replace(standing, plan=new, summary="ready")
        return await self._begin(request, log, situation, decision, late_account(situation, new), races)

    async def _intend(
        self, request: Request, situation: Situation, stage: Stage, parent: str
    ) -> Draft | None:
        """The draft of the epoch that is due; None where it waits, while one is prepared."""
        of_caller = request.session, _caller(request)
        situation = situation.under(await self._summary_jobs.anchored(situation, *of_caller))
        kept = await self._drafts.still_good(request, situation, stage, parent)
        if stage.is_pressing or acts_now(situation):
            return kept or await off_loop(request.chain, lambda: draft(situation, stage))
        decided = kept if kept is not None and kept.stage is Stage.TRIM else None
        # Whether it may come out otherwise than when it was last thought about.
        is_open = kept is None
        if prices_in(situation) is not None:
            is_open = is_cold(situation) or self._drafts.has_grown(request, parent)
        is_new = decided is None and is_open
        if is_new:
            self._drafts.reckon(request, parent)  # others that ask meanwhile need not
            decided = await off_loop(request.chain, lambda: draft(situation, stage))
        lacking = shortfall(decided) if decided is not None else 0
        if is_new:
            self._drafts.reckon(request, parent, lacking)
        if decided is None or lacking:
            return await self._prepare(request, situation, kept, parent) if stage is Stage.TRIM else None
        wanted = await self._summary_jobs.wanted(decided, *of_caller)
        if wanted.start_missing() and Gate.PREPARED in decided.gates:
            self._drafts.keep(request, decided, parent)
            return None
        return decided

    async def _prepare(self, request: Request, situation: Situation, kept: Draft | None, parent: str) -> None:
        """No epoch begins; what *compact* would cut is summarised meanwhile, as soon as that is near."""
        rules, usage = request.incoming.policy.stages, request.budget.usage(situation.view)
        if prices_in(situation) is not None and 2 * usage < rules.trim + rules.compact:
            return
        decided = kept or await off_loop(request.chain, lambda: draft(situation, Stage.COMPACT))
        if decided is None:
            return
        wanted = await self._summary_jobs.wanted(decided, request.session, _caller(request))
        wanted.start_missing()
        self._drafts.keep(request, decided, parent)

    async def _begin(
        self,
        request: Request,
        log: EpochLog,
        situation: Situation,
        decision: Decision,
        account: Account | None,
        races: int,
    ) -> Decision:
        """Write an epoch, or take over the one that another worker wrote first."""
        change = Change(
            lane=request.session.lane.id,
            head_count=len(request.history.head),
            before=situation,
            plan=decision.plan,
            stage=decision.stage,
            parent=decision.epoch,
            alternates=request.alternates(None),
            account=account,
        )
        epoch = change.epoch(self._clock.now())
        log = EpochLog((*log.epochs, epoch), log.saved)
        begun = replace(
            decision,
            view=view_tokens(decision.plan, request.chain.tokens),
            epoch=epoch,
            number=epoch.number,
            log=log,
        )
        unsaved = replace(begun, degraded=(*decision.degraded, "epoch-not-saved"))
        try:
            stored = await self._append(request, log)
        except StoreUnavailable:
            return unsaved
        if any(other.id == epoch.id for other in stored.epochs):
            self._drafts.drop(request)
            self._metrics.epochs.labels(stage=decision.stage.value).inc()
            newly_cut = max(decision.plan.cut - situation.plan.cut, 0)
            self._metrics.cut_messages.labels(reason=decision.stage.value).inc(newly_cut)
            self._summary_jobs.rebuild(situation.under(decision.plan), request.session, _caller(request))
            return replace(begun, log=stored)
        if races <= 0:
            return unsaved
        return await self.decide(replace(request, log=stored), races - 1)

    async def _append(self, request: Request, log: EpochLog) -> EpochLog:
        """Append to the lane what the store does not hold yet; answers what the lane then holds.

        Of two workers' epochs one counts, for both (law 3): where others have written in the meantime, ours
        are not written. Raises StoreUnavailable.
        """
        epochs, place = log.epochs, log.saved
        while place < len(epochs):
            ttl = request.incoming.policy.store.ttl
            written = await self._store.begin_epoch(request.session.key, epochs[place], place, ttl)
            if not written and place:
                place = 0  # the store holds less than it did: it lost its data, and gets it back
            elif written and written[0].id != epochs[place].id:
                epochs = (*epochs[:place], *written)
                return EpochLog(epochs, len(epochs))
            else:
                place += 1
        return EpochLog(epochs, len(epochs))


def _caller(request: Request) -> Caller:
    """In whose name a request's summaries are written."""
    rules, credentials = request.incoming.policy.summary, request.incoming.envelope.credentials
    return Caller(rules.model or request.model.name, credentials, rules.timeout)


def _unchanged(request: Request, plan: Plan, epoch: Epoch | None = None) -> Decision:
    """What a request is forwarded with under a plan, where no epoch begins at it."""
    view = view_tokens(plan, request.chain.tokens)
    return Decision(
        plan=plan,
        stage=stage_of(request.budget.usage(view), request.incoming.policy.stages),
        view=view,
        log=request.log,
        epoch=epoch,
        number=epoch.number if epoch is not None else 0,
        summary="ready" if plan.gaps and plan.anchors else "none",
    )


def _was_decided(epoch: Epoch, request: Request, stage: Stage) -> bool:
    """Whether this very request was decided on before: repeated, it goes out in the same bytes.

    What a person asked to see again goes whole once, if it fits: as long as at most one user message came
    since. From then on the policy decides.
    """
    if stage is Stage.EMERGENCY:
        return False
    most, chain = request.budget.tokens, request.chain
    if epoch.begun_at == chain.hashes[-1] and (most is None or epoch.budget <= most):
        return True
    if epoch.asked is not Verb.RESTORE or epoch.begun_at not in chain.hashes:
        return False
    after = chain.messages[chain.hashes.index(epoch.begun_at) + 1 :]
    return sum(message.role == "user" for message in after) <= 1
