"""The summaries that a draft wants: which there are, which are on their way, which could not be had."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.plan import Anchor, Gap, Plan
from proxy.core.planner import Draft, Span
from proxy.core.retention import terms_of
from proxy.core.summary import Source, seal_of, source_of
from proxy.engine.case import Case
from proxy.engine.naming import Naming
from proxy.engine.summaries import Job, Summaries


class Wanted:
    """One draft's summaries, by gap."""

    def __init__(self, summaries: Summaries, jobs: Mapping[Span, Job]) -> None:
        self._summaries = summaries
        self._jobs = jobs

    def start_missing(self) -> list[str]:
        """Begin to write those that are not there and have not failed; answers their addresses."""
        missing: list[str] = []
        for job in self._jobs.values():
            if self._summaries.ready(job.address) is None and not self._summaries.has_failed(job.address):
                self._summaries.start(job)
                missing.append(job.address)
        return missing

    async def wait(self, addresses: Sequence[str], seconds: float) -> None:
        """Wait for these, at most so long."""
        await self._summaries.wait(addresses, seconds)

    def texts(self) -> dict[Span, str | None]:
        """What is decided by now: a text, or None where there will be none."""
        texts: dict[Span, str | None] = {}
        for span, job in self._jobs.items():
            text = self._summaries.ready(job.address)
            if text is not None or self._summaries.has_failed(job.address):
                texts[span] = text
        return texts

    def outcome(self, *, waited: bool) -> str:
        """The word for the summary header."""
        if not self._jobs:
            return "none"
        texts = self.texts()
        if any(texts.get(span) is None for span in self._jobs):
            return "failed"
        return "waited" if waited else "ready"


class SummaryJobs:
    """Turns drafts into jobs for the writer of summaries."""

    def __init__(self, summaries: Summaries, naming: Naming) -> None:
        self._summaries = summaries
        self._naming = naming

    async def wanted(self, case: Case, decided: Draft) -> Wanted:
        """The summaries of a draft; those that the store holds are fetched."""
        room = case.budget.limit - case.policy.summary_tokens(case.budget.limit)
        jobs = {span: self._job(case, source_of(decided, span, room)) for span in decided.wanted}
        if jobs:
            await self._summaries.recall(case.key, [job.address for job in jobs.values()])
        return Wanted(self._summaries, jobs)

    def anchored(self, case: Case, plan: Plan) -> Plan:
        """The plan with summaries that came too late for their notes, as anchors for the next ones."""
        return Plan(tuple(self._anchored(case, gap) for gap in plan.gaps), plan.replacements)

    def late(self, case: Case, plan: Plan) -> dict[Span, str]:
        """Summaries that came too late for their notes, as far as this process has them."""
        anchored = self.anchored(case, plan).gaps
        pairs = zip(plan.gaps, anchored, strict=True)
        return {(gap.start, gap.end): new.anchors[0].text for gap, new in pairs if new != gap}

    def _anchored(self, case: Case, gap: Gap) -> Gap:
        if gap.is_summarised or gap.count < case.policy.summary.min_gap:
            return gap
        text = self._summaries.ready(self._address(case, seal_of(case.chain, gap.start, gap.end)))
        return gap if text is None else replace(gap, anchors=(Anchor(gap.start, gap.end, text),))

    def _job(self, case: Case, source: Source) -> Job:
        rules = case.policy.summary
        return Job(
            address=self._address(case, source.seal),
            source=source,
            model=rules.model or case.model,
            rules=rules,
            max_tokens=case.policy.summary_tokens(case.budget.limit),
            headers=case.credentials,
            key=case.key,
            ttl=case.policy.store.ttl,
        )

    def _address(self, case: Case, seal: bytes) -> str:
        """Where a summary is kept: by what it covers and on which terms it is written.

        Its length is no such term: it follows the ratio, which is learned while a summary is written.
        Only budgets of another order of magnitude get summaries of their own.
        """
        rules, retention = case.policy.summary, terms_of(case.policy.retention)
        terms = f"{rules.model or case.model}\0{case.budget.tokens.bit_length()}\0{rules.prompt}\0{retention}"
        return self._naming.address(case.tenant, seal, terms.encode(errors="surrogatepass"))
