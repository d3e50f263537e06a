"""A change of plan as an epoch: what it did to the view, how far it reaches, and when it holds.

Pure: the same change has the same id on every worker, so that of two who make it together one writes it.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import last_user
from proxy.core.planning.plan import Account, Epoch, Plan, Verb, Verdict, view_tokens
from proxy.core.planning.situation import Situation


@dataclass(frozen=True)
class Change:
    """From the plan of ``before`` to ``plan``."""

    lane: str
    head_count: int
    """Messages of the head."""
    before: Situation
    plan: Plan
    stage: Stage
    """Of the view before."""
    parent: Epoch | None
    """The epoch in force."""
    asked: Verb = Verb.NONE
    alternates: bool = False
    """Whether the model is known to want alternating roles."""
    account: Account | None = None
    """What the policy decided by, beside the usage."""

    def epoch(self, at: float) -> Epoch:
        """The epoch, begun ``at`` (seconds since 1970)."""
        chain, budget = self.before.chain, self.before.budget
        parent = self.parent.id if self.parent else ""
        # What is undone is an edit too: a chain that lacks it has nothing to be undone.
        depth = max(self.plan.depth, self.before.plan.depth)
        reach = chain.hashes[depth - 1]
        # A chain that was rolled back is forwarded whole; an epoch begun at any size holds at any.
        calm_below = 0 if self._at_any_size else int(self.before.policy.stages.warn * budget.limit)
        asked = None
        if self.asked is Verb.RESTORE:
            # It begins at the newest request, so that it holds as well where that is answered anew.
            asked = last_user(chain.messages)
            calm_below = self.parent.calm_below if self.parent else calm_below
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
            original_tokens=budget.real(budget.head + self.before.view),
            final_count=self._count(self.plan),
            final_tokens=budget.real(budget.head + view_tokens(self.plan, chain.tokens)),
            emergency_mode=self.stage is Stage.EMERGENCY and not self.asked,
            budget=budget.tokens or 0,
            ratio=budget.ratio,
            begun_at=chain.hashes[-1 if asked is None else asked],
            alternates=self.alternates,
            asked=self.asked,
            account=self.account,
            plan=self.plan,
        )

    @property
    def _at_any_size(self) -> bool:
        """Whether it was not begun for the size of the view."""
        return self.stage in (Stage.CALM, Stage.WARN)

    def _count(self, plan: Plan) -> int:
        """Messages of a view, head included."""
        notes = sum(bool(gap.note) for gap in plan.gaps)
        return self.head_count + len(self.before.chain) - plan.cut + notes

    def _reason(self) -> str:
        if self.asked is Verb.RESTORE:
            return f"restored on request: {self.before.plan.cut - self.plan.cut} messages"
        budget, policy = self.before.budget, self.before.policy
        usage = f"usage {budget.usage(self.before.view):.0%} of {budget.tokens} tokens"
        usage = "no budget, the window is unknown" if budget.tokens is None else usage
        by = "on request" if self.asked else f"by {policy.strategy.name}"
        sums = f"; {self.account.text}" if self.account and self.account.text else ""
        is_late = self.account is not None and self.account.verdict is Verdict.LATE
        if (
            not self.asked
            and not is_late
            and self._at_any_size
            and policy.stages.max_units
            and policy.strategy.name == "importance"
        ):
            by = f"by count of {policy.stages.max_units} units"
        return f"{usage}: {'compacted' if self.asked else self.stage.value}, {by}{sums}"
