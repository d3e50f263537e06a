"""A ceiling in bytes beside the token budget, for upstreams that refuse a request by its size.

The planner knows one measure. Where a body is nearer to its ceiling than the view to its budget, the request
is decided on again: its tokens spread over the messages by bytes, under a budget that the view fills as much
as the body its ceiling. So whichever limit is met first decides the stage, and what is heavy goes for its
weight. Bytes are those of what would go out. While that is still too large, the budget falls, until the body
fits or nothing is left to cut.
"""

from collections.abc import Awaitable, Callable

from proxy.core.budget import Budget, Stage, stage_of
from proxy.core.plan import view_tokens
from proxy.core.situation import Chain
from proxy.engine.case import Case
from proxy.engine.verdict import Verdict

_BESIDE = 256
"""Bytes that are kept free for parameters that only we ask for."""
_ROUNDS = 2
"""How often it is tried to cut no more than must be."""
_STRICTER = 1.5
"""By how much more the budget falls where the body has come out too large."""

Decide = Callable[[Chain, Budget, Verdict], Awaitable[Verdict]]
"""Decides again, with tokens otherwise spread and under another budget, after what was decided before."""


async def within_bytes(
    case: Case, verdict: Verdict, size_of: Callable[[Verdict], int], decide: Decide
) -> Verdict:
    """A verdict whose body keeps within the ceiling that the policy sets, wherever anything may be cut."""
    most = case.policy.budget.bytes
    fullness = (size_of(verdict) + _BESIDE) / most
    is_fuller = fullness > case.budget.usage(verdict.view)
    if not is_fuller or stage_of(fullness, case.policy.stages) is Stage.CALM:
        return verdict
    if case.epochs is None and fullness <= 1:
        return verdict  # each turn is folded anew, and under one budget to the same beginning
    for number in range(_ROUNDS):
        view = view_tokens(verdict.plan, case.chain.tokens)
        budget = case.budget.filled(view, fullness * _STRICTER**number)
        verdict = await decide(case.chain.weighed(verdict.plan), budget, verdict)
        fullness = (size_of(verdict) + _BESIDE) / most
        if fullness <= 1:
            return verdict
    return await decide(case.chain, case.budget.filled(1, case.budget.limit), verdict)
