"""Explain plans to people: why a view looks as it does, and what each turn of a conversation sent.

Read-only, for the admin API, the web page and the command line; nothing is decided here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from proxy.core.budget.budget import Budget
from proxy.core.planning.chain import Chain
from proxy.core.planning.importance import Score
from proxy.core.planning.plan import Epoch, view_tokens
from proxy.core.planning.situation import Situation
from proxy.core.policy.sections import RetentionClass
from proxy.core.text.cutting import one_line

State = Literal["kept", "cut", "clipped", "cleared"]
Protection = Literal["free", "recent", "first_user", "critical", "pinned", "fixed"]
"""The protection levels of :mod:`proxy.core.planning.situation`, in their order."""
_PROTECTIONS: tuple[Protection, ...] = get_args(Protection)


@dataclass(frozen=True, slots=True)
class Row:
    """One unit of the chain: messages ``start`` to ``end`` (exclusive)."""

    start: int
    end: int
    roles: tuple[str, ...]
    tokens: int
    """Counted tokens in the view; for a cut unit, of the originals."""
    score: Score | None
    """The unit's importance if an epoch began now; of a cut unit, its importance when it was cut, by the
    weights of today's policy, or None if the epoch that cut it is not known."""
    state: State
    protection: Protection | None
    """How firmly the unit is protected; None if it is cut."""
    gap: int | None
    """Index, in the plan, of the gap that contains a cut unit; else None."""
    retention: RetentionClass
    """The retention class by the policy's rules."""
    begins_with: str
    """The first words of the unit, or its first call."""


def explain(
    situation: Situation, line: Sequence[Epoch] = (), start: int = 0, end: int | None = None
) -> list[Row]:
    """Return a row for each unit with messages from ``start`` to ``end`` (exclusive), in order.

    ``line``: the epochs that led to the plan, oldest first.
    """
    end = len(situation.chain) if end is None else min(end, len(situation.chain))
    if start >= end:
        return []
    chain, plan, rows = situation.chain, situation.plan, list[Row]()
    lengths = {epoch.id: epoch.length_at_start(chain.hashes) for epoch in line}
    for index in range(situation.unit_at(start), situation.unit_at(end - 1) + 1):
        unit, begins_with = situation.units[index], ""
        for content in map(situation.content, range(unit.start, unit.end)):
            calls = (f"{name}({arguments})" for _, name, arguments in content.calls)
            if words := content.text.strip() or next(calls, ""):
                begins_with = one_line(words)
                break
        gaps = (number for number, gap in enumerate(plan.gaps) if gap.start <= unit.start < gap.end)
        gap = next(gaps, None)
        is_cut = gap is not None
        state: State = "kept"
        score = None if is_cut else situation.score(index)
        if is_cut:
            state = "cut"
            if (epoch := cut_by(line, unit.start)) is not None:
                score = situation.score_among(index, max(lengths[epoch.id], unit.end))
        elif edits := [edit for edit in plan.replacements if unit.start <= edit.position < unit.end]:
            state = "cleared" if any(edit.why for edit in edits) else "clipped"
        row = Row(
            start=unit.start,
            end=unit.end,
            roles=tuple(message.role for message in chain.messages[unit.start : unit.end]),
            tokens=chain.tokens.between(unit.start, unit.end) if is_cut else situation.size(index),
            score=score,
            state=state,
            protection=None if is_cut else _PROTECTIONS[situation.protection[index]],
            gap=gap,
            retention=situation.classes.of(index),
            begins_with=begins_with,
        )
        rows.append(row)
    return rows


# --- what was sent, turn by turn ---
# The size of each request is not recorded. It need not be: what was sent is a pure function of the messages
# and of the epoch in force (law 3), and an epoch says at which message it began.


@dataclass(frozen=True, slots=True)
class SentTurn:
    """One request. Tokens are the model's, computed with the ratio and the head of the newest request."""

    messages: int
    """Messages that the client sent, without the head."""
    full: int
    """Tokens of what the client sent."""
    sent: int
    """Tokens of what the model got."""
    epoch: int
    """The number of the epoch in force; 0 if none was."""
    began: bool
    """Whether that epoch began with this request, or after the previous one."""


def sent_turns(chain: Chain, line: Sequence[Epoch], budget: Budget) -> list[SentTurn]:
    """Return every request that led to ``chain``, under the epochs of ``line`` (oldest first)."""
    whole = chain.tokens
    # The tokens that an epoch saves do not depend on later messages.
    starts = [(epoch.length_at_start(chain.hashes), epoch) for epoch in line]
    saved = [whole.total - view_tokens(epoch.plan, whole) for epoch in line]
    turns: list[SentTurn] = []
    place, before = -1, 0
    for length in chain.requests:
        while place + 1 < len(starts) and starts[place + 1][0] <= length:
            place += 1
        tokens = budget.head + whole.between(0, length)
        number = starts[place][1].number if place >= 0 else 0
        less = saved[place] if place >= 0 else 0
        turns.append(
            SentTurn(length, budget.real(tokens), budget.real(tokens - less), number, number > before)
        )
        before = max(before, number)
    return turns


def cut_by(line: Sequence[Epoch], position: int) -> Epoch | None:
    """Return the epoch that cut or edited the message at ``position``; None if the view shows it unedited."""
    found = None
    for epoch in reversed(line):
        if epoch.plan.shows(position):
            break
        found = epoch
    return found
