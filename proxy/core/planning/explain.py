"""Why a view looks as it does: every unit of a chain, what became of it, and what it is worth now.

A read-only look at a situation, for the admin API and the command line; it decides nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from proxy.core.dialects.dialect import Content
from proxy.core.planning.importance import Score
from proxy.core.planning.situation import CRITICAL, FIRST_USER, FIXED, FREE, PINNED, RECENT, Situation
from proxy.core.policy.sections import RetentionClass
from proxy.core.text.words import one_line

State = Literal["kept", "cut", "clipped", "cleared"]
Protection = Literal["free", "recent", "first_user", "critical", "pinned", "fixed"]

_PROTECTIONS: Mapping[int, Protection] = {
    FREE: "free",
    RECENT: "recent",
    FIRST_USER: "first_user",
    CRITICAL: "critical",
    PINNED: "pinned",
    FIXED: "fixed",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One unit of the chain: messages ``start`` up to and without ``end``."""

    start: int
    end: int
    roles: tuple[str, ...]
    tokens: int
    """Counted tokens: in the view, or before it was cut."""
    score: Score | None
    """What the unit would be worth if an epoch began now; None where it is cut."""
    state: State
    protection: Protection | None
    """How firmly it is kept; None where it is cut."""
    gap: int | None
    """Index in the plan of the gap that a cut unit lies in."""
    retention: RetentionClass
    """Its class, by the policy's rules."""
    begins_with: str
    """The first words that it says, or its first call."""


def explain(situation: Situation, start: int = 0, end: int | None = None) -> list[Row]:
    """One row for each unit of the chain, in order: of those with messages from ``start`` to ``end``."""
    end = len(situation.chain) if end is None else min(end, len(situation.chain))
    if start >= end:
        return []
    units = range(situation.unit_at(start), situation.unit_at(end - 1) + 1)
    return [_row(situation, index) for index in units]


def _row(situation: Situation, index: int) -> Row:
    unit, plan = situation.units[index], situation.plan
    gaps = (number for number, gap in enumerate(plan.gaps) if gap.start <= unit.start < gap.end)
    gap = next(gaps, None)
    is_cut = gap is not None
    state: State = "kept"
    if is_cut:
        state = "cut"
    elif edits := [edit for edit in plan.replacements if unit.start <= edit.position < unit.end]:
        state = "cleared" if any(edit.why for edit in edits) else "clipped"
    return Row(
        start=unit.start,
        end=unit.end,
        roles=tuple(message.role for message in situation.chain.messages[unit.start : unit.end]),
        tokens=situation.chain.tokens.between(unit.start, unit.end) if is_cut else situation.size(index),
        score=None if is_cut else situation.score(index),
        state=state,
        protection=None if is_cut else _PROTECTIONS[situation.protection[index]],
        gap=gap,
        retention=situation.classes.of(index),
        begins_with=_first_words(map(situation.content, range(unit.start, unit.end))),
    )


def _first_words(contents: Iterable[Content]) -> str:
    for content in contents:
        calls = (f"{name}({arguments})" for _, name, arguments in content.calls)
        if words := content.text.strip() or next(calls, ""):
            return one_line(words)
    return ""
