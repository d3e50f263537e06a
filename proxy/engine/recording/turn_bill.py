"""The bill of one turn, from the usage of its answer and the prices of its model.

Where an answer reports no usage, or no cached tokens, tokens are our own count, and the provider is assumed
to have cached the prefix that the request shares with the one before. The cost of doing nothing is estimated
in the same way, without what the model has recalled. In shadow nothing was done, so the bill also says what
would have been saved.
"""

from msgspec.structs import replace

from proxy.core.budget.prices import UNKNOWN_PRICES, Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import Bill, bounded, cost_of, kept_prompt, money, prompt_of
from proxy.core.planning.plan import EMPTY, Plan
from proxy.engine.flow import Exchange, Request
from proxy.engine.tool_rounds import Rounds


def bill_of(exchange: Exchange, usage: Usage | None, counted: int | None) -> Bill:
    """Return the bill of a turn by this usage, or by ``counted`` output tokens where it says nothing.

    Where it says nothing and the output was not counted (None), the price is unknown. Of several requests to
    the upstream the last is the answer's; those before it are hidden.
    """
    request, rounds, decision = exchange.request, exchange.rounds, exchange.decision
    budget, history = request.budget, request.history
    prices = request.conditions.prices or UNKNOWN_PRICES
    plan = EMPTY if request.incoming.is_shadow else decision.plan
    reported = usage if usage is not None and usage.prompt_tokens else None
    if reported is not None and rounds is not None:
        reported = _last(reported, rounds.earlier_usage)
    answered = reported.completion_tokens if reported is not None else None
    output = budget.real(counted or 0) if answered is None else bounded(answered)
    paid = prices if prices.is_known and (answered, counted) != (None, None) else None
    sent = _sent(exchange, prices, plan, reported)
    whole, cut = sent, exchange.full_tokens - exchange.sent_tokens
    recalled = budget.real(rounds.own_tool_tokens_sent) if rounds is not None and reported is not None else 0
    if plan != EMPTY or recalled or history.hidden:
        less = history.own_tool_tokens(request.conditions.sent_before(request.chain, EMPTY)) + budget.tool
        tokens = max(sent.tokens + cut - recalled, 0)
        whole = _written_like(sent, _whole(exchange, prices, tokens, less, reported))
    fits = whole is sent or budget.window.limit is None or whole.tokens + output <= budget.window.limit
    bill = Bill.of_request(sent, output, whole, paid, fits=fits)
    also = {"estimated": int(reported is None), "epochs": int(decision.begins_epoch(request))}
    if plan != decision.plan:
        tokens = max(sent.tokens - cut, 0)
        view = _written_like(sent, _estimated(request, prices, tokens, plan_before(exchange), decision.plan))
        also["shadow_cut"] = max(sent.tokens - view.tokens, 0)
        also["shadow"] = money(sent, 0, paid) - money(view, 0, paid)
    bill = replace(bill, **also)
    if rounds is None:
        return bill
    # Without usage in the last answer, all that was reported is of the rounds before it.
    used = rounds.total_usage if reported is None else rounds.earlier_usage
    return bill + bill_of_hidden(request, rounds, used, rounds.count - rounds.refused)


def bill_of_hidden(request: Request, rounds: Rounds, used: Usage, count: int) -> Bill:
    """Return the bill of an answer's hidden requests, so many, by their usage."""
    prices = request.conditions.prices
    if prices is None or not prices.is_known or used.prompt_tokens is None:
        return Bill(unpriced=count, tool_calls=rounds.answered)
    return Bill(hidden=cost_of(used, prices, count), tool_calls=rounds.answered)


def _sent(exchange: Exchange, prices: Prices, plan: Plan, reported: Usage | None) -> Prompt:
    """Return the prompt that was sent under ``plan``, as the upstream reported it, else as estimated."""
    if reported is not None and reported.cached_tokens is not None:
        return prompt_of(reported)
    is_shadow = exchange.request.incoming.is_shadow
    counted = exchange.full_tokens if is_shadow else exchange.sent_tokens
    tokens = counted if reported is None else bounded(reported.prompt_tokens)
    before, request = plan if is_shadow else plan_before(exchange), exchange.request
    unsent = 0 if request.tool_under(plan) and not is_shadow else request.budget.tool
    return _estimated(request, prices, tokens, before, plan, unsent)


def _estimated(
    request: Request, prices: Prices, tokens: int, before: Plan, plan: Plan, less: int = 0
) -> Prompt:
    """Return a prompt of which a warm cache holds :func:`kept_prompt` of these plans.

    A history with which a session begins may have been sent just before, so that it counts as cached: rather
    too little is saved than too much.
    """
    chain, conditions, before_this = request.chain, request.conditions, None
    if not request.starts_mid_conversation:
        if conditions.head_idle is None or conditions.head_idle >= prices.ttl:
            return Prompt(tokens, 0)  # the provider has nothing in its cache
        before_this = conditions.sent_before(chain, plan)
    kept = kept_prompt(chain, before, plan, request.budget, prices, less, before_this)
    return Prompt(tokens, min(kept, tokens))


def _whole(exchange: Exchange, prices: Prices, tokens: int, less: int, reported: Usage | None) -> Prompt:
    """Return the prompt of doing nothing: estimated, and corrected by what the usage shows of the cache.

    If a session begins with a history of which the provider had cached no more than the head, nothing of it
    was sent before. That says nothing of one-off requests with a new cut, which leaves no more than the
    target: their view has just changed, so no more of it could be cached.
    """
    request, budget, rounds = exchange.request, exchange.request.budget, exchange.rounds
    if reported is not None and rounds is not None and rounds.count == 1:
        reported = rounds.earlier_usage  # of the request before the answer's: its prompt is in the cache
    shown = reported.cached_tokens if reported is not None else None
    is_full = budget.usage(exchange.decision.view_tokens) > request.incoming.policy.stages.target
    tells = request.starts_mid_conversation and (is_full or not request.is_one_off)
    if tells and shown is not None and shown <= budget.real(budget.head):
        return Prompt(tokens, 0)
    return _estimated(request, prices, tokens, EMPTY, EMPTY, less)


def _written_like(sent: Prompt, estimated: Prompt) -> Prompt:
    """Return the estimated prompt without written tokens, if what was sent is known to have had none.

    Otherwise a dearer price for writing would count as saved, though the provider writes nothing.
    """
    return replace(estimated, written=0) if sent.written == 0 else estimated


def _last(total: Usage, hidden: Usage) -> Usage:
    """Return the usage of the last of several requests; fields that the total lacks stay None."""
    pairs = [(getattr(total, name), getattr(hidden, name)) for name in Usage.__struct_fields__]
    return Usage(*(None if whole is None else whole - (part or 0) for whole, part in pairs))


def plan_before(exchange: Exchange) -> Plan:
    """Return the plan of the lane's last request: the one before an epoch that began at this request."""
    decision = exchange.decision
    if not decision.begins_epoch(exchange.request) or decision.epoch is None or decision.epoch_log is None:
        return decision.plan
    return next((each.plan for each in decision.epoch_log.epochs if each.id == decision.epoch.parent), EMPTY)
