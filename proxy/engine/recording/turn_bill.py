"""What one turn took and cost: its bill, from the usage of its answer and the prices of its model.

Where an answer tells no usage, or nothing of the provider's cache, tokens are our own count, and the provider
is taken to have kept what the request before it had in common with it. What doing nothing would have cost
rests on the same. In shadow nothing was done, and what would have been is told beside the bill.
"""

from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import Bill, bounded, kept_prompt, money, prompt_of
from proxy.core.planning.plan import EMPTY, Plan
from proxy.engine.flow import Exchange


def bill_of(exchange: Exchange, usage: Usage | None, output: int) -> Bill:
    """The bill of a turn whose answer had this usage, or ``output`` tokens where that does not say.

    Of several requests to the upstream the last is the answer's; those before it are hidden.
    """
    request, rounds, decision = exchange.request, exchange.rounds, exchange.decision
    is_shadow = request.incoming.is_shadow
    prices = request.model.prices.under(request.incoming.policy.economy)
    paid = prices if prices.is_known else None
    hidden = rounds.spent if rounds is not None else Usage()
    told = _last(usage, hidden) if usage is not None and usage.prompt_tokens else None
    output = output if told is None or told.completion_tokens is None else bounded(told.completion_tokens)

    def estimate(tokens: int, before: Plan, plan: Plan) -> Prompt:
        return Prompt(tokens, min(_kept(exchange, prices, before, plan), tokens))

    plan = EMPTY if is_shadow else decision.plan
    if told is not None and told.cached_tokens is not None:
        prompt = prompt_of(told)
    else:
        sent = exchange.full if is_shadow else exchange.sent
        before = EMPTY if is_shadow else plan_before(exchange)
        prompt = estimate(sent if told is None else bounded(told.prompt_tokens), before, plan)
    whole, fits, cut = prompt, True, exchange.full - exchange.sent
    if plan != EMPTY:
        whole = estimate(max(prompt.tokens + cut, 0), EMPTY, EMPTY)
        fits = _fits(request.budget, whole.tokens + output)
    bill = Bill.of_request(prompt, output, whole, paid, fits=fits)
    if plan != decision.plan:
        view = estimate(max(prompt.tokens - cut, 0), plan_before(exchange), decision.plan)
        bill = replace(bill, shadow_cut=cut, shadow=money(prompt, 0, paid) - money(view, 0, paid))
    return replace(
        bill,
        hidden=money(prompt_of(hidden), bounded(hidden.completion_tokens), paid),
        estimated=0 if told is not None else 1,
        unpriced=bill.unpriced + (rounds.count if rounds is not None and told is None else 0),
        epochs=1 if has_begun(exchange) else 0,
        tool_calls=rounds.answered if rounds is not None else 0,
    )


def _last(total: Usage, hidden: Usage) -> Usage:
    """What the last of several requests has used; what is told of none stays untold."""
    names = Usage.__struct_fields__
    pairs = [(getattr(total, name), getattr(hidden, name)) for name in names]
    return Usage(*(None if whole is None else whole - (part or 0) for whole, part in pairs))


def _fits(budget: Budget, tokens: int) -> bool:
    """Whether a prompt and its answer of so many tokens fit the model's window, as far as that is known."""
    return budget.window.limit is None or tokens <= budget.window.limit


def _kept(exchange: Exchange, prices: Prices, before: Plan, plan: Plan) -> int:
    """The model's tokens that the provider can have kept of a request under a plan."""
    request, conditions = exchange.request, exchange.request.conditions
    if conditions.idle is None or conditions.is_new_head or conditions.idle >= prices.ttl:
        return 0
    return kept_prompt(request.chain, before, plan, request.budget, prices)


def has_begun(exchange: Exchange) -> bool:
    """Whether an epoch began at this request."""
    before, now = exchange.request.log, exchange.decision.log
    return before is not None and now is not None and len(now.epochs) > len(before.epochs)


def plan_before(exchange: Exchange) -> Plan:
    """The plan under which the lane's last request went out: that before an epoch which began at this one."""
    decision = exchange.decision
    if not has_begun(exchange) or decision.epoch is None or decision.log is None:
        return decision.plan
    return next((each.plan for each in decision.log.epochs if each.id == decision.epoch.parent), EMPTY)
