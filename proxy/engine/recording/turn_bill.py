"""The bill of one turn, from the usage of its answer and the prices of its model.

Where an answer reports no usage, or no cached tokens, tokens are our own count, and the provider is assumed
to have cached the prefix that the request shares with the one before. The cost of doing nothing is estimated
in the same way, without what the model has recalled. In shadow nothing was done, so the bill also says what
would have been saved.
"""

from msgspec.structs import replace

from proxy.core.budget.prices import Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import Bill, bounded, kept_prompt, money, prompt_of
from proxy.core.planning.plan import EMPTY, Plan
from proxy.engine.flow import Exchange


def bill_of(exchange: Exchange, usage: Usage | None, counted: int) -> Bill:
    """Return the bill of a turn by this usage, or by ``counted`` output tokens where it says nothing.

    Of several requests to the upstream the last is the answer's; those before it are hidden.
    """
    request, rounds, decision = exchange.request, exchange.rounds, exchange.decision
    budget, conditions, is_shadow = request.budget, request.conditions, request.incoming.is_shadow
    began, prices = has_begun(exchange), request.model.prices.under(request.incoming.policy.economy)
    paid = prices if prices.is_known else None
    total = usage if usage is not None and usage.prompt_tokens else None
    reported = total if total is None or rounds is None else _last(total, rounds.spent)
    reported_output = reported.completion_tokens if reported is not None else None
    output = budget.real(counted) if reported_output is None else bounded(reported_output)

    def estimate(tokens: int, before: Plan, plan: Plan, less: int = 0) -> Prompt:
        if conditions.idle is None or conditions.is_new_head or conditions.idle >= prices.ttl:
            return Prompt(tokens, 0)  # the provider has nothing in its cache
        return Prompt(tokens, min(kept_prompt(request.chain, before, plan, budget, prices, less), tokens))

    plan = EMPTY if is_shadow else decision.plan
    if reported is not None and reported.cached_tokens is not None:
        prompt = prompt_of(reported)
    else:
        sent = exchange.full_tokens if is_shadow else exchange.sent_tokens
        before = plan_before(exchange) if began and not is_shadow else plan
        prompt = estimate(sent if reported is None else bounded(reported.prompt_tokens), before, plan)
    whole, fits, cut = prompt, True, exchange.full_tokens - exchange.sent_tokens
    recalled = budget.real(rounds.ours_sent) if rounds is not None and reported is not None else 0
    if plan != EMPTY or recalled or request.history.hidden:
        whole = estimate(
            max(prompt.tokens + cut - recalled, 0),
            EMPTY,
            EMPTY,
            less=request.history.ours(request.chain.sent_before),
        )
        fits = budget.window.limit is None or whole.tokens + output <= budget.window.limit
    bill = Bill.of_request(prompt, output, whole, paid, fits=fits)
    if plan != decision.plan:
        view = estimate(max(prompt.tokens - cut, 0), plan_before(exchange), decision.plan)
        bill = replace(bill, shadow_cut=cut, shadow=money(prompt, 0, paid) - money(view, 0, paid))
    bill = replace(bill, estimated=0 if reported is not None else 1, epochs=1 if began else 0)
    if rounds is not None:
        bill = replace(
            bill,
            hidden=money(prompt_of(rounds.spent), bounded(rounds.spent.completion_tokens), paid),
            unpriced=bill.unpriced + (rounds.count if reported is None else 0),
            tool_calls=rounds.answered,
        )
    return bill


def _last(total: Usage, hidden: Usage) -> Usage:
    """Return the usage of the last of several requests; fields that the total lacks stay None."""
    pairs = [(getattr(total, name), getattr(hidden, name)) for name in Usage.__struct_fields__]
    return Usage(*(None if whole is None else whole - (part or 0) for whole, part in pairs))


def has_begun(exchange: Exchange) -> bool:
    """Whether an epoch began at this request."""
    before, now = exchange.request.log, exchange.decision.log
    return before is not None and now is not None and len(now.epochs) > len(before.epochs)


def plan_before(exchange: Exchange) -> Plan:
    """Return the plan of the lane's last request: the one before an epoch that began at this request."""
    decision = exchange.decision
    if not has_begun(exchange) or decision.epoch is None or decision.log is None:
        return decision.plan
    return next((each.plan for each in decision.log.epochs if each.id == decision.epoch.parent), EMPTY)
