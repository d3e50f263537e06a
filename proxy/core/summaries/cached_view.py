"""Asking for a summary behind what was sent last: its provider has kept that, and reads it again for little.

The question is one more user message after the conversation as it was last forwarded, so that the model sees
in full what is to be cut. It is told which part that is, and what of it is cut there already.
"""

from collections.abc import Sequence

from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.dialects.answers import Ask
from proxy.core.formats.json import dumps
from proxy.core.planning.plan import Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.prompt import Limit, ask_behind
from proxy.core.summaries.source import Block, Piece, blocks_of

_QUOTED = 160
"""Characters of a message by which it is known."""


def absent_from(sent: Situation, now: Situation, span: Span) -> list[Block]:
    """What of a gap the request before did not hold, as it was cut already; as the summary's source has it.

    ``sent`` is under the plan that the request went out with, ``now`` has the summaries that there are.
    """
    absent: list[Block] = []
    for gap in sent.plan.gaps_within(*span):
        absent += blocks_of(now, (max(gap.start, span[0]), min(gap.end, span[1])))
    return absent


def may_be_read(situation: Situation, span: Span, outgoing: Sequence[bytes]) -> bool:
    """Whether the summary of a gap may be written by who sees all that the request before held.

    Not where that ended before the gap does, and not where there is reasoning, or text that must stand in no
    summary. ``outgoing`` are the messages of the chain as they go out.
    """
    chain, plan, classes = situation.chain, situation.plan, situation.classes
    if max(span[1], plan.depth) > chain.sent_before:
        return False
    shown = [place for run in plan.uncut(chain.sent_before) for place in run]
    if not all(map(classes.may_be_summarised, shown)):
        return False
    return not any(chain.dialect.holds_reasoning(outgoing[place]) for place in shown)


def question_behind(
    situation: Situation, span: Span, absent: Sequence[Block], language: str, limit: Limit
) -> Ask:
    """The question for the summary of a gap of which all stands there but what is ``absent``."""
    start, end = span
    gaps = situation.plan.gaps_within(start, end)
    return ask_behind(
        _beginning(situation, start),
        _beginning(situation, end - 1),
        end - start - sum(gap.count - 1 for gap in gaps),
        Piece(tuple(absent)).text,
        language,
        limit,
        situation.policy.summary,
    )


def _beginning(situation: Situation, place: int) -> str:
    """How the message begins that stands in the view at a place, or for it."""
    plan, dialect = situation.plan, situation.chain.dialect
    if gaps := plan.gaps_within(place, place + 1):
        content = dialect.read(gaps[0].note)
    else:
        edit = plan.edit_at(place)
        content = situation.content(place) if edit is None else dialect.read(edit.raw)
    said = " ".join([content.text, *(f"{name} {arguments}" for _, name, arguments in content.calls)])
    role = "tool" if content.role in TOOL_ROLES else content.role
    return f"[{role}] {dumps(' '.join(said.split())[:_QUOTED]).decode()}"
