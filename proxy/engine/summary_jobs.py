"""The summaries that a draft wants: which there are, which are on their way, which could not be had.

A gap has a name before it is read. It is read, and counted, once its summary is written, and off the event
loop (law 7): most requests only look whether it is there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.core.compaction import goal_of, progress_of, units_within
from proxy.core.noting import generation_upon
from proxy.core.plan import Anchor, Gap, Plan, Span
from proxy.core.planner import Draft
from proxy.core.rebuilding import GENERATIONS, drifted, worthwhile_originals
from proxy.core.retention import terms_of
from proxy.core.situation import Situation
from proxy.core.source import Source, seal_of, source_of
from proxy.engine.asking import Caller
from proxy.engine.case import Case
from proxy.engine.compactors import Compaction, first_for
from proxy.engine.folds import off_loop
from proxy.engine.job import Job
from proxy.engine.naming import Naming
from proxy.engine.summaries import Summaries
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey

_AGAIN = 1.25
"""How much longer a gap must be before it is read again whether its summary is worth making anew."""


class Declined:
    """Gaps whose summaries were found not to be worth making anew."""

    def __init__(self, memory: Memory) -> None:
        self._ends: Lru[tuple[SessionKey, str, int], int] = Lru(memory)

    def holds(self, case: Case, anchor: Anchor) -> bool:
        """Whether that was found of the gap when it was hardly shorter."""
        end = self._ends.get((case.key, case.lane, anchor.start))
        return end is not None and end <= anchor.end < _AGAIN * end

    def add(self, case: Case, anchor: Anchor) -> None:
        """It was found of this gap."""
        self._ends.put((case.key, case.lane, anchor.start), anchor.end)


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

    async def wanted(self, case: Case, decided: Draft) -> Wanted:
        """The summaries of a draft; those that the store holds are fetched."""
        situation = decided.situation
        spans = await off_loop(case, lambda: decided.wanted)
        addresses = {span: self._address(case, seal_of(situation.chain, *span)) for span in spans}
        if addresses:
            await self._summaries.recall(case.key, list(addresses.values()))
        return Wanted(self._summaries, addresses, partial(self._job, case, situation))

    async def anchored(self, case: Case, situation: Situation) -> Plan:
        """The plan with summaries that came too late for their notes, or were made anew."""
        drifting = drifted(situation)
        if drifting:
            await self._summaries.recall(case.key, [self._rebuilt_at(case, each) for each in drifting])
        gaps = tuple(self._anchored(case, gap) for gap in situation.plan.gaps)
        return Plan(gaps, situation.plan.replacements)

    def lacks(self, case: Case, plan: Plan) -> bool:
        """Whether a summary is still to come for any of the notes."""
        return any(_lacks(case, gap) for gap in plan.gaps)

    def late(self, case: Case, plan: Plan) -> dict[Span, str]:
        """Summaries that came too late for their notes, as far as this process has them."""
        found = ((gap, self._late(case, gap)) for gap in plan.gaps)
        return {gap.span: text for gap, text in found if text is not None}

    def _late(self, case: Case, gap: Gap) -> str | None:
        if not _lacks(case, gap):
            return None
        return self._summaries.ready(self._address(case, seal_of(case.chain, gap.start, gap.end)))

    def _anchored(self, case: Case, gap: Gap) -> Gap:
        text = self._late(case, gap)
        if text is not None:
            late = Anchor(*gap.span, text, generation=generation_upon(gap.anchors))
            return replace(gap, anchors=(late,))
        renewed = tuple(self._renewed(case, anchor) for anchor in gap.anchors)
        return gap if renewed == gap.anchors else replace(gap, anchors=renewed)

    def _renewed(self, case: Case, anchor: Anchor) -> Anchor:
        """A summary made anew from its originals, if there is one."""
        if anchor.generation < GENERATIONS:
            return anchor
        text = self._summaries.ready(self._rebuilt_at(case, anchor))
        return anchor if text is None else Anchor(anchor.start, anchor.end, text)

    def rebuild(self, case: Case, situation: Situation) -> None:
        """Begin to make anew what has been summarised too often, where it pays; nobody waits for it."""
        for anchor in drifted(situation) if case.policy.summary.enabled else ():
            if self._declined.holds(case, anchor):
                continue
            address = self._rebuilt_at(case, anchor)
            self._summaries.start(address, partial(self._rebuilt, case, situation, anchor))

    def _rebuilt(self, case: Case, situation: Situation, anchor: Anchor) -> Job | None:
        source = worthwhile_originals(situation, anchor, _room(case))
        if source is None:
            self._declined.add(case, anchor)
            return None
        return replace(self._plain_job(case, self._rebuilt_at(case, anchor), source), rebuilds=True)

    def _job(self, case: Case, situation: Situation, span: Span) -> Job:
        source = source_of(situation, span, _room(case))
        plain = self._plain_job(case, self._address(case, source.seal), source)
        named = case.policy.compactors
        units = units_within(situation, span) if named else ()
        taken = first_for(named, units) if units else None
        if taken is None:
            return plain
        compaction = Compaction(
            taken,
            units,
            hashes={number: case.chain.hashes[number] for number in range(*span)},
            goal=goal_of(situation),
            progress=progress_of(situation, span),
        )
        return replace(plain, compaction=compaction)

    def _plain_job(self, case: Case, address: str, source: Source) -> Job:
        rules = case.policy.summary
        return Job(
            address=address,
            terms=self._address(case, b""),
            source=source,
            caller=Caller(rules.model or case.model, case.credentials, rules.timeout),
            rules=rules,
            max_tokens=case.policy.summary_tokens(case.budget.limit),
            key=case.key,
            ttl=case.policy.store.ttl,
            room=_room(case),
        )

    def _rebuilt_at(self, case: Case, anchor: Anchor) -> str:
        return self._address(case, seal_of(case.chain, anchor.start, anchor.end), "rebuilt")

    def _address(self, case: Case, seal: bytes, way: str = "") -> str:
        """Where a summary is kept: by what it covers and on which terms it is written.

        Its length is no such term: it follows the ratio, which is learned while a summary is written.
        Only budgets of another order of magnitude get summaries of their own.
        """
        rules, retention = case.policy.summary, terms_of(case.policy.retention)
        ways = [each.name for each in case.policy.compactors] if not way else [way]
        of_model = (rules.model or case.model, str(case.budget.tokens.bit_length()))
        terms = "\0".join([*of_model, rules.prompt, retention, *ways])
        return self._naming.address(case.tenant, seal, terms.encode(errors="surrogatepass"))


def _lacks(case: Case, gap: Gap) -> bool:
    return gap.count >= case.policy.summary.min_gap and not gap.is_summarised


def _room(case: Case) -> int:
    """Counted tokens that a call may have for its prompt."""
    return case.budget.limit - case.policy.summary_tokens(case.budget.limit)
