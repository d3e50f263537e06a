"""The summaries that a draft wants: which there are, which are on their way, which could not be had.

A gap has a name before it is read. It is read, and counted, once its summary is written, and off the event
loop (law 7): most requests only look whether it is there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.conversation.retention import terms_of
from proxy.core.planning.gaps import generation_upon
from proxy.core.planning.plan import Anchor, Gap, Plan, Span
from proxy.core.planning.planner import Draft
from proxy.core.planning.situation import Situation
from proxy.core.summaries.compaction import goal_of, progress_of, units_within
from proxy.core.summaries.source import GENERATIONS, Source, drifted, seal_of, source_of, worthwhile_originals
from proxy.engine.background import off_loop
from proxy.engine.flow import Request
from proxy.engine.intake.naming import Naming
from proxy.engine.models.asking import Caller
from proxy.engine.summaries.compactors import Compaction, Job, first_for
from proxy.engine.summaries.pool import Summaries
from proxy.ports import SessionKey

_AGAIN = 1.25
"""How much longer a gap must be before it is read again whether its summary is worth making anew."""


class Declined:
    """Gaps whose summaries were found not to be worth making anew."""

    def __init__(self, memory: Memory) -> None:
        self._ends: Lru[tuple[SessionKey, str, int], int] = Lru(memory)

    def holds(self, request: Request, anchor: Anchor) -> bool:
        """Whether that was found of the gap when it was hardly shorter."""
        end = self._ends.get((request.session.key, request.lane, anchor.start))
        return end is not None and end <= anchor.end < _AGAIN * end

    def add(self, request: Request, anchor: Anchor) -> None:
        """It was found of this gap."""
        self._ends.put((request.session.key, request.lane, anchor.start), anchor.end)


class Wanted:
    """One draft's summaries, by gap."""

    def __init__(
        self, summaries: Summaries, addresses: Mapping[Span, str], job: Callable[[Span], Job]
    ) -> None:
        self._summaries = summaries
        self._addresses = addresses
        self._job = job

    def start_missing(self) -> list[str]:
        """Begin to write those that are not there and have not failed; answers their addresses."""
        missing: list[str] = []
        for span, address in self._addresses.items():
            if self._summaries.ready(address) is None and not self._summaries.has_failed(address):
                self._summaries.start(address, partial(self._job, span))
                missing.append(address)
        return missing

    async def wait(self, addresses: Sequence[str], seconds: float) -> None:
        """Wait for these, at most so long."""
        await self._summaries.wait(addresses, seconds)

    def texts(self) -> dict[Span, str | None]:
        """What is decided by now: a text, or None where there will be none."""
        texts: dict[Span, str | None] = {}
        for span, address in self._addresses.items():
            text = self._summaries.ready(address)
            if text is not None or self._summaries.has_failed(address):
                texts[span] = text
        return texts

    def outcome(self, *, waited: bool) -> str:
        """The word for the summary header."""
        if not self._addresses:
            return "none"
        texts = self.texts()
        if any(texts.get(span) is None for span in self._addresses):
            return "failed"
        return "waited" if waited else "ready"


class SummaryJobs:
    """Turns drafts into jobs for the writer of summaries."""

    def __init__(self, summaries: Summaries, naming: Naming, memory: Memory) -> None:
        self._summaries = summaries
        self._naming = naming
        self._declined = Declined(memory)

    async def wanted(self, request: Request, decided: Draft) -> Wanted:
        """The summaries of a draft; those that the store holds are fetched."""
        situation = decided.situation
        spans = await off_loop(request, lambda: decided.wanted)
        addresses = {span: self._address(request, seal_of(situation.chain, *span)) for span in spans}
        if addresses:
            await self._summaries.recall(request.session.key, list(addresses.values()))
        return Wanted(self._summaries, addresses, partial(self._job, request, situation))

    async def anchored(self, request: Request, situation: Situation) -> Plan:
        """The plan with summaries that came too late for their notes, or were made anew."""
        drifting = drifted(situation)
        if drifting:
            await self._summaries.recall(
                request.session.key, [self._rebuilt_at(request, each) for each in drifting]
            )
        gaps = tuple(self._anchored(request, gap) for gap in situation.plan.gaps)
        return Plan(gaps, situation.plan.replacements)

    def lacks(self, request: Request, plan: Plan) -> bool:
        """Whether a summary is still to come for any of the notes."""
        return any(_lacks(request, gap) for gap in plan.gaps)

    def late(self, request: Request, plan: Plan) -> dict[Span, str]:
        """Summaries that came too late for their notes, as far as this process has them."""
        found = ((gap, self._late(request, gap)) for gap in plan.gaps)
        return {gap.span: text for gap, text in found if text is not None}

    def _late(self, request: Request, gap: Gap) -> str | None:
        if not _lacks(request, gap):
            return None
        return self._summaries.ready(self._address(request, seal_of(request.chain, gap.start, gap.end)))

    def _anchored(self, request: Request, gap: Gap) -> Gap:
        text = self._late(request, gap)
        if text is not None:
            late = Anchor(*gap.span, text, generation=generation_upon(gap.anchors))
            return replace(gap, anchors=(late,))
        renewed = list(gap.anchors)
        for place, anchor in enumerate(gap.anchors):
            if anchor.generation >= GENERATIONS:
                text = self._summaries.ready(self._rebuilt_at(request, anchor))
                if text is not None:  # it was made anew from its originals
                    renewed[place] = Anchor(anchor.start, anchor.end, text)
        return gap if (*renewed,) == gap.anchors else replace(gap, anchors=(*renewed,))

    def rebuild(self, request: Request, situation: Situation) -> None:
        """Begin to make anew what has been summarised too often, where it pays; nobody waits for it."""
        for anchor in drifted(situation) if request.policy.summary.enabled else ():
            if self._declined.holds(request, anchor):
                continue
            address = self._rebuilt_at(request, anchor)
            self._summaries.start(address, partial(self._rebuilt, request, situation, anchor))

    def _rebuilt(self, request: Request, situation: Situation, anchor: Anchor) -> Job | None:
        source = worthwhile_originals(situation, anchor, _room(request))
        if source is None:
            self._declined.add(request, anchor)
            return None
        return replace(self._plain_job(request, self._rebuilt_at(request, anchor), source), rebuilds=True)

    def _job(self, request: Request, situation: Situation, span: Span) -> Job:
        source = source_of(situation, span, _room(request))
        plain = self._plain_job(request, self._address(request, source.seal), source)
        named = request.policy.compactors
        units = units_within(situation, span) if named else ()
        taken = first_for(named, units) if units else None
        if taken is None:
            return plain
        compaction = Compaction(
            taken,
            units,
            hashes={number: request.chain.hashes[number] for number in range(*span)},
            goal=goal_of(situation),
            progress=progress_of(situation, span),
        )
        return replace(plain, compaction=compaction)

    def _plain_job(self, request: Request, address: str, source: Source) -> Job:
        rules = request.policy.summary
        return Job(
            address=address,
            terms=self._address(request, b""),
            source=source,
            caller=Caller(rules.model or request.model.name, request.credentials, rules.timeout),
            rules=rules,
            max_tokens=request.policy.summary_tokens(request.budget.limit),
            key=request.session.key,
            ttl=request.policy.store.ttl,
            room=_room(request),
        )

    def _rebuilt_at(self, request: Request, anchor: Anchor) -> str:
        return self._address(request, seal_of(request.chain, anchor.start, anchor.end), "rebuilt")

    def _address(self, request: Request, seal: bytes, way: str = "") -> str:
        """Where a summary is kept: by what it covers and on which terms it is written.

        Its length is no such term: it follows the ratio, which is learned while a summary is written.
        Only budgets of another order of magnitude get summaries of their own.
        """
        rules, retention = request.policy.summary, terms_of(request.policy.retention)
        ways = [each.name for each in request.policy.compactors] if not way else [way]
        of_model = (rules.model or request.model.name, str((request.budget.tokens or 0).bit_length()))
        terms = "\0".join([*of_model, rules.prompt, retention, *ways])
        return self._naming.address(request.session.tenant, seal, terms.encode(errors="surrogatepass"))


def _lacks(request: Request, gap: Gap) -> bool:
    return gap.count >= request.policy.summary.min_gap and not gap.is_summarised


def _room(request: Request) -> int:
    """Counted tokens that a call may have for its prompt."""
    return request.budget.left(0) - request.policy.summary_tokens(request.budget.limit)
