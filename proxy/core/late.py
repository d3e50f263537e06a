"""Summaries that came too late for their notes, where no epoch begins to bring them.

A rewrite of a note has the provider read anew all that follows it, so this happens only while nothing is kept
there (:func:`proxy.core.economy.is_cold`). An epoch brings them by itself (:mod:`proxy.core.noting`).
"""

from collections.abc import Mapping

from proxy.core.budget import Stage
from proxy.core.plan import Plan, Span
from proxy.core.planner import Draft, finish
from proxy.core.situation import FREE, Situation
from proxy.core.strategies import strategy_of


def with_late(situation: Situation, texts: Mapping[Span, str]) -> Plan:
    """The plan in force with ``texts`` in the notes of these gaps; nothing else changes."""
    gaps = {gap.span: gap.quotes for gap in situation.plan.gaps}
    strategy = strategy_of(situation.policy.strategy.name)
    return finish(Draft(situation, Stage.TRIM, tuple(gaps), gaps, FREE, strategy=strategy), texts)
