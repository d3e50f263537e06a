"""Changes of a plan: those that people ask for, and how any change becomes an epoch.

Requested changes (compacting messages, or undoing cuts) keep law 2 (valid): units are cut and restored whole,
and what the model has still to answer is never cut. They also keep law 5 (nothing is lost): restored messages
are the client's own bytes.

An epoch records what a change did to the view, how far it reaches, and when it applies. The same change has
the same id on every worker, so if two workers make it at once, only one writes it.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.conversation.notes import quote
from proxy.core.planning.draft import Draft
from proxy.core.planning.gaps import part_of
from proxy.core.planning.ledger import add_ledger, strip_ledgers
from proxy.core.planning.plan import Account, Epoch, Gap, Plan, Verb, Verdict, runs_of, view_tokens
from proxy.core.planning.planner import finish
from proxy.core.planning.reasoning import first_change, signed_in
from proxy.core.planning.selection import Selection
from proxy.core.planning.situation import FREE, Situation
from proxy.errors import NothingToChange

_STAYS = "the newest request and its answer, system messages, what is pinned and what is critical stay"
_NOTHING_LEFT = f"There is nothing to cut: {_STAYS}, and all else is cut."
_NOTHING_NAMED = (
    "There is nothing to cut: no whole message or tool call that may go is named;"
    f" {_STAYS}, and what is cut already is not cut again."
)
_NO_SHORTER = "There is nothing to cut: a note would be as long as the messages that it stands for."


def _on_request(situation: Situation) -> Situation:
    """Return the situation for a person's request.

    Recent messages and the first user message may be cut, and no gap is too short for a summary.
    """
    policy = situation.policy
    keep = policy.keep.model_copy(update={"recent": 0.0, "first_user": False})
    summary = policy.summary.model_copy(update={"min_gap": 1})
    return replace(situation, policy=policy.model_copy(update={"keep": keep, "summary": summary}))


def as_requested(situation: Situation, epochs: Sequence[Epoch], epoch: Epoch | None) -> Situation:
    """Return :func:`_on_request` of the situation if a person asked for the cuts in force; else itself.

    ``epoch`` of ``epochs`` is in force. Epochs that cut nothing are skipped to find the one that cut.
    """
    by_id = {each.id: each for each in epochs if each.cuts_nothing or each.asked}
    while epoch is not None and epoch.cuts_nothing:
        epoch = by_id.get(epoch.parent)
    return _on_request(situation) if epoch is not None and epoch.asked is Verb.COMPACT else situation


def compacted(situation: Situation, wanted: Collection[int] | None) -> Draft:
    """Return the draft that cuts units wholly within the messages ``wanted``; None: all that may be cut.

    Recent messages and the first request may be cut too. Later system messages, pinned and critical units,
    and what the model has still to answer stay. If nothing is left to cut but gaps lack summaries, the draft
    only asks for these. Raises NothingToChange, with the reason, if there is nothing to cut.
    """
    situation = _on_request(situation)

    def may_go(index: int) -> bool:
        unit = situation.units[index]
        is_wanted = wanted is None or all(place in wanted for place in range(unit.start, unit.end))
        return is_wanted and situation.protection[index] == FREE

    selection = Selection(situation, Stage.COMPACT, 0)
    # Answers come before users: cutting a whole answer also cuts its request, and quotes it.
    for index in sorted(filter(may_go, situation.view_units), key=situation.is_user):
        selection.cut_unit(index)
    draft = Draft.of(situation, Stage.COMPACT, selection.quotes())
    if not selection.cut:
        if wanted is None and draft.unsummarised_spans:
            return draft
        raise NothingToChange(_NOTHING_LEFT if wanted is None else _NOTHING_NAMED)
    if view_tokens(finish(draft, {}), situation.chain.tokens) >= situation.view_tokens:
        raise NothingToChange(_NO_SHORTER)
    return draft


def restored(situation: Situation, wanted: Collection[int] | None) -> Plan:
    """Return the plan with the messages ``wanted`` restored as the client sent them; None: all messages.

    If one message of a unit is wanted, the whole unit is restored. The rest of a gap keeps the summaries that
    cover nothing else, and counts its other messages. The ledger is that of the remaining cuts.
    """
    back = {
        position
        for unit in situation.units
        if wanted is None or any(each in wanted for each in range(unit.start, unit.end))
        for position in range(unit.start, unit.end)
    }
    gaps: list[Gap] = []
    for gap in situation.plan.gaps:
        for run in runs_of(position for position in range(*gap.span) if position not in back):
            span = (run.start, run.stop)
            if span == gap.span:
                gaps.append(gap)
                continue
            # Of the quotes in the gap's note, those of requests within this part of the gap.
            asked = (place for place in run if gap.quotes and situation.role(place) == "user")
            within = {quote(situation.content(place).text) for place in asked}
            quotes = tuple(each for each in gap.quotes if each in within)
            part = part_of(situation, gap, span, quotes)
            gaps += [part] if part is not None else []
    edits = tuple(edit for edit in situation.plan.replacements if edit.position not in back)
    left = Plan(tuple(gaps), edits)
    if left == situation.plan:
        return left
    return add_ledger(situation, strip_ledgers(left, situation.count, situation.chain.dialect))


# --- any change as an epoch ---


@dataclass(frozen=True)
class Change:
    """A change from the plan of the situation ``before`` to ``plan``."""

    lane: str
    head_count: int
    before: Situation
    plan: Plan
    stage: Stage
    """The stage of the view before the change."""
    parent: Epoch | None
    asked: Verb = Verb.NONE
    alternates: bool = False
    """Whether the model is known to want alternating roles."""
    account: Account | None = None
    by_units: bool = False
    """Whether the count of units began it, not the policy's strategy."""

    def epoch(self, at: float) -> Epoch:
        """Return the change as an epoch that begins ``at`` (seconds since 1970)."""
        chain, budget, signed = self.before.chain, self.before.budget, signed_in(self.before.chain)
        parent = self.parent.id if self.parent else ""
        # Undone edits count too: a chain without these messages has nothing to undo.
        depth = max(self.plan.depth, self.before.plan.depth)
        if signed:
            # It applies only to chains with every message that loses reasoning, not to earlier branches.
            newest = chain.last_user if self.asked else None
            depth = max(depth, len(chain) if newest is None else newest + 1)
        calm_below = 0
        if self.asked is Verb.RESTORE and self.parent is not None:
            calm_below = self.parent.calm_below
        elif self.stage not in (Stage.CALM, Stage.WARN):
            # A chain rolled back below *warn* is forwarded whole, unless the epoch began below *trim* itself.
            calm_below = int(self.before.policy.stages.warn * budget.limit)
        reach = chain.hashes[depth - 1]
        # What is restored begins at the newest request, so that it also applies if that is answered again.
        request = chain.last_user if self.asked is Verb.RESTORE else None
        content = msgspec.msgpack.encode((self.lane, parent, reach, self.plan))
        return Epoch(
            id=hashlib.sha256(content).hexdigest()[:16],
            parent=parent,
            number=(self.parent.number if self.parent else 0) + 1,
            lane=self.lane,
            reach=reach,
            depth=depth,
            calm_below=calm_below,
            at=at,
            stage=self.stage.value,
            reason=self._reason(),
            original_count=self._count(self.before.plan),
            original_tokens=budget.with_head(self.before.view_tokens),
            final_count=self._count(self.plan),
            final_tokens=budget.with_head(view_tokens(self.plan, chain.tokens)),
            emergency_mode=self.stage is Stage.EMERGENCY and not self.asked,
            budget=budget.tokens or 0,
            ratio=budget.ratio,
            begun_at=chain.hashes[-1 if request is None else request],
            alternates=self.alternates,
            asked=self.asked,
            account=self.account,
            plan=self.plan,
            without_reasoning=self._without_reasoning(signed),
        )

    def _without_reasoning(self, signed: Sequence[int]) -> tuple[int, ...]:
        """Return positions of messages in the view that are sent without signed reasoning."""
        already = self.parent.without_reasoning if self.parent is not None else ()
        are_notes_moved = self.parent is not None and self.parent.alternates != self.alternates
        is_refused = self.account is not None and self.account.verdict is Verdict.REFUSED
        start = 0 if are_notes_moved or is_refused else first_change(self.before.plan, self.plan)
        places = {*already, *(place for place in signed if start is not None and place >= start)}
        return tuple(sorted(place for place in places if not self.plan.covers(place)))

    def _count(self, plan: Plan) -> int:
        """Count the messages of a plan's view, head included."""
        notes = sum(bool(gap.note) for gap in plan.gaps)
        return self.head_count + len(self.before.chain) - plan.cut + notes

    def _reason(self) -> str:
        if self.asked is Verb.RESTORE:
            return f"restored on request: {self.before.plan.cut - self.plan.cut} messages"
        budget, policy = self.before.budget, self.before.policy
        usage = f"usage {budget.usage(self.before.view_tokens):.0%} of {budget.tokens} tokens"
        usage = "no budget, the window is unknown" if budget.tokens is None else usage
        of_whom = f"count of {policy.stages.max_units} units" if self.by_units else policy.strategy.name
        by = "on request" if self.asked else f"by {of_whom}"
        sums = f"; {self.account.text}" if self.account and self.account.text else ""
        return f"{usage}: {'compacted' if self.asked else self.stage.value}, {by}{sums}"
