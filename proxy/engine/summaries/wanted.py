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
from proxy.engine.intake.naming import Naming
from proxy.engine.models.asking import Caller
from proxy.engine.sessions.session_cache import SessionState
from proxy.engine.summaries.compactors import Compaction, Job, first_for
from proxy.engine.summaries.pool import Summaries
from proxy.ports import SessionKey

_AGAIN = 1.25
"""How much longer a gap must be before it is read again whether its summary is worth making anew."""


class Declined:
    """Gaps whose summaries were found not to be worth making anew."""

    def __init__(self, memory: Memory) -> None:
        self._ends: Lru[tuple[SessionKey, str, int], int] = Lru(memory)

    def holds(self, session: SessionState, anchor: Anchor) -> bool:
        """Whether that was found of the gap when it was hardly shorter."""
        end = self._ends.get((session.key, session.lane.id, anchor.start))
        return end is not None and end <= anchor.end < _AGAIN * end

    def add(self, session: SessionState, anchor: Anchor) -> None:
        """It was found of this gap."""
        self._ends.put((session.key, session.lane.id, anchor.start), anchor.end)


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

    async def wanted(self, decided: Draft, session: SessionState, caller: Caller) -> Wanted:
        """The summaries of a draft; those that the store holds are fetched."""
        situation = decided.situation
        spans = await off_loop(situation.chain, lambda: decided.wanted)
        addresses = {
            span: self._address(situation, session, caller, seal_of(situation.chain, *span)) for span in spans
        }
        if addresses:
            await self._summaries.recall(session.key, list(addresses.values()))
        return Wanted(self._summaries, addresses, partial(self._job, situation, session, caller))

    async def anchored(self, situation: Situation, session: SessionState, caller: Caller) -> Plan:
        """The plan with summaries that came too late for their notes, or were made anew."""
        drifting = drifted(situation)
        if drifting:
            addresses = [self._rebuilt_at(situation, session, caller, each) for each in drifting]
            await self._summaries.recall(session.key, addresses)
        late = self.late(situation, session, caller)
        gaps: list[Gap] = []
        for gap in situation.plan.gaps:
            anchors = list(gap.anchors)
            if gap.span in late:
                anchors = [Anchor(*gap.span, late[gap.span], generation=generation_upon(gap.anchors))]
            for place, anchor in enumerate(anchors if gap.span not in late else ()):
                if anchor.generation >= GENERATIONS:
                    text = self._summaries.ready(self._rebuilt_at(situation, session, caller, anchor))
                    if text is not None:  # it was made anew from its originals
                        anchors[place] = Anchor(anchor.start, anchor.end, text)
            gaps.append(gap if (*anchors,) == gap.anchors else replace(gap, anchors=(*anchors,)))
        return Plan((*gaps,), situation.plan.replacements)

    def late(self, situation: Situation, session: SessionState, caller: Caller) -> dict[Span, str]:
        """Summaries that came too late for their notes, as far as this process has them."""
        found: dict[Span, str] = {}
        for gap in unsummarised(situation):
            seal = seal_of(situation.chain, gap.start, gap.end)
            text = self._summaries.ready(self._address(situation, session, caller, seal))
            if text is not None:
                found[gap.span] = text
        return found

    def rebuild(self, situation: Situation, session: SessionState, caller: Caller) -> None:
        """Begin to make anew what has been summarised too often, where it pays; nobody waits for it."""
        for anchor in drifted(situation) if situation.policy.summary.enabled else ():
            if self._declined.holds(session, anchor):
                continue
            address = self._rebuilt_at(situation, session, caller, anchor)
            self._summaries.start(address, partial(self._rebuilt, situation, session, caller, anchor))

    def _rebuilt(
        self, situation: Situation, session: SessionState, caller: Caller, anchor: Anchor
    ) -> Job | None:
        source = worthwhile_originals(situation, anchor, _room(situation))
        if source is None:
            self._declined.add(session, anchor)
            return None
        address = self._rebuilt_at(situation, session, caller, anchor)
        return replace(self._plain_job(situation, session, caller, address, source), rebuilds=True)

    def _job(self, situation: Situation, session: SessionState, caller: Caller, span: Span) -> Job:
        source = source_of(situation, span, _room(situation))
        address = self._address(situation, session, caller, source.seal)
        plain = self._plain_job(situation, session, caller, address, source)
        named = situation.policy.compactors
        units = units_within(situation, span) if named else ()
        taken = first_for(named, units) if units else None
        if taken is None:
            return plain
        compaction = Compaction(
            taken,
            units,
            hashes={number: situation.chain.hashes[number] for number in range(*span)},
            goal=goal_of(situation),
            progress=progress_of(situation, span),
        )
        return replace(plain, compaction=compaction)

    def _plain_job(
        self, situation: Situation, session: SessionState, caller: Caller, address: str, source: Source
    ) -> Job:
        policy = situation.policy
        return Job(
            address=address,
            terms=self._address(situation, session, caller, b""),
            source=source,
            caller=caller,
            rules=policy.summary,
            max_tokens=policy.summary_tokens(situation.budget.limit),
            key=session.key,
            ttl=policy.store.ttl,
            room=_room(situation),
        )

    def _rebuilt_at(self, situation: Situation, session: SessionState, caller: Caller, anchor: Anchor) -> str:
        seal = seal_of(situation.chain, anchor.start, anchor.end)
        return self._address(situation, session, caller, seal, "rebuilt")

    def _address(
        self, situation: Situation, session: SessionState, caller: Caller, seal: bytes, way: str = ""
    ) -> str:
        """Where a summary is kept: by what it covers and on which terms it is written.

        What the policy says of its length is such a term. What the budget leaves for it is none: that follows
        the ratio, which is learned while a summary is written. Only budgets of another order of magnitude get
        summaries of their own.
        """
        policy, tokens = situation.policy, situation.budget.tokens or 0
        ways = [each.name for each in policy.compactors] if not way else [way]
        most = policy.summary.max_tokens, policy.summary.max_characters
        of_model = caller.model, str(tokens.bit_length()), *map(str, most)
        terms = "\0".join([*of_model, policy.summary.prompt, terms_of(policy.retention), *ways])
        return self._naming.address(session.tenant, seal, terms.encode(errors="surrogatepass"))


def unsummarised(situation: Situation) -> list[Gap]:
    """The gaps whose notes a summary is still to come for."""
    least = situation.policy.summary.min_gap
    return [gap for gap in situation.plan.gaps if gap.count >= least and not gap.is_summarised]


def _room(situation: Situation) -> int:
    """Counted tokens that a call may have for its prompt."""
    return situation.budget.left(0) - situation.policy.summary_tokens(situation.budget.limit)
