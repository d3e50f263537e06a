"""Which plan a request is forwarded with, and whether an epoch begins at it.

The core decides (:mod:`proxy.core.planner`); here its decision is carried out: the epochs in force come from
the store, summaries from the upstream, and a new epoch is written (:mod:`proxy.engine.lanes`) before anything
is forwarded, so that two workers which reach it together send the same bytes (law 3).
"""

from msgspec.structs import replace

from proxy.core.breaker import past_of
from proxy.core.budget import Stage, stage_of
from proxy.core.change import RESTORE, Change
from proxy.core.counting import since
from proxy.core.economy import account_of, is_cold, late_account, prices_in, shortfall
from proxy.core.late import with_late
from proxy.core.plan import EMPTY, WAITS, Account, Epoch, Plan, in_force, view_tokens
from proxy.core.planner import (
    Draft,
    acts_now,
    cuts_protected,
    draft,
    finish,
    is_due,
    yielded_protection,
)
from proxy.core.situation import Situation
from proxy.engine.case import Case
from proxy.engine.drafts import Drafts
from proxy.engine.folds import Folds, off_loop
from proxy.engine.lanes import Lanes
from proxy.engine.summary_jobs import SummaryJobs
from proxy.engine.verdict import Verdict
from proxy.errors import StoreUnavailable
from proxy.lru import Memory
from proxy.ports import Clock, SessionKey, SessionStore, TokenCounter
from proxy.telemetry import Metrics

_RACES = 4
_PROTECTED_CUT = ("protected-cut",)


class Epochs:
    """Decides on plans for all sessions of this process."""

    def __init__(
        self,
        store: SessionStore,
        summary_jobs: SummaryJobs,
        counter: TokenCounter,
        clock: Clock,
        metrics: Metrics,
        memory: Memory,
    ) -> None:
        self._lanes = Lanes(store)
        self._summary_jobs = summary_jobs
        self._counter = counter
        self._clock = clock
        self._metrics = metrics
        self._drafts = Drafts(memory)
        self._folds = Folds(counter.count, memory)

    async def decide(self, case: Case, races: int = _RACES) -> Verdict:
        """The plan for a request; a new epoch is in the store when this returns, unless that is degraded."""
        if case.epochs is None:
            return await self._without_store(case)
        if case.saved < len(case.epochs):
            case = await self._lanes.catch_up(case)
        return await self._decide(case, races)

    async def _decide(self, case: Case, races: int) -> Verdict:
        epoch = _in_force(case)
        situation = self._situation(case, epoch)
        standing = self._standing(case, situation, epoch)
        if epoch is not None and _was_decided(epoch, case, standing.stage):
            return standing
        may_begin = _may_begin(situation, standing)
        decision = await self._decision(case, situation, standing) if may_begin else None
        if decision is None:
            if self._summary_jobs.lacks(case, situation.plan) and is_cold(situation):
                return await self._bring_late(case, situation, standing, races)
            return standing
        verdict, may_wait = decision
        if verdict.plan == situation.plan:
            return standing
        account = account_of(situation, verdict.plan, may_wait=may_wait)
        if account is not None and account.verdict == WAITS:
            return standing
        return await self._begin(case, situation, verdict, account, races)

    def _standing(self, case: Case, situation: Situation, epoch: Epoch | None) -> Verdict:
        """What the request is forwarded with where no epoch begins at it."""
        plan = situation.plan
        view = view_tokens(plan, case.chain.tokens)
        return Verdict(
            plan=plan,
            stage=stage_of(case.budget.usage(view), case.policy.stages),
            view=view,
            epochs=case.epochs or (),
            saved=case.saved,
            epoch=epoch,
            number=epoch.number if epoch else 0,
            summary="ready" if plan.gaps and plan.anchors else "none",
        )

    async def _decision(
        self, case: Case, situation: Situation, standing: Verdict
    ) -> tuple[Verdict, bool] | None:
        """What an epoch that begins now would forward, and whether it may wait; None where none begins."""
        if _is_replayed(standing):
            plan, _ = await self._folds.of(case, case.conditions)
            is_at_cost = await off_loop(case, lambda: cuts_protected(situation, plan))
            degraded = _PROTECTED_CUT if is_at_cost else ()
            return replace(standing, plan=plan, summary="none", degraded=degraded), False
        parent = standing.epoch.id if standing.epoch else ""
        decided = await self._intend(case, situation, standing.stage, parent)
        if decided is None:
            return None
        plan, summary = await self._finish(case, decided)
        degraded = _PROTECTED_CUT if yielded_protection(decided) else ()
        return replace(standing, plan=plan, summary=summary, degraded=degraded), decided.may_wait

    async def _bring_late(self, case: Case, situation: Situation, standing: Verdict, races: int) -> Verdict:
        """Put summaries that came too late in the place of their notices: it costs nothing now."""
        texts = self._summary_jobs.late(case, situation.plan)
        if not texts:
            return standing
        new = await off_loop(case, lambda: with_late(situation, texts))
        is_small = case.budget.usage(view_tokens(new, case.chain.tokens)) < case.policy.stages.trim
        if new == situation.plan or not is_small:
            return standing
        verdict = replace(standing, plan=new, summary="ready")
        return await self._begin(case, situation, verdict, late_account(situation, new), races)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted: nothing prepared for it is kept."""
        self._drafts.forget(key)

    def untouched(self, case: Case) -> Verdict:
        """The request as the client wrote it: the last resort where planning itself is at fault."""
        view = case.chain.tokens.total
        stage = stage_of(case.budget.usage(view), case.policy.stages)
        return Verdict(EMPTY, stage, view, case.epochs, case.saved, degraded=("not-planned",))

    async def _without_store(self, case: Case) -> Verdict:
        """Replay the chain's own past, so that each turn without a store cuts what the last one cut."""
        plan, number = await self._folds.of(case)
        view = view_tokens(plan, case.chain.tokens)
        stage = stage_of(case.budget.usage(view), case.policy.stages)
        return Verdict(plan, stage, view, None, number=number)

    def _situation(self, case: Case, epoch: Epoch | None) -> Situation:
        conditions = case.conditions
        if case.policy.stages.max_units:
            conditions = replace(conditions, since=since(epoch, case.chain.hashes))
        return Situation(
            chain=case.chain,
            plan=epoch.plan if epoch else EMPTY,
            policy=case.policy,
            budget=case.budget,
            count=self._counter.count,
            conditions=conditions,
            pins=case.pins,
            past=past_of(case.epochs or (), epoch, case.chain.hashes),
        )

    async def _intend(self, case: Case, situation: Situation, stage: Stage, parent: str) -> Draft | None:
        """The draft of the epoch that is due; None where it waits (and one may be prepared meanwhile)."""
        situation = situation.under(await self._summary_jobs.anchored(case, situation))
        kept = await self._drafts.still_good(case, situation, stage, parent)
        if stage in (Stage.COMPACT, Stage.EMERGENCY) or acts_now(situation):
            return kept or await off_loop(case, lambda: draft(situation, stage))
        decided = kept if kept is not None and kept.stage is Stage.TRIM else None
        is_new = decided is None and self._is_open(case, situation, kept, parent)
        if is_new:
            self._drafts.reckon(case, parent)  # others that ask meanwhile need not
            decided = await off_loop(case, lambda: draft(situation, stage))
        lacking = shortfall(decided) if decided is not None else 0
        if is_new:
            self._drafts.reckon(case, parent, lacking)
        if decided is None or lacking:
            return await self._prepare(case, situation, kept, parent) if stage is Stage.TRIM else None
        wanted = await self._summary_jobs.wanted(case, decided)
        if wanted.start_missing():
            self._drafts.keep(case, decided, parent)
            return None
        return decided

    async def _prepare(self, case: Case, situation: Situation, kept: Draft | None, parent: str) -> None:
        """No epoch begins; what *compact* would cut is summarised meanwhile, as soon as that is near."""
        rules, usage = case.policy.stages, case.budget.usage(situation.view)
        if prices_in(situation) is not None and 2 * usage < rules.trim + rules.compact:
            return
        decided = kept or await off_loop(case, lambda: draft(situation, Stage.COMPACT))
        if decided is None:
            return
        (await self._summary_jobs.wanted(case, decided)).start_missing()
        self._drafts.keep(case, decided, parent)

    def _is_open(self, case: Case, situation: Situation, kept: Draft | None, parent: str) -> bool:
        """Whether an epoch at *trim* may come out otherwise than when it was last thought about."""
        if prices_in(situation) is None:
            return kept is None
        return is_cold(situation) or self._drafts.has_grown(case, parent)

    async def _finish(self, case: Case, decided: Draft) -> tuple[Plan, str]:
        """Fetch what summaries may be had in time, and write the notes."""
        wanted = await self._summary_jobs.wanted(case, decided)
        missing = wanted.start_missing()
        if missing and decided.waits:
            left = case.deadline - self._clock.monotonic()
            await wanted.wait(missing, min(case.policy.summary.wait, left))
        summaries = wanted.texts()
        plan = await off_loop(case, lambda: finish(decided, summaries))
        return plan, wanted.outcome(waited=bool(missing))

    async def _begin(
        self, case: Case, situation: Situation, verdict: Verdict, account: Account | None, races: int
    ) -> Verdict:
        """Write an epoch, or take over the one that another worker wrote first."""
        epoch = self._epoch(case, situation, verdict, account)
        known = case.epochs or ()
        begun = replace(
            verdict,
            view=view_tokens(verdict.plan, case.chain.tokens),
            epoch=epoch,
            number=epoch.number,
            epochs=(*known, epoch),
        )
        unsaved = replace(begun, degraded=(*verdict.degraded, "epoch-not-saved"))
        try:
            stored = await self._lanes.append(case, (*known, epoch))
        except StoreUnavailable:
            return unsaved
        if any(other.id == epoch.id for other in stored):
            self._drafts.drop(case)
            self._count(verdict.stage, situation.plan, verdict.plan)
            self._summary_jobs.rebuild(case, situation.under(verdict.plan))
            return replace(begun, epochs=stored, saved=len(stored))
        if races <= 0:
            return unsaved
        return await self.decide(replace(case, epochs=stored, saved=len(stored)), races - 1)

    def _epoch(self, case: Case, situation: Situation, verdict: Verdict, account: Account | None) -> Epoch:
        change = Change(
            lane=case.lane,
            head_count=case.head_count,
            before=situation,
            plan=verdict.plan,
            stage=verdict.stage,
            parent=verdict.epoch,
            alternates=case.alternates,
            account=account,
        )
        return change.epoch(self._clock.now())

    def _count(self, stage: Stage, before: Plan, after: Plan) -> None:
        self._metrics.epochs.labels(stage=stage.value).inc()
        self._metrics.cut_messages.labels(reason=stage.value).inc(max(after.cut - before.cut, 0))


def _is_replayed(standing: Verdict) -> bool:
    """Whether a first request is over its budget: its own past is replayed."""
    return standing.epoch is None and standing.stage is Stage.EMERGENCY


def _may_begin(situation: Situation, standing: Verdict) -> bool:
    """Whether an epoch may begin: asked at every request, and quick."""
    return _is_replayed(standing) or is_due(situation, standing.stage)


def _in_force(case: Case) -> Epoch | None:
    """The epoch that holds for a request; what its chain asks is looked at where there is one to choose."""
    if not case.epochs:
        return None
    chain = case.chain
    return in_force(case.epochs, chain.hashes, case.counted, chain.is_spared_by, chain.settled)


def _was_decided(epoch: Epoch, case: Case, stage: Stage) -> bool:
    """Whether this very request was decided on before: repeated, it goes out in the same bytes."""
    if stage is Stage.EMERGENCY:
        return False
    is_same = epoch.begun_at == case.chain.hashes[-1] and epoch.budget <= case.budget.tokens
    return is_same or (epoch.asked == RESTORE and _is_next_exchange(epoch, case))


def _is_next_exchange(epoch: Epoch, case: Case) -> bool:
    """Whether at most one user message came since what was restored was restored.

    What a person asked to see again goes whole once, if it fits; from then on the policy decides.
    """
    chain = case.chain
    if epoch.begun_at not in chain.hashes:
        return False
    after = chain.messages[chain.hashes.index(epoch.begun_at) + 1 :]
    return sum(message.role == "user" for message in after) <= 1
