"""Whether an epoch pays: what it saves on the calls to come, against what it costs to have it read anew.

A provider bills the beginning that two requests share at a fraction of its price. An epoch changes the middle
of a request, so all that follows its first edit is read at the full price once more. It pays when

    n * r * D  >  (w - r) * tail + s

with n calls to come, D tokens freed, tail tokens that were kept by the provider after the first edit, r and w
the prices of a cached token and of one that is written, over a fresh one, and s what the summaries cost that
are still to be written: as long as those in the view, or else as they may be. While it does not, *trim*
waits; *compact* and *emergency* never do. When the cache is cold nothing waits.

n, where the policy does not state it, is half the calls in which the conversation grows by D again, at its
pace since the last epoch. A session that goes on like this begins its epochs at the cheapest depth then: with
g tokens of growth a call, depth D costs r * D / 2 a call for what is not cut yet, and (w - r) * tail * g / D
for what is read anew; the sum is least where r * D * (D / 2g) = (w - r) * tail, and so with s.

Law 3: these sums decide whether an epoch begins, never what it says; they are stored in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from msgspec.structs import replace

from proxy.core.budget.prices import Prices
from proxy.core.economics.summary_costs import (
    INSTRUCTION,
    paid_for,
    prices_in,
    saved_by,
    sent_last,
    summary_cost,
    written_cost,
)
from proxy.core.planning.plan import Account, Plan, Span, Verdict, view_tokens
from proxy.core.planning.planner import Draft, lacks_summary
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import strategy_of
from proxy.core.policy.policy import Policy


def account_of(
    situation: Situation, plan: Plan, *, may_wait: bool, view: int | None = None
) -> Account | None:
    """What beginning an epoch with ``plan`` costs and saves; None where nobody knows a price.

    ``may_wait``: whether it waits while it costs more, if the policy lets money have a say. ``view``: counted
    tokens of its view, where the plan does not hold all of its notes yet.
    """
    if situation.conditions.prices is None:
        return None
    prices, rules = situation.conditions.prices.under(situation.policy.economy), situation.policy.economy
    written = view_tokens(plan, situation.chain.tokens)
    sums = _Sums(situation, prices, plan, 0 if view is None else view - written)
    account = Account(
        verdict=Verdict.DUE,
        idle=situation.conditions.idle,
        ttl=prices.ttl,
        cached=round(prices.read_share, 4),
        written=round(prices.write_share, 4),
        calls=round(sums.calls, 2),
        freed=sums.freed,
        tail=sums.tail,
        summaries=sums.summaries,
        saved=round(sums.saved),
    )
    if not (may_wait and rules.enabled):
        return account
    if is_cold(situation):
        return replace(account, verdict=Verdict.COLD)
    return replace(account, verdict=Verdict.PAYS if account.saving > account.cost else Verdict.WAITS)


def pays_from(policy: Policy, budget: int, prices: Prices, pace: int) -> int:
    """Tokens of a session from which on cutting costs less, in all, than sending it whole; about.

    For a session without a head that grows by ``pace`` tokens a request. From one epoch to the next it grows
    by what lies between the line at which they begin and the target; each has all that is left read anew, and
    asks for one summary, where that is not paid for out of what cuts have saved. What that costs is paid back
    by requests that would be longer than they are.
    """
    prices, stages = prices.under(policy.economy), policy.stages
    begins = (stages.compact if policy.economy.enabled else stages.trim) * budget
    left = stages.target * budget
    view, growth = (begins + left) / 2, max(begins - left, 1)
    is_paid_for = policy.economy.enabled and prices.is_known
    size = policy.summary_tokens(budget) if policy.summary.enabled and not is_paid_for else 0
    source = growth / 2 + INSTRUCTION if size else 0  # messages are told in short
    cost = (prices.write_share - prices.read_share) * left
    cost += source * prices.write_share + size * prices.output / prices.fresh
    share = prices.read_share if view >= prices.least else prices.write_share
    even = (share * view + cost * pace / growth) / max(prices.read_share, 0.001)
    # What is lost before that length comes back behind it; and each epoch is paid for before it saves.
    return ceil(max(2 * even - begins, begins) + growth)


def shortfall(decided: Draft) -> int:
    """Counted tokens that the epoch of a draft must free beyond what it does before it pays.

    0 where it need not wait, 1 where nobody can tell. What the conversation grows by, it will free more;
    where the calls to come follow from what is freed, it pays in proportion to the square of that. It may pay
    sooner: the pace of the conversation changes, and with it the calls to come.
    """
    plan, view = decided.outline, decided.most_tokens
    account = account_of(decided.situation, plan, may_wait=decided.may_wait, view=view)
    if account is None or account.verdict is not Verdict.WAITS:
        return 0
    if not (account.calls and account.freed and account.cached):
        return 1
    is_stated = decided.situation.policy.economy.expected_turns != "auto"
    paid = account.cost / account.cached / account.calls
    enough = paid if is_stated else sqrt(paid * account.freed)
    return max(ceil(enough - account.freed), 1)


def paid_in(decided: Draft, spans: Sequence[Span]) -> list[Span]:
    """Of gaps of a draft those for whose summaries cuts have saved enough, its own epoch among them."""
    situation = decided.situation
    account = account_of(situation, decided.outline, may_wait=False, view=decided.most_tokens)
    past = situation.past.after(len(situation.chain), account.saved if account is not None else None)
    return paid_for(replace(situation, past=past), spans)


def late_account(situation: Situation, plan: Plan) -> Account:
    """The account of an epoch that only brings late summaries, whether or not money has a say."""
    account = account_of(situation, plan, may_wait=False)
    return replace(account, verdict=Verdict.LATE) if account is not None else Account(Verdict.LATE)


def is_cold(situation: Situation) -> bool:
    """Whether a rewrite costs nothing: the provider keeps nothing of what this lane sent last.

    A lane of which nobody knows an answer is warm only if an epoch of it went out before.
    """
    prices, conditions = prices_in(situation), situation.conditions
    if prices is None:
        return False
    if conditions.idle is None:
        return not situation.past.epochs
    if conditions.is_new_head or conditions.idle >= prices.ttl:
        return True
    return not prices.cached_prefix(sent_last(situation))


@dataclass(frozen=True)
class _Sums:
    """The quantities of one epoch, in counted tokens and calls."""

    situation: Situation
    prices: Prices
    plan: Plan
    unwritten: int
    """Tokens by which the notes of the plan will be longer than they are."""

    @property
    def freed(self) -> int:
        after = view_tokens(self.plan, self.situation.chain.tokens) + self.unwritten
        return self.situation.view - after

    @property
    def tail(self) -> int:
        """What is in the view after the first edit and was sent before, notes included."""
        plans = self.situation.plan, self.plan
        notes = [{(gap.start, gap.end, gap.note) for gap in plan.gaps} for plan in plans]
        edits = {*plans[0].replacements} ^ {*plans[1].replacements}
        places = [start for start, _, _ in notes[0] ^ notes[1]] + [each.position for each in edits]
        if not places:
            return 0
        first, new = min(places), self.situation.chain.sent_before
        tokens = self.situation.chain.tokens
        tail = self.unwritten + tokens.between(first, new)
        for gap in self.plan.gaps:
            if gap.start >= first:
                tail += gap.tokens - tokens.between(gap.start, min(gap.end, new))
        clipped = (each for each in self.plan.replacements if first <= each.position < new)
        return max(tail + sum(each.tokens - tokens[each.position] for each in clipped), 0)

    @property
    def summaries(self) -> int:
        """What is to be paid for summaries that the plan still lacks, in fresh tokens."""
        situation, rules = self.situation, self.situation.policy.summary
        standing, after = {gap.span for gap in situation.plan.gaps}, situation.under(self.plan)
        strategy = strategy_of(situation.policy.strategy.name)
        new = [gap.span for gap in self.plan.gaps if gap.span not in standing] if rules.enabled else []
        lacking = (span for span in new if lacks_summary(after, span, strategy))
        return round(sum(summary_cost(situation, span) for span in lacking))

    @property
    def saved(self) -> float:
        """What cuts have saved with this request, and with the epoch beginning at it."""
        situation, prices = self.situation, self.prices
        absent = situation.chain.tokens.total - situation.view
        before = saved_by(situation) - (prices.read_share * absent if situation.past.epochs else 0.0)
        if is_cold(situation):
            return before + prices.write_share * (absent + self.freed) - self._told
        reread = (prices.write_share - prices.read_share) * self.tail
        return before + prices.read_share * (absent + self.freed) - reread - self._told

    @property
    def _told(self) -> float:
        """What the summaries cost that the plan tells and the one in force does not, in fresh tokens."""
        return written_cost(self.situation, self.plan.anchors)

    @property
    def calls(self) -> float:
        expected = self.situation.policy.economy.expected_turns
        if expected != "auto":
            return float(expected)
        chain, began = self.situation.chain, self.situation.past.length
        requests = 1 + sum(message.role == "assistant" for message in chain.messages[began:])
        pace = chain.tokens.between(began) / requests
        return max(self.freed, 0) / (2 * pace) if pace else 0.0
