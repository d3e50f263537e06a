"""From gaps to jobs for the writer of summaries: which are started when, and where each is stored.

A gap has an address before it is read. It is read and counted only when its summary is written, and off the
event loop (law 7): most requests only check whether the summary is there.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Self

from msgspec.structs import asdict, replace

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.retention import rules_digest
from proxy.core.planning.draft import Draft, lacking_summaries
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.planning.gaps import generation_upon
from proxy.core.planning.plan import Anchor, Epoch, Gap, Plan, Span
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import strategy_of
from proxy.core.summaries.compaction import goal_of, progress_of, units_within
from proxy.core.summaries.source import (
    Source,
    drifted,
    seal_of,
    source_of,
    worthwhile_originals,
)
from proxy.engine.background import off_loop
from proxy.engine.flow import Request
from proxy.engine.intake.naming import Naming
from proxy.engine.models.asking import CallOptions
from proxy.engine.summaries.cached_view import CachedView
from proxy.engine.summaries.compactors import CompactorJob, first_for
from proxy.engine.summaries.job import Job
from proxy.engine.summaries.pool import GapSummaries, Summaries
from proxy.ports import SessionKey

_LEAST_COMPACTION = 300
"""Least tokens for a text with headings, as compactors write it: a shorter one would be cut off."""
_AGAIN = 1.25
"""Factor by which a gap must grow before it is checked again whether its summary is worth rewriting."""


class Owner(NamedTuple):
    """The owner of summaries: a lane of a session, and the caller in whose name the model is asked."""

    tenant: str
    key: SessionKey
    lane: str
    caller: CallOptions
    last: CachedView | None = None
    """The lane's last view, after which the model may be asked for them."""

    @classmethod
    def of_request(cls, request: Request, last: CachedView | None = None) -> Self:
        """Return the owner of the summaries for a request."""
        session = request.session
        return cls(session.tenant, session.key, session.lane.id, request.summary_caller, last)


class Declined:
    """Gaps whose summaries were found not worth rewriting."""

    def __init__(self, memory: CacheMemory) -> None:
        self._ends: Lru[tuple[SessionKey, str, int], int] = Lru(memory)

    def holds(self, owner: Owner, anchor: Anchor) -> bool:
        """Whether that was found for the gap when it was hardly shorter."""
        end = self._ends.get((owner.key, owner.lane, anchor.start))
        return end is not None and end <= anchor.end < _AGAIN * end

    def add(self, owner: Owner, anchor: Anchor) -> None:
        self._ends.put((owner.key, owner.lane, anchor.start), anchor.end)


class Missing(NamedTuple):
    """A gap without a summary."""

    gap: int
    span: Span
    why: str
    """`failed: …` with the reason, `no room` for the summary that exists, or `not yet`."""


class SummaryJobs:
    """Turns drafts into jobs for the writer of summaries."""

    def __init__(self, summaries: Summaries, naming: Naming, memory: CacheMemory) -> None:
        self._summaries = summaries
        self._naming = naming
        self._declined = Declined(memory)
        self._begun: Lru[tuple[SessionKey, str], tuple[str, Sequence[str]]] = Lru(memory)
        """By lane: the epoch whose summaries have all been started, and their addresses."""

    async def wanted(self, draft: Draft, owner: Owner, under_way: Sequence[Span] = ()) -> GapSummaries:
        """Return the summaries of a draft; those that the store holds are fetched.

        A gap waits if it contains one whose summary is ``under_way`` or is being rewritten.
        """
        situation = draft.situation
        spans = await off_loop(situation.chain, lambda: draft.unsummarised_spans)
        under_way = [*under_way, *self._rebuild(situation, owner)]
        wanted = self.of(situation, [span for span in spans if not _holds_any(span, under_way)], owner)
        await self._summaries.recall(owner.key, wanted.addresses.values())
        return wanted

    def of(self, situation: Situation, spans: Sequence[Span], owner: Owner) -> GapSummaries:
        """Return the summaries of these gaps."""
        addresses = {span: self._address(situation, owner, span) for span in spans}
        return GapSummaries(self._summaries, addresses, partial(self._job, situation, owner))

    async def informed(
        self, situation: Situation, owner: Owner, prepared: GapSummaries | None = None
    ) -> Situation:
        """Return the situation with summaries not in a note yet: ``prepared``, late, or rewritten ones."""
        situation = await self._rewritten(situation, owner)
        late = self.late(situation, owner)

        def with_late(gap: Gap) -> tuple[Anchor, ...]:
            text, generation = late.get(gap.span), generation_upon(gap.anchors)
            return gap.anchors if text is None else (Anchor(*gap.span, text, generation=generation),)

        situation = _with_anchors(situation, with_late)
        fresh = [
            Anchor(*span, text, generation=generation_upon(situation.anchors_within(*span)))
            for span, text in (prepared.texts() if prepared is not None else {}).items()
            if text is not None
        ]
        if fresh:
            situation = replace(situation, prepared=tuple(fresh))
        return await self._rewritten(situation, owner) if late or fresh else situation

    async def _rewritten(self, situation: Situation, owner: Owner) -> Situation:
        """Return the situation with each drifted summary replaced by the one rebuilt from the originals."""
        rebuilt = {each: self._address(situation, owner, each.span, "rebuilt") for each in drifted(situation)}
        await self._summaries.recall(owner.key, rebuilt.values())
        texts = {each: self._summaries.ready(address) for each, address in rebuilt.items()}
        new = {each: Anchor(*each.span, text) for each, text in texts.items() if text is not None}
        if not new:
            return situation
        situation = _with_anchors(situation, lambda gap: tuple(new.get(each, each) for each in gap.anchors))
        return replace(situation, prepared=tuple(new.get(each, each) for each in situation.prepared))

    async def begin_lacking(
        self, situation: Situation, epoch: Epoch, prepared: GapSummaries, owner: Owner, *, is_asked: bool
    ) -> GapSummaries:
        """Start the summaries that an epoch lacks, for the next one; return those that were started.

        A summary that failed for a passing reason is started again. A gap that contains a ``prepared`` gap or
        a summary being rewritten builds on that, and is not started while that is running. Nor is one that a
        prepared gap contains: the next epoch will have that one's summary. Unless this one is asked for.
        """
        lane = (owner.key, owner.lane)
        begun, addresses = self._begun.get(lane) or ("", ())
        is_begun = begun == epoch.id and not any(map(self._summaries.may_start, addresses))
        if is_begun or not situation.policy.summary.enabled:
            return self.of(situation, (), owner)
        being_written, texts = prepared.under_way, prepared.texts()
        coming = [] if is_asked else [*being_written, *(span for span in texts if texts[span] is not None)]
        situation = await self.informed(situation, owner, prepared)
        lacking = await off_loop(situation.chain, lambda: lacking_summaries(situation))
        under_way = [*being_written, *self._rebuild(situation, owner)]
        free = [
            span
            for span in lacking
            if not _holds_any(span, under_way) and not any(_holds(each, span) for each in coming)
        ]
        wanted = self.of(situation, free, owner)
        wanted.start_missing()
        if len(wanted.spans) == len(lacking):
            self._begun.put(lane, (epoch.id, (*wanted.addresses.values(),)))
        return wanted

    def missing(self, situation: Situation, owner: Owner) -> list[Missing]:
        """Return the gaps without a summary, and why, as far as this process knows."""
        lacking, missing = {*lacking_summaries(situation)}, list[Missing]()
        for number, gap in enumerate(situation.plan.gaps):
            if gap.span not in lacking:
                continue
            address, why = self._address(situation, owner, gap.span), "not yet"
            text, failure = self._summaries.ready(address), self._summaries.failure(address)
            if text is not None:
                size = situation.count(text)
                is_no_shorter = size >= situation.chain.tokens.between(*gap.span)
                if is_no_shorter or situation.budget.is_over(situation.view_tokens + size):
                    why = "no room"
            elif failure is not None:
                why = f"failed: {failure.replace('_', ' ')}"
            missing.append(Missing(number, gap.span, why))
        return missing

    def late(self, situation: Situation, owner: Owner) -> dict[Span, str]:
        """Return the summaries that came too late for their notes, as far as this process has them."""
        spans = (gap.span for gap in unsummarised(situation))
        ready = ((span, self._summaries.ready(self._address(situation, owner, span))) for span in spans)
        return {span: text for span, text in ready if text is not None}

    def _rebuild(self, situation: Situation, owner: Owner) -> list[Span]:
        """Start to rewrite what was summarised too often, where it pays; return those being written.

        Nobody waits for it, and nothing is summarised on top of it meanwhile: that would carry the old one
        on.
        """
        under_way: list[Span] = []
        for anchor in drifted(situation) if situation.policy.summary.enabled else ():
            address = self._address(situation, owner, anchor.span, "rebuilt")
            if not self._declined.holds(owner, anchor):
                self._summaries.start(address, partial(self._rebuilt, situation, owner, anchor, address))
            if self._summaries.is_writing(address):
                under_way.append(anchor.span)
        return under_way

    def _rebuilt(self, situation: Situation, owner: Owner, anchor: Anchor, address: str) -> Job | None:
        source = worthwhile_originals(situation, anchor, _room(situation))
        if source is None:
            self._declined.add(owner, anchor)
            return None
        return replace(self._plain_job(situation, owner, address, source), rebuilds=True)

    def _job(self, situation: Situation, owner: Owner, span: Span) -> Job:
        source = source_of(situation, span, _room(situation))
        plain = self._plain_job(situation, owner, self._address(situation, owner, span), source)
        if strategy_of(situation.policy.strategy.name).records:
            plain = replace(plain, record=RunningSummary.of(situation, *span))
        allowed = situation.policy.summary_tokens(situation.budget.limit)
        is_affordable = plain.max_tokens >= min(allowed, _LEAST_COMPACTION)
        named = situation.policy.compactors if is_affordable else ()
        units = units_within(situation, span) if named else ()
        taken = first_for(named, units)
        if taken is None:
            if owner.last is None or plain.record is not None:
                return plain
            return replace(plain, cached=owner.last.question(situation, span, source, plain.limit))
        return CompactorJob(
            **asdict(plain),
            compactor=taken,
            units=units,
            hashes={number: situation.chain.hashes[number] for number in range(*span)},
            goal=goal_of(situation),
            progress=progress_of(situation, span),
        )

    def _plain_job(self, situation: Situation, owner: Owner, address: str, source: Source) -> Job:
        policy = situation.policy
        return Job(
            address=address,
            session=owner.key.id_for(owner.tenant),
            terms=self._address(situation, owner, None),
            source=source,
            caller=owner.caller.billed_to(owner.key, policy.store.ttl),
            rules=policy.summary,
            max_tokens=situation.summary_tokens,
            key=owner.key,
            ttl=policy.store.ttl,
            room=_room(situation),
        )

    def _address(self, situation: Situation, owner: Owner, span: Span | None, way: str = "") -> str:
        """Return a summary's address: made of what it covers and the terms on which it is written.

        The policy's limits on its length are such terms. The tokens that the budget leaves for it are not:
        they follow the ratio, which is learned while a summary is written. Only budgets of another order of
        magnitude get summaries of their own.
        """
        policy, tokens = situation.policy, situation.budget.tokens or 0
        ways = [each.name for each in policy.compactors] if not way else [way]
        most = policy.summary.max_tokens, policy.summary.max_characters
        of_model = owner.caller.model, str(tokens.bit_length()), *map(str, most)
        if policy.strategy.name == "exchanges":
            rules = policy.strategy
            sizes = rules.answer_max, rules.answer_to, rules.summary_max, rules.summary_to
            ways.append(" ".join(map(str, sizes)))
        terms = "\0".join([*of_model, policy.summary.prompt, rules_digest(policy.retention), *ways])
        seal = seal_of(situation.chain, *span) if span else b""
        return self._naming.address(owner.tenant, seal, terms.encode(errors="surrogatepass"))


def unsummarised(situation: Situation) -> list[Gap]:
    """Return the gaps whose notes still lack a summary."""
    least = situation.policy.summary.min_gap
    return [
        gap
        for gap in situation.plan.gaps
        if (gap.count >= least or any(anchor.by_code for anchor in gap.anchors)) and not gap.is_summarised
    ]


def _with_anchors(situation: Situation, anchors_of: Callable[[Gap], tuple[Anchor, ...]]) -> Situation:
    """Return the situation with these summaries in the gaps of its plan."""
    gaps = tuple(replace(gap, anchors=anchors_of(gap)) for gap in situation.plan.gaps)
    return situation.under(Plan(gaps, situation.plan.replacements))


def _holds(span: Span, other: Span) -> bool:
    return span[0] <= other[0] and other[1] <= span[1]


def _holds_any(span: Span, others: Sequence[Span]) -> bool:
    return any(_holds(span, other) for other in others)


def _room(situation: Situation) -> int:
    """Return the counted tokens that a call may use for its prompt."""
    return situation.budget.left(0) - situation.policy.summary_tokens(situation.budget.limit)
