"""Start summaries ahead of the epoch that needs them, and missing ones after it, for the next epoch.

So a request seldom waits for a model. Each lane remembers what was started, so that it is started once.
"""

from proxy.core.budget.budget import Stage
from proxy.core.planning.plan import Epoch
from proxy.core.planning.planner import draft_epoch, due_strategy
from proxy.core.planning.situation import Situation
from proxy.engine.background import off_loop
from proxy.engine.flow import Decision, Request
from proxy.engine.planning.planning_cache import PendingEpochs
from proxy.engine.summaries.cached_view import CachedView
from proxy.engine.summaries.jobs import Owner, SummaryJobs
from proxy.engine.summaries.pool import GapSummaries
from proxy.ports import Clock
from proxy.telemetry import log_warning


class SummariesAhead:
    """Starts summaries before anything waits for them."""

    def __init__(self, summary_jobs: SummaryJobs, pending: PendingEpochs, clock: Clock) -> None:
        self._summary_jobs = summary_jobs
        self._pending = pending
        self._clock = clock

    async def for_stage(
        self, request: Request, situation: Situation, current: Decision, stage: Stage
    ) -> None:
        """Start summaries of what an epoch would cut at a stage that is near, once between two epochs."""
        rules, budget = situation.policy.stages, request.budget
        at, below = (rules.trim, rules.warn) if stage is Stage.TRIM else (rules.compact, rules.trim)
        is_near = 2 * budget.usage(situation.view_tokens) >= at + below
        if not (is_near and situation.policy.summary.enabled) or due_strategy(situation, stage) is None:
            return
        parent = current.parent
        if self._pending.is_prepared(request, parent):
            return
        owner = self.owner(request, situation, current)
        prepared = self.prepared(request, situation, owner)
        under_way = prepared.under_way
        situation = await self._summary_jobs.informed(situation, owner, prepared)
        growth = max(int(at * budget.limit) - budget.head - situation.view_tokens, 0)
        draft = await off_loop(request.chain, lambda: draft_epoch(situation, stage, growth=growth))
        if draft is None:
            self._pending.prepare(request, parent, ())
            return
        wanted = await self._summary_jobs.wanted(draft, owner, under_way)
        self._pending.prepare(request, parent, wanted.spans)
        wanted.start_missing()

    async def for_next_exchange(self, request: Request, ahead: Situation, current: Decision) -> None:
        """Start summaries of what will be cut at the next exchange, once between two epochs."""
        parent = current.parent
        if not ahead.policy.summary.enabled or self._pending.is_prepared(request, parent):
            return
        self._pending.prepare(request, parent, ())
        draft = await off_loop(request.chain, lambda: draft_epoch(ahead, current.stage))
        if draft is not None:
            wanted = await self._summary_jobs.wanted(draft, Owner.of_request(request))
            wanted.start_missing()

    async def begin_lacking(
        self, request: Request, situation: Situation, epoch: Epoch, owner: Owner, *, is_asked: bool = False
    ) -> GapSummaries:
        """Start the summaries that an epoch lacked; those done by the next epoch go into its notes."""
        prepared = self.prepared(request, situation, owner)
        begun = await self._summary_jobs.begin_lacking(situation, epoch, prepared, owner, is_asked=is_asked)
        if begun.spans:
            self._pending.prepare(request, "", begun.spans)
        return begun

    def owner(self, request: Request, before: Situation, current: Decision) -> Owner:
        """Return the owner of a request's summaries, with the view that its lane sent ``before``."""
        now = self._clock.monotonic()
        return Owner.of_request(request, CachedView(request, before, current.epoch, now))

    def prepared(self, request: Request, situation: Situation, owner: Owner) -> GapSummaries:
        """Return the summaries that were started for an epoch to come."""
        return self._summary_jobs.of(situation, self._pending.prepared(request), owner)

    def warn(self, request: Request, before: Situation, begun: Situation) -> None:
        """Log gaps that have no summary though they had an epoch's time for it, or it failed."""
        owner = Owner.of_request(request)
        were = self._summary_jobs.missing(before, owner)
        for each in self._summary_jobs.missing(begun, owner):
            start, end = each.span
            if each.why != "not yet" or any(start <= gap.span[0] and gap.span[1] <= end for gap in were):
                session = request.session.id
                log_warning("a summary is missing", session=session, messages=end - start, why=each.why)
