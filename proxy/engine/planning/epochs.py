"""Which plan a request is forwarded with, and whether it begins an epoch.

The core decides (:mod:`proxy.core.planning.planner`); this module carries its decision out. It reads the
epochs in force from the store, asks the upstream for summaries, and writes a new epoch before anything is
forwarded, so that two workers that reach it together send the same bytes (law 3).
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from proxy.cache import CacheMemory
from proxy.core.budget.budget import Stage
from proxy.core.economics.economy import account_of, is_cold, late_account, prices_in, shortfall
from proxy.core.planning.changes import Change, as_requested
from proxy.core.planning.draft import Draft
from proxy.core.planning.life import NO_PAST, Gate, in_force, must_be_earned, past_of
from proxy.core.planning.plan import EMPTY, Account, Epoch, Plan, Verb, Verdict, view_tokens
from proxy.core.planning.planner import cuts_protected, draft_epoch, due_strategy, finish, with_late_summaries
from proxy.core.planning.reasoning import is_amid_reasoning, signed_in
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Situation
from proxy.core.planning.strategies import BY_UNITS, acts_by_usage, has_waited, strategy_of
from proxy.engine.background import off_loop
from proxy.engine.flow import Decision, Request
from proxy.engine.planning.planning_cache import PendingEpochs, PlanCache
from proxy.engine.planning.summaries_ahead import SummariesAhead
from proxy.engine.sessions.session_cache import EpochLog
from proxy.engine.summaries.jobs import Owner, SummaryJobs, unsummarised
from proxy.engine.summaries.pool import GapSummaries
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, SessionKey, TokenCounter, TurnStore
from proxy.telemetry import Metrics, log_event, log_fault

_RACES = 4
_MOST_WAITING = 3.0
"""Longest that a request may wait for summaries, in seconds from its arrival (earlier steps included)."""
_PROTECTED_CUT = ("protected-cut",)


class Epochs:
    """Chooses the plans of all sessions of this process."""

    def __init__(
        self,
        store: TurnStore,
        summary_jobs: SummaryJobs,
        counter: TokenCounter,
        clock: Clock,
        metrics: Metrics,
        memory: CacheMemory,
    ) -> None:
        self._store = store
        self._summary_jobs = summary_jobs
        self._counter = counter
        self._clock = clock
        self._metrics = metrics
        self._pending = PendingEpochs(memory)
        self._ahead = SummariesAhead(summary_jobs, self._pending, clock)
        self._from_scratch = PlanCache(memory)

    async def decide(self, request: Request, races: int = _RACES) -> Decision:
        """Return the plan for a request.

        A new epoch is in the store when this returns, unless the decision is marked degraded. Where planning
        fails, the plan in force stays. Raises what went wrong if there is none.
        """
        log = request.epoch_log
        if log is None:
            # Replay the request's own past, so that each turn without a store cuts what the last one cut.
            alone = replace(self._situation(request, ())[0], conditions=UNKNOWN_CONDITIONS)
            plan, number = await self._from_scratch.of(request.session.tenant, alone)
            return replace(Decision.under(request, plan), number=number)
        if log.saved < len(log.epochs):
            with suppress(StoreUnavailable):
                log = await self._append(request, log)
                request = replace(request, epoch_log=log)
        situation, epoch = self._situation(request, log.epochs)
        current = Decision.under(request, situation.plan, epoch)
        if epoch is not None and _was_decided(epoch, request, current.stage):
            return current
        try:
            return await self._next(request, log, situation, current, races)
        except Exception as error:
            if epoch is None:
                raise
            log_fault("planning failed", error)
            return replace(current, degraded=("not-planned",))

    async def _next(
        self, request: Request, log: EpochLog, situation: Situation, current: Decision, races: int
    ) -> Decision:
        """Return the decision under a new epoch, if one begins now; else ``current``."""
        may_come_anew = request.session.is_new and request.is_one_off
        is_due = must_be_earned(current.stage) if may_come_anew else current.stage is Stage.EMERGENCY
        if current.epoch is None and is_due:
            # A session's first request is over its budget: its past is replayed. Where the next request may
            # begin a session too, this happens from *trim* on: that one is then cut at the same place, behind
            # a prefix that the provider has cached.
            tenant = request.session.tenant
            plan, _ = await self._from_scratch.of(tenant, situation, at_trim=may_come_anew)
            is_at_cost = await off_loop(request.chain, lambda: cuts_protected(situation, plan))
            degraded, drafted = _PROTECTED_CUT if is_at_cost else (), None
            decision = replace(current, plan=plan, summary="none", degraded=degraded)
        elif (result := await self._draft(request, situation, current)) is None:
            return await self._with_late_summaries(request, log, situation, current, races)
        else:
            decision, drafted = result
        if decision.plan == situation.plan:
            return current
        must_pay, known = (False, situation) if drafted is None else (drafted.must_pay, drafted.situation)
        account = account_of(known, decision.plan, must_pay=must_pay)
        if account is not None and account.verdict is Verdict.WAITS:
            return replace(current, lacking=1)
        by_units = drafted is not None and drafted.by_units
        return await self._begin(request, log, situation, decision, account, races, by_units=by_units)

    async def without_reasoning(self, request: Request, decision: Decision) -> Decision | None:
        """Return the decision without signed reasoning, which was refused; None where no more of it is left.

        It is written as an epoch, so that later turns leave out the same reasoning.
        """
        refused = await off_loop(request.chain, partial(signed_in, request.chain))
        epoch = decision.epoch
        plan, already = decision.plan, epoch.without_reasoning if epoch is not None else ()
        if decision.is_unsigned or all(plan.covers(place) or place in already for place in refused):
            return None
        if decision.epoch_log is None:
            return replace(decision, is_unsigned=True)
        request = replace(request, epoch_log=decision.epoch_log)
        situation, epoch = self._situation(request, decision.epoch_log.epochs)
        account, before = Account(Verdict.REFUSED), replace(decision, plan=situation.plan, epoch=epoch)
        return await self._begin(request, decision.epoch_log, situation, before, account, 0)

    def forget(self, key: SessionKey) -> None:
        self._pending.forget(key)

    def _situation(self, request: Request, epochs: Sequence[Epoch]) -> tuple[Situation, Epoch | None]:
        """Return the situation from which an epoch would be planned, and the epoch in force."""
        chain, conditions, epoch, policy = request.chain, request.conditions, None, request.incoming.policy
        if request.is_one_off:
            # A cut that no request may ever continue is not worth a summary.
            policy = policy.without_summaries
        hashes = chain.hashes
        if epochs:  # these properties are computed only where there is an epoch to choose
            # Estimated counts are of another scale than the epoch's, and only of bodies that are not calm.
            counted = None if chain.is_estimated else request.counted_tokens
            epoch = in_force(epochs, hashes, counted, chain.keeps_open_part, chain.editable_length)
        if policy.stages.max_units and epoch is not None:
            conditions = replace(conditions, since=epoch.length_at_start(hashes))
        elif policy.stages.max_units and request.history.suffix.length:
            # The client drops its oldest messages itself: an epoch by count would not outlive the next drop,
            # and another would begin with each request.
            conditions = replace(conditions, since=len(hashes))
        situation = Situation(
            chain=chain,
            plan=epoch.plan if epoch is not None else EMPTY,
            policy=policy,
            budget=request.budget,
            count=self._counter.count,
            conditions=conditions,
            pins=request.pins,
            past=past_of(epochs, epoch, hashes) if epoch is not None else NO_PAST,
        )
        return situation, epoch

    async def _draft(
        self, request: Request, situation: Situation, current: Decision
    ) -> tuple[Decision, Draft] | None:
        """Return the decision of an epoch beginning now, and its draft; None if none begins."""
        policy, due = situation.policy, partial(due_strategy, situation, current.stage)
        # What acts by count reads the whole of a conversation that it sees for the first time.
        counts = policy.stages.max_units or not acts_by_usage(policy.strategy.name)
        if (await off_loop(request.chain, due) if counts else due()) is None:
            if (ahead := strategy_of(policy.strategy.name).ahead(situation)) is not None:
                await self._ahead.for_next_exchange(request, ahead, current)
            elif prices_in(situation) is None:
                await self._ahead.for_stage(request, situation, current, Stage.TRIM)
            return None
        owner = self._ahead.owner(request, situation, current)
        prepared = self._ahead.prepared(request, situation, owner)
        hurries = current.stage is Stage.COMPACT and bool(prepared.under_way)
        until = self._clock.monotonic() + self._wait_left(request)
        if hurries:
            await prepared.wait(until - self._clock.monotonic())
        under_way = prepared.under_way
        draft = await self._due_draft(request, situation, current, owner, prepared)
        if draft is None:
            return None
        wanted = await self._summary_jobs.wanted(draft, owner, under_way)
        # Summaries that nobody waits for are started with the epoch, unless a prepared one fits. With records
        # they must start here: afterwards no gap would lack one.
        records = draft.strategy is not None and draft.strategy.records
        is_missing = (draft.waits_for_summaries or records) and wanted.start_missing()
        waits = draft.waits_for_summaries and is_missing
        if waits:
            await wanted.wait(until - self._clock.monotonic())
        summaries = wanted.texts()
        plan = await off_loop(request.chain, lambda: finish(draft, summaries))
        if plan == situation.plan:  # a summary did not fit, and a notice is longer than what it replaces
            return None
        degraded = _PROTECTED_CUT if draft.yielded else ()
        is_late = hurries and bool(under_way)
        summary = "failed" if is_late else wanted.outcome(plan, waited=waits or hurries)
        return replace(current, plan=plan, summary=summary, degraded=degraded), draft

    def _wait_left(self, request: Request) -> float:
        """Return the seconds that the request may still wait for summaries."""
        left = request.incoming.arrived + _MOST_WAITING - self._clock.monotonic()
        return min(request.incoming.policy.summary.wait, left)

    async def _with_late_summaries(
        self, request: Request, log: EpochLog, situation: Situation, current: Decision, races: int
    ) -> Decision:
        """Where no epoch is due, start the missing summaries and put in those that arrived late.

        A late summary replaces its notice where that costs nothing now. Where a person asked for the cut, it
        does so at once, and the request waits for the summaries that it has started.
        """
        if current.stage is Stage.TRIM and prices_in(situation) is not None:
            current = replace(current, lacking=self._pending.lacking(request))
        epoch = current.epoch
        policy, situation = situation.policy, as_requested(situation, log.epochs, epoch)
        is_asked = situation.policy is not policy
        if epoch is None or not unsummarised(situation):
            return current
        owner = Owner.of_request(request)
        begun = await self._ahead.begin_lacking(request, situation, epoch, owner, is_asked=is_asked)
        if is_amid_reasoning(situation.chain) or not (is_asked or is_cold(situation)):
            return current
        if is_asked:
            await begun.wait(self._wait_left(request))
        texts = self._summary_jobs.late(situation, owner)
        if not texts:
            return current
        new = await off_loop(request.chain, lambda: with_late_summaries(situation, texts))
        usage = request.budget.usage(view_tokens(new, request.chain.tokens))
        if new == situation.plan or usage >= situation.policy.stages.trim:
            return current
        summary = "waited" if is_asked and begun.spans else "ready"
        decision = replace(current, plan=new, summary=summary)
        return await self._begin(request, log, situation, decision, late_account(situation, new), races)

    async def _due_draft(
        self,
        request: Request,
        situation: Situation,
        current: Decision,
        owner: Owner,
        prepared: GapSummaries,
    ) -> Draft | None:
        """Return the draft of the due epoch; None if it waits."""
        stage, parent, under_way = current.stage, current.parent, prepared.under_way
        situation = await self._summary_jobs.informed(situation, owner, prepared)
        is_by_units = due_strategy(situation, stage) is BY_UNITS
        if is_by_units and under_way and not has_waited(situation):
            return None
        acts_now = strategy_of(situation.policy.strategy.name).may_act_now(situation)
        if is_by_units or stage.is_pressing or acts_now or prices_in(situation) is None:
            draft = await off_loop(request.chain, lambda: draft_epoch(situation, stage))
        else:
            draft = await self._paying_draft(request, situation, stage, parent)
            if draft is None and stage is Stage.TRIM:
                await self._ahead.for_stage(request, situation, current, Stage.COMPACT)
        if draft is not None and Gate.PREPARED in draft.gates and not has_waited(situation):
            wanted = await self._summary_jobs.wanted(draft, owner, under_way)
            if wanted.start_missing():
                self._pending.prepare(request, parent, wanted.spans)
                return None
        return draft

    async def _paying_draft(
        self, request: Request, situation: Situation, stage: Stage, parent: str
    ) -> Draft | None:
        """Return the draft of an epoch that pays; None if none does.

        Also None where nothing has changed since an earlier draft did not pay.
        """
        if not (is_cold(situation) or self._pending.has_grown(request, parent)):
            return None
        self._pending.note_lacking(request, parent)  # so that concurrent requests need not draft too
        draft = await off_loop(request.chain, lambda: draft_epoch(situation, stage))
        lacking = shortfall(draft) if draft is not None else 0
        self._pending.note_lacking(request, parent, lacking)
        return None if lacking else draft

    async def _begin(
        self,
        request: Request,
        log: EpochLog,
        situation: Situation,
        decision: Decision,
        account: Account | None,
        races: int,
        *,
        by_units: bool = False,
    ) -> Decision:
        """Write an epoch, or adopt the one that another worker wrote first."""
        change = Change(
            lane=request.session.lane.id,
            head_count=len(request.history.head),
            before=situation,
            plan=decision.plan,
            stage=decision.stage,
            parent=decision.epoch,
            alternates=request.alternates(None),
            account=account,
            by_units=by_units,
        )
        epoch = await off_loop(request.chain, partial(change.epoch, self._clock.now()))
        log = replace(log, epochs=(*log.epochs, epoch))
        view = view_tokens(decision.plan, request.chain.tokens)
        begun = replace(decision, view_tokens=view, epoch=epoch, number=epoch.number, epoch_log=log)
        unsaved = replace(begun, degraded=(*decision.degraded, "epoch-not-saved"))
        session, is_shadow = request.session.id, request.incoming.is_shadow
        tell = partial(self.tell, session, situation.plan, epoch, is_shadow=is_shadow)
        begun_from = as_requested(situation.under(decision.plan), log.epochs, epoch)
        owner = self._ahead.owner(request, situation, decision)
        try:
            stored = await self._append(request, log)
        except StoreUnavailable:
            tell()
            await self._ahead.begin_lacking(request, begun_from, epoch, owner)
            return unsaved
        if any(other.id == epoch.id for other in stored.epochs):
            self._pending.drop(request)
            tell()
            await self._ahead.begin_lacking(request, begun_from, epoch, owner)
            self._ahead.warn(request, situation, begun_from)
            return replace(begun, epoch_log=stored)
        if races <= 0:
            return unsaved
        return await self.decide(replace(request, epoch_log=stored), races - 1)

    def tell(self, session: str, before: Plan, epoch: Epoch, *, is_shadow: bool = False) -> None:
        """Count a new epoch, and log what it cuts of the session, or in shadow would have cut.

        ``session`` is its id, ``before`` the plan that was in force.
        """
        self._metrics.epochs.labels(stage=epoch.stage).inc()
        self._metrics.cut_messages.labels(reason=epoch.stage).inc(max(epoch.plan.cut - before.cut, 0))
        if epoch.removed_tokens <= 0:
            return
        messages = f"{epoch.original_count}→{epoch.final_count}"
        tokens = f"{epoch.original_tokens}→{epoch.final_tokens}"
        log_event(
            f"{'would have pruned' if is_shadow else 'pruned'}: messages {messages}, tokens {tokens}",
            session=session,
            epoch=epoch.number,
            stage=epoch.stage,
            reason=epoch.reason,
        )

    async def _append(self, request: Request, log: EpochLog) -> EpochLog:
        """Append the epochs that the store lacks to the lane; return the lane's epochs after that.

        If two workers write an epoch, one of them counts for both (law 3): where others have written in the
        meantime, ours are not written. Raises StoreUnavailable, also where the session was deleted meanwhile.
        """
        epochs, place, session = log.epochs, log.saved, request.session
        while place < len(epochs):
            ttl = request.incoming.policy.store.ttl
            written = await self._store.begin_epoch(
                session.key, epochs[place], place, ttl, begins=session.is_new
            )
            if not written and place:
                place = 0  # the store lost its data: write the lane's epochs again from the first
            elif not written:
                raise StoreUnavailable("The session is gone.")
            elif written[0].id != epochs[place].id:
                epochs = (*epochs[:place], *written)
                return replace(log, epochs=epochs, saved=len(epochs))
            else:
                place += 1
        return replace(log, epochs=epochs, saved=len(epochs))


def _was_decided(epoch: Epoch, request: Request, stage: Stage) -> bool:
    """Whether this very request was decided on before: repeated, it is sent as the same bytes.

    Messages that a person asked to restore are also sent whole, if they fit, while at most one user message
    followed. After that the policy decides.
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
