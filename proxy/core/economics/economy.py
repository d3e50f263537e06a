"""Whether an epoch pays: what it saves on the calls to come, against what it costs to have it read anew.

A provider bills the beginning that two requests share at a fraction of its price. An epoch changes the middle
of a request, so all that follows its first edit is read at the full price once more. It pays when

    n * r * D  >  (w - r) * tail

with n calls to come, D tokens freed, tail tokens that were kept by the provider after the first edit, r and w
the prices of a cached token and of one that is written, over a fresh one. While it does not, *trim* waits;
*compact* and *emergency* never do. When the cache is cold the right side is nothing, and so waits nobody.

n, where the policy does not state it, is half the calls in which the conversation grows by D again, at its
pace since the last epoch. A session that goes on like this begins its epochs at the cheapest depth then: with
g tokens of growth a call, depth D costs r * D / 2 a call for what is not cut yet, and (w - r) * tail * g / D
for what is read anew; the sum is least where r * D * (D / 2g) = (w - r) * tail. What summaries cost is no
part of it: every message is summarised once, however often epochs begin.

A summary of what is cut can be asked for in two ways: from the cut part alone, at the price of fresh tokens,
or from the whole of what was sent last, most of it at the price of cached ones.

Law 3: these sums decide whether an epoch begins, never what it says; they are stored in it.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.budget.prices import Prices, Prompt
from proxy.core.planning.plan import Account, Plan, Verdict, view_tokens
from proxy.core.planning.planner import Draft
from proxy.core.planning.situation import Situation

_RELIABLE = 0.5
"""Of the time after which a prefix is certainly gone: for so long it is certainly there."""


def account_of(
    situation: Situation, plan: Plan, *, may_wait: bool, view: int | None = None
) -> Account | None:
    """What beginning an epoch with ``plan`` costs and saves; None where money has no say.

    ``may_wait``: whether it is asked. ``view``: counted tokens of its view, where the plan does not hold all
    of its notes yet.
    """
    prices = prices_in(situation)
    if prices is None:
        return None
    written = view_tokens(plan, situation.chain.tokens)
    sums = _Sums(situation, prices, plan, 0 if view is None else view - written)
    verdict = Verdict.DUE
    if may_wait and is_cold(situation):
        verdict = Verdict.COLD
    elif may_wait:
        saving = sums.calls * prices.read_share * sums.freed
        pays = saving > (prices.write_share - prices.read_share) * sums.tail
        verdict = Verdict.PAYS if pays else Verdict.WAITS
    return Account(
        verdict=verdict,
        idle=situation.conditions.idle,
        ttl=prices.ttl,
        cached=round(prices.read_share, 4),
        written=round(prices.write_share, 4),
        calls=round(sums.calls, 2),
        freed=sums.freed,
        tail=sums.tail,
    )


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
    paid = (account.written - account.cached) * account.tail / account.cached / account.calls
    enough = paid if is_stated else sqrt(paid * account.freed)
    return max(ceil(enough - account.freed), 1)


def late_account(situation: Situation, plan: Plan) -> Account | None:
    """The account of an epoch that only brings late summaries."""
    account = account_of(situation, plan, may_wait=False)
    return account and replace(account, verdict=Verdict.LATE)


def prices_in(situation: Situation) -> Prices | None:
    """The prices that count under the policy; None where it does not reckon."""
    rules, prices = situation.policy.economy, situation.conditions.prices
    return prices.under(rules) if prices is not None and rules.enabled else None


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
    return not prices.cached_prefix(_sent_last(situation))


class Reading(NamedTuple):
    """Having a model read once more what a lane sent last."""

    prompt: Prompt
    seconds: float
    """For which the provider certainly has what it has kept of it."""


def cheaper_reading(situation: Situation, afresh: int) -> Reading | None:
    """Reading what the lane sent last, where that costs no more than ``afresh`` counted tokens at full price.

    Prices that nobody knows stand for a server that keeps prefixes at hardly any cost. This is no matter of
    when an epoch begins: it is asked whatever the policy says of that.
    """
    conditions = situation.conditions
    if not situation.policy.summary.cached_prefix:
        return None
    if conditions.prices is None or conditions.idle is None or conditions.is_new_head:
        return None
    prices = conditions.prices.under(situation.policy.economy)
    tokens, seconds = _sent_last(situation), _RELIABLE * prices.ttl - conditions.idle
    prompt = Prompt(tokens, prices.cached_prefix(tokens))
    if not prompt.cached or seconds <= 0:
        return None
    is_cheaper = prompt.dollars(prices) <= Prompt(situation.budget.real(afresh), 0).dollars(prices)
    return Reading(prompt, seconds) if is_cheaper else None


def _sent_last(situation: Situation) -> int:
    """The model's tokens of the lane's last request."""
    newest, tokens = situation.chain.sent_before, situation.chain.tokens
    edits = (edit for edit in situation.plan.replacements if edit.position >= newest)
    brought = tokens.between(newest) + sum(edit.tokens - tokens[edit.position] for edit in edits)
    return situation.budget.real(situation.budget.head + situation.view - brought)


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
    def calls(self) -> float:
        expected = self.situation.policy.economy.expected_turns
        if expected != "auto":
            return float(expected)
        chain, began = self.situation.chain, self.situation.past.length
        requests = 1 + sum(message.role == "assistant" for message in chain.messages[began:])
        pace = chain.tokens.between(began) / requests
        return max(self.freed, 0) / (2 * pace) if pace else 0.0
