"""Which plan a request is forwarded with, and whether an epoch begins at it.

The core decides (:mod:`proxy.core.planning.planner`); here its decision is carried out: the epochs in force
come from the store, summaries from the upstream, and a new epoch is written
(:mod:`proxy.engine.planning.epochs`) before anything is forwarded, so that two workers which reach it
together send the same bytes (law 3).
"""

from msgspec.structs import replace

from proxy.cache import Memory
from proxy.core.budget.budget import Stage, stage_of
from proxy.core.economics.economy import account_of, is_cold, late_account, prices_in, shortfall
from proxy.core.planning.changes import Change
from proxy.core.planning.life import Gate, in_force, past_of
from proxy.core.planning.plan import EMPTY, Account, Epoch, Plan, Verb, Verdict, view_tokens
from proxy.core.planning.planner import (
    Draft,
    acts_now,
    cuts_protected,
    draft,
    finish,
    is_due,
    with_late,
    yielded_protection,
)
from proxy.core.planning.situation import Situation
from proxy.engine.background import off_loop
from proxy.engine.flow import Decision, Request
from proxy.engine.planning.pending_drafts import PendingDrafts
from proxy.engine.planning.plan_cache import PlanCache
from proxy.engine.sessions.session_cache import EpochLog
from proxy.engine.summaries.wanted import SummaryJobs
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, SessionKey, TokenCounter, TurnStore
from proxy.telemetry import Metrics

# --- writing epochs: of two workers' epochs one counts, for both (law 3) ---


class EpochWriter:
    """The epochs of all lanes, as the store holds them."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store

    async def catch_up(self, request: Request, log: EpochLog) -> EpochLog:
        """Write epochs that could not be written when they began."""
        try:
            return await self.append(request, log)
        except StoreUnavailable:
            return log

    async def append(self, request: Request, log: EpochLog) -> EpochLog:
        """Append to the lane what the store does not hold yet; answers what the lane then holds.

        Where others have written in the meantime their epochs count, and ours are not written. Raises
        StoreUnavailable.
        """
        epochs, place = log.epochs, log.saved
        while place < len(epochs):
            ttl = request.policy.store.ttl
            written = await self._store.begin_epoch(request.session.key, epochs[place], place, ttl)
            if not written and place:
                place = 0  # the store holds less than it did: it lost its data, and gets it back
            elif written and written[0].id != epochs[place].id:
                epochs = (*epochs[:place], *written)
                return EpochLog(epochs, len(epochs))
            else:
                place += 1
        return EpochLog(epochs, len(epochs))


# --- deciding on a request ---


_RACES = 4
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
        self._writer = EpochWriter(store)
        self._summary_jobs = summary_jobs
        self._counter = counter
        self._clock = clock
        self._metrics = metrics
        self._drafts = PendingDrafts(memory)
        self._folds = PlanCache(counter.count, memory)

    async def decide(self, request: Request, races: int = _RACES) -> Decision:
        """The plan for a request; a new epoch is in the store when this returns, unless that is degraded."""
        if request.log is None:
            return await self._without_store(request)
        if request.log.saved < len(request.log.epochs):
            request = replace(request, log=await self._writer.catch_up(request, request.log))
        return await self._decide(request, races)

    async def _decide(self, request: Request, races: int) -> Decision:
        epoch = _in_force(request)
        situation = self._situation(request, epoch)
        standing = self._standing(request, situation, epoch)
        if epoch is not None and _was_decided(epoch, request, standing.stage):
            return standing
        may_begin = _is_replayed(standing) or is_due(situation, standing.stage)  # at every request, and quick
        decision = await self._decision(request, situation, standing) if may_begin else None
        if decision is None:
            if self._summary_jobs.lacks(request, situation.plan) and is_cold(situation):
                return await self._bring_late(request, situation, standing, races)
            return standing
        decision, may_wait = decision
        if decision.plan == situation.plan:
            return standing
        account = account_of(situation, decision.plan, may_wait=may_wait)
        if account is not None and account.verdict is Verdict.WAITS:
            return standing
        return await self._begin(request, situation, decision, account, races)

    def _standing(self, request: Request, situation: Situation, epoch: Epoch | None) -> Decision:
        """What the request is forwarded with where no epoch begins at it."""
        plan = situation.plan
        view = view_tokens(plan, request.chain.tokens)
        return Decision(
            plan=plan,
            stage=stage_of(request.budget.usage(view), request.policy.stages),
            view=view,
            log=request.log,
            epoch=epoch,
            number=epoch.number if epoch else 0,
            summary="ready" if plan.gaps and plan.anchors else "none",
        )

    async def _decision(
        self, request: Request, situation: Situation, standing: Decision
    ) -> tuple[Decision, bool] | None:
        """What an epoch that begins now would forward, and whether it may wait; None where none begins."""
        if _is_replayed(standing):
            plan, _ = await self._folds.of(request, request.conditions)
            is_at_cost = await off_loop(request, lambda: cuts_protected(situation, plan))
            degraded = _PROTECTED_CUT if is_at_cost else ()
            return replace(standing, plan=plan, summary="none", degraded=degraded), False
        parent = standing.epoch.id if standing.epoch else ""
        decided = await self._intend(request, situation, standing.stage, parent)
        if decided is None:
            return None
        plan, summary = await self._finish(request, decided)
        degraded = _PROTECTED_CUT if yielded_protection(decided) else ()
        return replace(standing, plan=plan, summary=summary, degraded=degraded), decided.may_wait

    async def _bring_late(
        self, request: Request, situation: Situation, standing: Decision, races: int
    ) -> Decision:
        """Put summaries that came too late in the place of their notices: it costs nothing now."""
        texts = self._summary_jobs.late(request, situation.plan)
        if not texts:
            return standing
        new = await off_loop(request, lambda: with_late(situation, texts))
        is_small = request.budget.usage(view_tokens(new, request.chain.tokens)) < request.policy.stages.trim
        if new == situation.plan or not is_small:
            return standing
        decision = replace(standing, plan=new, summary="ready")
        return await self._begin(request, situation, decision, late_account(situation, new), races)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: nothing exchange for it is kept."""
        self._drafts.forget(key)

    def untouched(self, request: Request) -> Decision:
        """The request as the client wrote it: the last resort where planning itself is at fault."""
        view = request.chain.tokens.total
        stage = stage_of(request.budget.usage(view), request.policy.stages)
        return Decision(EMPTY, stage, view, request.log, degraded=("not-planned",))

    async def _without_store(self, request: Request) -> Decision:
        """Replay the chain's own past, so that each turn without a store cuts what the last one cut."""
        plan, number = await self._folds.of(request)
        view = view_tokens(plan, request.chain.tokens)
        stage = stage_of(request.budget.usage(view), request.policy.stages)
        return Decision(plan, stage, view, None, number=number)

    def _situation(self, request: Request, epoch: Epoch | None) -> Situation:
        conditions = request.conditions
        if request.policy.stages.max_units and epoch is not None:
            conditions = replace(conditions, since=epoch.length_at_start(request.chain.hashes))
        return Situation(
            chain=request.chain,
            plan=epoch.plan if epoch else EMPTY,
            policy=request.policy,
            budget=request.budget,
            count=self._counter.count,
            conditions=conditions,
            pins=request.pins,
            past=past_of(_epochs(request), epoch, request.chain.hashes),
        )

    async def _intend(
        self, request: Request, situation: Situation, stage: Stage, parent: str
    ) -> Draft | None:
        """The draft of the epoch that is due; None where it waits (and one may be exchange meanwhile)."""
        situation = situation.under(await self._summary_jobs.anchored(request, situation))
        kept = await self._drafts.still_good(request, situation, stage, parent)
        if stage.is_pressing or acts_now(situation):
            return kept or await off_loop(request, lambda: draft(situation, stage))
        decided = kept if kept is not None and kept.stage is Stage.TRIM else None
        is_new = decided is None and self._is_open(request, situation, kept, parent)
        if is_new:
            self._drafts.reckon(request, parent)  # others that ask meanwhile need not
            decided = await off_loop(request, lambda: draft(situation, stage))
        lacking = shortfall(decided) if decided is not None else 0
        if is_new:
            self._drafts.reckon(request, parent, lacking)
        if decided is None or lacking:
            return await self._prepare(request, situation, kept, parent) if stage is Stage.TRIM else None
        wanted = await self._summary_jobs.wanted(request, decided)
        if wanted.start_missing() and Gate.PREPARED in decided.gates:
            self._drafts.keep(request, decided, parent)
            return None
        return decided

    async def _prepare(self, request: Request, situation: Situation, kept: Draft | None, parent: str) -> None:
        """No epoch begins; what *compact* would cut is summarised meanwhile, as soon as that is near."""
        rules, usage = request.policy.stages, request.budget.usage(situation.view)
        if prices_in(situation) is not None and 2 * usage < rules.trim + rules.compact:
            return
        decided = kept or await off_loop(request, lambda: draft(situation, Stage.COMPACT))
        if decided is None:
            return
        (await self._summary_jobs.wanted(request, decided)).start_missing()
        self._drafts.keep(request, decided, parent)

    def _is_open(self, request: Request, situation: Situation, kept: Draft | None, parent: str) -> bool:
        """Whether an epoch at *trim* may come out otherwise than when it was last thought about."""
        if prices_in(situation) is None:
            return kept is None
        return is_cold(situation) or self._drafts.has_grown(request, parent)

    async def _finish(self, request: Request, decided: Draft) -> tuple[Plan, str]:
        """Fetch what summaries may be had in time, and write the notes."""
        wanted = await self._summary_jobs.wanted(request, decided)
        missing = wanted.start_missing()
        if missing and decided.waits:
            left = request.deadline - self._clock.monotonic()
            await wanted.wait(missing, min(request.policy.summary.wait, left))
        summaries = wanted.texts()
        plan = await off_loop(request, lambda: finish(decided, summaries))
        return plan, wanted.outcome(waited=bool(missing))

    async def _begin(
        self, request: Request, situation: Situation, decision: Decision, account: Account | None, races: int
    ) -> Decision:
        """Write an epoch, or take over the one that another worker wrote first."""
        change = Change(
            lane=request.lane,
            head_count=request.head_count,
            before=situation,
            plan=decision.plan,
            stage=decision.stage,
            parent=decision.epoch,
            alternates=request.alternates,
            account=account,
        )
        epoch = change.epoch(self._clock.now())
        log = EpochLog((*_epochs(request), epoch), request.log.saved if request.log else 0)
        begun = replace(
            decision,
            view=view_tokens(decision.plan, request.chain.tokens),
            epoch=epoch,
            number=epoch.number,
            log=log,
        )
        unsaved = replace(begun, degraded=(*decision.degraded, "epoch-not-saved"))
        try:
            stored = await self._writer.append(request, log)
        except StoreUnavailable:
            return unsaved
        if any(other.id == epoch.id for other in stored.epochs):
            self._drafts.drop(request)
            self._metrics.epochs.labels(stage=decision.stage.value).inc()
            newly_cut = max(decision.plan.cut - situation.plan.cut, 0)
            self._metrics.cut_messages.labels(reason=decision.stage.value).inc(newly_cut)
            self._summary_jobs.rebuild(request, situation.under(decision.plan))
            return replace(begun, log=stored)
        if races <= 0:
            return unsaved
        return await self.decide(replace(request, log=stored), races - 1)


def _epochs(request: Request) -> tuple[Epoch, ...]:
    return request.log.epochs if request.log else ()


def _is_replayed(standing: Decision) -> bool:
    """Whether a first request is over its budget: its own past is replayed."""
    return standing.epoch is None and standing.stage is Stage.EMERGENCY


def _in_force(request: Request) -> Epoch | None:
    """The epoch that holds for a request; what its chain asks is looked at where there is one to choose."""
    epochs, chain = _epochs(request), request.chain
    if not epochs:
        return None
    return in_force(epochs, chain.hashes, request.counted, chain.is_spared_by, chain.settled)


def _was_decided(epoch: Epoch, request: Request, stage: Stage) -> bool:
    """Whether this very request was decided on before: repeated, it goes out in the same bytes."""
    if stage is Stage.EMERGENCY:
        return False
    most = request.budget.tokens
    is_same = epoch.begun_at == request.chain.hashes[-1] and (most is None or epoch.budget <= most)
    return is_same or (epoch.asked is Verb.RESTORE and _is_next_exchange(epoch, request))


def _is_next_exchange(epoch: Epoch, request: Request) -> bool:
    """Whether at most one user message came since what was restored was restored.

    What a person asked to see again goes whole once, if it fits; from then on the policy decides.
    """
    chain = request.chain
    if epoch.begun_at not in chain.hashes:
        return False
    after = chain.messages[chain.hashes.index(epoch.begun_at) + 1 :]
    return sum(message.role == "user" for message in after) <= 1
