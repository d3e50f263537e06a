"""What other policies would have made of a session: its transcript replayed, without asking any model.

Read-only, and much for the processor: whoever serves others meanwhile runs it in a thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.core.budget.budget import Budget, budget_tokens
from proxy.core.budget.prices import Prices
from proxy.core.conversation.records import Node
from proxy.core.economics.simulate import Outcome, replay
from proxy.core.policy.policy import Policy
from proxy.engine.admin.inspection import Inspected, Inspection

MOST = 1_000
"""Messages that are replayed: those of a longer session from its beginning."""


@dataclass(frozen=True)
class Trials:
    """Plays sessions again."""

    inspection: Inspection
    prices: Callable[[str], Prices]
    """What a model's tokens cost."""

    def outcome(self, found: Inspected, branch: Sequence[Node], policy: Policy) -> Outcome:
        """The session under a policy, in the window and with the head and the ratio of its newest turn."""
        situation, _ = self.inspection.situation(found, branch[:MOST])
        before, session, rules = situation.budget, found.session, policy.budget
        limit = rules.tokens if isinstance(rules.tokens, int) else None
        reserve = rules.reserve if isinstance(rules.reserve, int) else None
        window = rules.window(session.model) or before.window.tokens
        tokens = budget_tokens(limit, window, reserve, before.real(before.head))
        budget = Budget(tokens, before.ratio, before.head, before.window)
        known = self.prices(session.model)
        turns = tuple(replay(situation.chain, policy, budget, situation.count, prices=known))
        writer = self.prices(policy.summary.model or session.model)
        return Outcome(found.id, policy.name, tokens, known.under(policy.economy), writer, turns)
