"""Clipping a view that is still over its budget when nothing is left to cut (law 4).

Tool results are clipped first, the largest before the others, then user messages but the last; the first user
message before all, where its protection had to yield.
"""

from collections.abc import Mapping, Sequence

from proxy.core.clipping import clip
from proxy.core.messages import TOOL_ROLES
from proxy.core.plan import CLIPPED, MERGED, Plan, Replacement, view_tokens
from proxy.core.situation import FIRST_USER, FIRST_USER_LEAST, Situation
from proxy.core.units import last_user


def clip_view(situation: Situation, plan: Plan, yielded: int) -> Plan:
    """The plan with clips, until its view fits the budget or nothing is left to clip.

    ``yielded`` is the firmest protection that had to yield.
    """
    budget, chain = situation.budget, situation.chain
    enough = budget.share(situation.policy.stages.trim)
    if view_tokens(plan, chain.tokens) <= budget.share(1):
        return plan
    sizes = {place: chain.tokens[place] for place in range(len(chain)) if not plan.covers(place)}
    sizes |= {edit.position: edit.tokens for edit in plan.replacements}
    for place, least in _clippable(situation, plan, sizes, yielded):
        excess = view_tokens(plan, chain.tokens) - enough
        if excess <= 0:
            break
        allowed = max(sizes[place] - excess, least)
        found = clip(chain.raws[place], chain.tokens[place], allowed, situation.count)
        if found is not None and found[1] < sizes[place]:
            plan = _replace(plan, Replacement(place, found[0], found[1], CLIPPED))
    return plan


def _clippable(
    situation: Situation, plan: Plan, sizes: Mapping[int, int], yielded: int
) -> Sequence[tuple[int, int]]:
    """Messages that may be clipped, in that order, each with the tokens that it keeps at least."""
    messages = situation.chain.messages
    asked = last_user(messages)
    merged = {edit.position for edit in plan.replacements if edit.reason == MERGED}
    largest_first = sorted(sizes.keys() - merged, key=lambda place: (-sizes[place], place))
    results = [place for place in largest_first if messages[place].role in TOOL_ROLES]
    asks = [place for place in largest_first if messages[place].role == "user" and place != asked]
    first = [min(asks)] if asks and yielded >= FIRST_USER else []
    return [(place, FIRST_USER_LEAST) for place in first] + [(place, 0) for place in [*results, *asks]]


def _replace(plan: Plan, new: Replacement) -> Plan:
    others = [kept for kept in plan.replacements if kept.position != new.position]
    return Plan(plan.gaps, tuple(sorted([*others, new], key=lambda kept: kept.position)))
