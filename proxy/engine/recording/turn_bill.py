"""What one turn took and cost: its bill, from the usage of its answer and the prices of its model.

Where an answer tells no usage, or nothing of the provider's cache, tokens are our own count, and the provider
is taken to have kept what the request before it had in common with it. What doing nothing would have cost
rests on the same. In shadow nothing was done, and what would have been is told beside the bill.
"""

from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import Bill, kept_prompt, money
from proxy.core.planning.plan import EMPTY, Plan
from proxy.engine.flow import Exchange


def bill_of(exchange: Exchange, usage: Usage | None, output: int) -> Bill:
    """The bill of a turn whose answer had this usage, or ``output`` tokens where that does not say.

    Of several requests to the upstream the last is the answer's; those before it are hidden.
    """
    request, rounds = exchange.request, exchange.rounds
    prices, budget = request.model.prices.under(request.incoming.policy.economy), request.budget
    paid = prices if prices.is_known else None
    hidden = rounds.spent if rounds is not None else Usage()
    total = usage if usage is not None and usage.prompt_tokens else None
    decision, saved = exchange.decision, exchange.full - exchange.sent
    if total is None:
        sent, cached, written = exchange.full if exchange.is_shadow else exchange.sent, None, None
    else:
        sent = (total.prompt_tokens or 0) - (hidden.prompt_tokens or 0)
        cached, written = _less(total.cached_tokens, hidden.cached_tokens), total.written_tokens
        written = _less(written, hidden.written_tokens) or 0 if cached is not None else None
        output = output if total.completion_tokens is None else total.completion_tokens
        output -= hidden.completion_tokens or 0

    def estimate(tokens: int, before: Plan, plan: Plan) -> Prompt:
        return Prompt(tokens, min(_kept(exchange, prices, before, plan), tokens))

    plans = (EMPTY, EMPTY) if exchange.is_shadow else (_plan_before(exchange), decision.plan)
    prompt = whole = estimate(sent, *plans) if cached is None else Prompt(sent, min(cached, sent), written)
    fits = True
    if decision.plan != EMPTY and not exchange.is_shadow:
        whole = estimate(sent + saved, EMPTY, EMPTY)
        fits = _fits(budget, sent + saved + output)
    bill = Bill.of_request(prompt, output, whole, paid, fits=fits)
    if decision.plan != EMPTY and exchange.is_shadow:
        view = estimate(sent - saved, _plan_before(exchange), decision.plan)
        bill = replace(bill, shadow_cut=saved, shadow=money(prompt, 0, paid) - money(view, 0, paid))
    return replace(
        bill,
        hidden=_cost(hidden, paid),
        estimated=0 if total is not None else 1,
        unpriced=bill.unpriced + (rounds.count if rounds is not None and total is None else 0),
        epochs=1 if _began(exchange) else 0,
        tool_calls=rounds.answered if rounds is not None else 0,
    )


def _cost(usage: Usage, prices: Prices | None) -> int:
    prompt = Prompt(usage.prompt_tokens or 0, usage.cached_tokens or 0, usage.written_tokens or 0)
    return money(prompt, usage.completion_tokens or 0, prices)


def _less(total: int | None, part: int | None) -> int | None:
    return None if total is None else total - (part or 0)


def _fits(budget: Budget, tokens: int) -> bool:
    """Whether a prompt and its answer of so many tokens fit the model's window, as far as that is known."""
    return budget.window.limit is None or tokens <= budget.window.limit


def _kept(exchange: Exchange, prices: Prices, before: Plan, plan: Plan) -> int:
    """The model's tokens that the provider can have kept of a request under a plan."""
    request, conditions = exchange.request, exchange.request.conditions
    if conditions.idle is None or conditions.is_new_head or conditions.idle >= prices.ttl:
        return 0
    return kept_prompt(request.chain, before, plan, request.budget, prices)


def _began(exchange: Exchange) -> bool:
    """Whether an epoch began at this request."""
    before, now = exchange.request.log, exchange.decision.log
    return before is not None and now is not None and len(now.epochs) > len(before.epochs)


def _plan_before(exchange: Exchange) -> Plan:
    """The plan under which the lane's last request went out: that before an epoch which began at this one."""
    decision = exchange.decision
    if not _began(exchange) or decision.epoch is None or decision.log is None:
        return decision.plan
    return next((each.plan for each in decision.log.epochs if each.id == decision.epoch.parent), EMPTY)
