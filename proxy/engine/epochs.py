"""Which plan a request is forwarded with, and whether an epoch begins at it.

The core decides (:mod:`proxy.core.planner`); here its decision is carried out: the epochs in force come from
the store, summaries from the upstream, and a new epoch is written by compare-and-set before anything is
forwarded, so that two workers which reach it together send the same bytes (law 3).
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from proxy.core.budget import Budget, Stage, stage_of
from proxy.core.plan import EMPTY, Epoch, Plan, in_force, view_tokens
from proxy.core.planner import Draft, Span, draft, finish, fold, yielded_protection
from proxy.core.policy import Policy
from proxy.core.situation import Chain, Situation
from proxy.core.summary import Source, source_of
from proxy.engine.lru import Lru
from proxy.engine.naming import Naming
from proxy.engine.summaries import Job, Summaries
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, SessionKey, SessionStore, TokenCounter
from proxy.telemetry import Metrics

T = TypeVar("T")

_PREPARED = 4_096
_RACES = 4
_LONG = 20_000
"""Counted tokens of a chain from which planning happens off the event loop."""
_FEW_MESSAGES = 200


@dataclass(frozen=True)
class Case:
    """One request to be decided on."""

    tenant: str
    key: SessionKey
    lane: str
    model: str
    chain: Chain
    head_count: int
    """Messages of the head."""
    policy: Policy
    budget: Budget
    epochs: tuple[Epoch, ...] | None
    """The lane's epochs; None where the store cannot say and this process does not know."""
    credentials: Sequence[tuple[bytes, bytes]]
    deadline: float
    """Monotonic seconds by which all waiting is over."""

    @property
    def counted(self) -> int:
        """Counted tokens of the whole request."""
        return self.budget.head + sum(self.chain.tokens)


@dataclass(frozen=True)
class Verdict:
    """What a request is forwarded with."""

    plan: Plan
    stage: Stage
    """Of the view before this request's edits."""
    view: int
    """Counted tokens of the view, without the head."""
    epochs: tuple[Epoch, ...] | None
    epoch: Epoch | None = None
    number: int = 0
    """Epochs in force, 0 where there is none."""
    summary: str = "none"
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Prepared:
    """A draft whose summaries are being written while the session goes on."""

    decided: Draft
    parent: str
    seal: bytes
    length: int

    def holds_for(self, case: Case, parent: str) -> bool:
        hashes = case.chain.hashes
        return parent == self.parent and len(hashes) >= self.length and hashes[self.length - 1] == self.seal


class Epochs:
    """Decides on plans for all sessions of this process."""

    def __init__(
        self,
        store: SessionStore,
        summaries: Summaries,
        counter: TokenCounter,
        naming: Naming,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._summaries = summaries
        self._counter = counter
        self._naming = naming
        self._clock = clock
        self._metrics = metrics
        self._prepared: Lru[tuple[SessionKey, str], _Prepared] = Lru(_PREPARED)

    async def decide(self, case: Case, races: int = _RACES) -> Verdict:
        """The plan for a request; a new epoch is in the store when this returns, unless that is degraded."""
        if case.epochs is None:
            return await self._without_store(case)
        epoch = in_force(case.epochs, case.chain.hashes, case.counted, case.chain.is_spared_by)
        situation = self._situation(case, epoch.plan if epoch else EMPTY)
        stage = stage_of(case.budget.usage(situation.view), case.policy.stages)
        standing = Verdict(
            plan=situation.plan,
            stage=stage,
            view=situation.view,
            epochs=case.epochs,
            epoch=epoch,
            number=epoch.number if epoch else 0,
            summary="ready" if any(gap.summary for gap in situation.plan.gaps) else "none",
        )
        if epoch is None and stage is Stage.EMERGENCY:
            plan, _ = await self._off_loop(case, lambda: self._fold(case))
            new, summary, degraded = plan, "none", ()
        else:
            decided = await self._intend(case, situation, stage, epoch.id if epoch else "")
            if decided is None:
                return standing
            new, summary = await self._finish(case, decided)
            degraded = ("protected-cut",) if yielded_protection(decided) else ()
        if new == situation.plan:
            return standing
        verdict = replace(standing, summary=summary, degraded=degraded)
        return await self._begin(case, situation, verdict, new, races)

    async def _without_store(self, case: Case) -> Verdict:
        """Replay the chain's own past, so that each turn without a store cuts what the last one cut."""
        plan, number = await self._off_loop(case, lambda: self._fold(case))
        view = view_tokens(plan, case.chain.tokens)
        stage = stage_of(case.budget.usage(view), case.policy.stages)
        return Verdict(plan, stage, view, None, number=number)

    def _fold(self, case: Case) -> tuple[Plan, int]:
        return fold(case.chain, case.policy, case.budget, self._counter.count)

    def _situation(self, case: Case, plan: Plan) -> Situation:
        return Situation(case.chain, plan, case.policy, case.budget, self._counter.count)

    async def _off_loop(self, case: Case, work: Callable[[], T]) -> T:
        """Run planning where it cannot hold up other requests, if it is much."""
        if case.counted < _LONG and len(case.chain) < _FEW_MESSAGES:
            return work()
        return await asyncio.to_thread(work)

    async def _intend(self, case: Case, situation: Situation, stage: Stage, parent: str) -> Draft | None:
        """The draft to begin an epoch with now; None where none begins (it may be prepared in the background)."""
        prepared = self._still_good(case, situation, stage, parent)
        decided = prepared or await self._off_loop(case, lambda: draft(situation, stage))
        if stage is not Stage.TRIM:
            return decided
        if decided is None:
            decided = await self._off_loop(case, lambda: draft(situation, Stage.COMPACT))
        if decided is None:
            return None
        await self._recall(case, decided)
        missing = self._write_missing(case, decided)
        if missing or decided.stage is not Stage.TRIM:
            self._prepared.put((case.key, case.lane), self._keep(case, decided, parent))
            return None
        return decided

    def _keep(self, case: Case, decided: Draft, parent: str) -> _Prepared:
        return _Prepared(decided, parent, case.chain.hashes[-1], len(case.chain))

    def _still_good(self, case: Case, situation: Situation, stage: Stage, parent: str) -> Draft | None:
        """The draft that was prepared for this session, if it still brings the view well below *trim*."""
        if stage not in (Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY):
            return None
        found = self._prepared.get((case.key, case.lane))
        if found is None or not found.holds_for(case, parent):
            return None
        kept_stage = found.decided.stage if stage is Stage.TRIM else stage
        decided = replace(found.decided, situation=situation, stage=kept_stage)
        view = view_tokens(finish(decided, {}), case.chain.tokens)
        return decided if view < case.budget.share(case.policy.stages.trim) else None

    async def _finish(self, case: Case, decided: Draft) -> tuple[Plan, str]:
        """Fetch what summaries may be had in time, and write the notes."""
        await self._recall(case, decided)
        missing = self._write_missing(case, decided)
        if missing and decided.stage is Stage.COMPACT:
            left = case.deadline - self._clock.monotonic()
            await self._summaries.wait(missing, min(case.policy.summary.wait, left))
        jobs = self._jobs(case, decided)
        summaries: dict[Span, str | None] = {}
        for span, job in jobs.items():
            text = self._summaries.ready(job.address)
            if text is not None or self._summaries.has_failed(job.address):
                summaries[span] = text
        plan = await self._off_loop(case, lambda: finish(decided, summaries))
        return plan, _told(jobs, summaries, waited=bool(missing))

    async def _recall(self, case: Case, decided: Draft) -> None:
        jobs = self._jobs(case, decided)
        if jobs:
            await self._summaries.recall(case.key, [job.address for job in jobs.values()])

    def _write_missing(self, case: Case, decided: Draft) -> list[str]:
        """Begin to write the summaries that a draft wants and that are not there; answers their addresses."""
        missing: list[str] = []
        for job in self._jobs(case, decided).values():
            if self._summaries.ready(job.address) is None and not self._summaries.has_failed(job.address):
                self._summaries.start(job)
                missing.append(job.address)
        return missing

    def _jobs(self, case: Case, decided: Draft) -> dict[Span, Job]:
        return {span: self._job(case, source_of(decided, span)) for span in decided.wanted}

    def _job(self, case: Case, source: Source) -> Job:
        rules = case.policy.summary
        model = rules.model or case.model
        tokens = case.policy.summary_tokens(case.budget.limit)
        terms = f"{model}\0{tokens}\0{rules.prompt}".encode()
        return Job(
            address=self._naming.address(case.tenant, source.seal, terms),
            source=source,
            model=model,
            rules=rules,
            max_tokens=tokens,
            headers=case.credentials,
            key=case.key,
            ttl=case.policy.store.ttl,
        )

    async def _begin(
        self, case: Case, situation: Situation, verdict: Verdict, plan: Plan, races: int
    ) -> Verdict:
        """Write an epoch, or take over the one that another worker wrote first."""
        assert case.epochs is not None
        epoch = self._epoch(case, situation, verdict, plan)
        changed = replace(
            verdict,
            plan=plan,
            view=view_tokens(plan, case.chain.tokens),
            epoch=epoch,
            number=epoch.number,
            epochs=(*case.epochs, epoch),
        )
        seen = len(case.epochs)
        try:
            written = await self._store.begin_epoch(case.key, epoch, seen, case.policy.store.ttl)
        except StoreUnavailable:
            return replace(changed, degraded=(*verdict.degraded, "epoch-not-saved"))
        if any(other.id == epoch.id for other in written):
            self._prepared.drop((case.key, case.lane))
            self._count(verdict.stage, situation.plan, plan)
            return replace(changed, epochs=(*case.epochs, *written))
        if races <= 0:
            return replace(changed, degraded=(*verdict.degraded, "epoch-not-saved"))
        known = (*case.epochs, *written) if written else ()
        # Nothing written and nothing there: the store lost what this process remembers, and starts anew.
        return await self.decide(replace(case, epochs=known), races - 1)

    def _epoch(self, case: Case, situation: Situation, verdict: Verdict, plan: Plan) -> Epoch:
        budget, parent = case.budget, verdict.epoch
        after = view_tokens(plan, case.chain.tokens)
        named = parent.id if parent else ""
        reach = case.chain.hashes[plan.depth - 1]
        content = msgspec.msgpack.encode((case.lane, named, reach, plan))
        return Epoch(
            id=hashlib.sha256(content).hexdigest()[:16],
            parent=named,
            number=verdict.number + 1,
            lane=case.lane,
            reach=reach,
            depth=plan.depth,
            calm_below=int(case.policy.stages.warn * budget.limit),
            at=self._clock.now(),
            stage=verdict.stage.value,
            reason=_reason(verdict.stage, case, situation),
            original_count=case.head_count + _length(situation.plan, len(case.chain)),
            original_tokens=budget.real(budget.head + situation.view),
            final_count=case.head_count + _length(plan, len(case.chain)),
            final_tokens=budget.real(budget.head + after),
            emergency_mode=verdict.stage is Stage.EMERGENCY,
            budget=budget.tokens,
            ratio=budget.ratio,
            plan=plan,
        )

    def _count(self, stage: Stage, before: Plan, after: Plan) -> None:
        self._metrics.epochs.labels(stage=stage.value).inc()
        self._metrics.cut_messages.labels(reason=stage.value).inc(max(after.cut - before.cut, 0))


def _told(jobs: Mapping[Span, Job], summaries: Mapping[Span, str | None], *, waited: bool) -> str:
    """The word for the summary header."""
    if not jobs:
        return "none"
    if any(summaries.get(span) is None for span in jobs):
        return "failed"
    return "waited" if waited else "ready"


def _length(plan: Plan, messages: int) -> int:
    """Messages of a view."""
    return messages - plan.cut + sum(bool(gap.note) for gap in plan.gaps)


def _reason(stage: Stage, case: Case, situation: Situation) -> str:
    usage = case.budget.usage(situation.view)
    name = case.policy.strategy.name
    return f"usage {usage:.0%} of {case.budget.tokens} tokens: {stage.value}, by {name}"
