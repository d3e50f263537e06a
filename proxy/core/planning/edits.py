"""What people ask for: messages to be compacted, or cuts to be undone. Pure, like all planning.

Keeps law 2 (valid): units go and come back whole; what the model is still to answer never goes. And law 5
(nothing is lost): what comes back is the client's own bytes.
"""

from collections.abc import Collection, Iterator

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import Unit
from proxy.core.planning.gaps import is_no_longer, noted_gap
from proxy.core.planning.ledger import placed
from proxy.core.planning.notes import quote
from proxy.core.planning.plan import Gap, Plan, Span, view_tokens
from proxy.core.planning.planner import Draft, finish
from proxy.core.planning.selection import Selection
from proxy.core.planning.situation import CRITICAL, FREE, Situation


def compacted(situation: Situation, wanted: Collection[int] | None) -> Draft | None:
    """Cut the units that lie wholly within the messages ``wanted``; None: all that may be cut.

    Messages that were named go even where the policy would keep them as the newest, or as the first request;
    pinned and later system messages stay. Answers None where nothing would become smaller.
    """

    def may_go(index: int) -> bool:
        protection, unit = situation.protection[index], situation.units[index]
        if wanted is None:
            return protection == FREE
        return protection < CRITICAL and all(place in wanted for place in range(unit.start, unit.end))

    chosen = filter(may_go, situation.standing)
    selection = Selection(situation, Stage.COMPACT, 0)
    for index in sorted(chosen, key=situation.is_user):  # an answer takes its request along, and quotes it
        selection.take(index)
    spans = tuple(selection.spans())
    quotes = {span: selection.quotes_within(*span) for span in spans}
    decided = Draft(situation, Stage.COMPACT, spans, quotes, FREE)
    view = view_tokens(finish(decided, {}), situation.chain.tokens)
    return decided if selection.cut and view < situation.view else None


def restored(situation: Situation, wanted: Collection[int] | None) -> Plan:
    """The plan with the messages ``wanted`` back in the view, as the client sent them; None: all of them.

    A unit of which one message is wanted comes back whole. What is left of a gap keeps the summaries that are
    about nothing else, and a notice for the rest; the ledger is of what is left.
    """
    back = {
        position
        for unit in situation.units
        if wanted is None or any(each in wanted for each in _positions(unit))
        for position in _positions(unit)
    }
    gaps = tuple(left for gap in situation.plan.gaps for left in _left(situation, gap, back))
    clipped = tuple(kept for kept in situation.plan.replacements if kept.position not in back)
    left = Plan(gaps, clipped)
    return left if left == situation.plan else placed(situation, left)


def _positions(unit: Unit) -> range:
    return range(unit.start, unit.end)


def _left(situation: Situation, gap: Gap, back: Collection[int]) -> Iterator[Gap]:
    """What stays cut of a gap."""
    for start, end in _runs(gap, back):
        if (start, end) == gap.span:
            yield gap
            continue
        anchors = tuple(each for each in gap.anchors if start <= each.start and each.end <= end)
        left = noted_gap(situation, (start, end), anchors, _quotes(situation, gap, (start, end)))
        if is_no_longer(situation, left):
            yield left


def _runs(gap: Gap, back: Collection[int]) -> list[Span]:
    runs: list[Span] = []
    for position in range(gap.start, gap.end):
        if position in back:
            continue
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return runs


def _quotes(situation: Situation, gap: Gap, span: Span) -> tuple[str, ...]:
    """The quotes of a gap's note that are of requests within a part of it."""
    messages = situation.chain.messages
    asked = (position for position in range(*span) if messages[position].role == "user")
    within = {quote(situation.content(position).text) for position in asked} if gap.quotes else set[str]()
    return tuple(each for each in gap.quotes if each in within)
