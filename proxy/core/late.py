"""Summaries that came too late for their notes, and take the place of their notices.

A rewrite of a note has the provider read anew all that follows it, so this happens only with an epoch that
begins anyway, or while nothing is kept there (:func:`proxy.core.economy.is_cold`).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from proxy.core.budget import Stage
from proxy.core.plan import Gap, Plan
from proxy.core.planner import Draft, Span, finish
from proxy.core.situation import FREE, Situation
from proxy.core.strategies import strategy_of


def with_late(situation: Situation, texts: Mapping[Span, str]) -> Plan:
    """The plan in force with ``texts`` in the notes of these gaps; nothing else changes."""
    gaps = {(gap.start, gap.end): gap.quotes for gap in situation.plan.gaps}
    strategy = strategy_of(situation.policy.strategy.name)
    return finish(Draft(situation, Stage.TRIM, tuple(gaps), gaps, FREE, strategy=strategy), texts)


def unsettled(decided: Draft, before: Plan, late: Collection[Span]) -> Draft:
    """A draft whose notes of ``late`` gaps are to be written anew, from the plan as it was ``before``.

    Its own plan knows these summaries already, so that larger gaps can be anchored to them.
    """
    standing = {(gap.start, gap.end): gap for gap in before.gaps if (gap.start, gap.end) in late}
    plan = decided.situation.plan
    gaps = tuple(
        standing.get((gap.start, gap.end), gap) if _stays(decided, gap) else gap for gap in plan.gaps
    )
    return replace(decided, situation=replace(decided.situation, plan=Plan(gaps, plan.replacements)))


def _stays(decided: Draft, gap: Gap) -> bool:
    return (gap.start, gap.end) in decided.spans
