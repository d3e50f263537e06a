"""When a summary of summaries is made anew from the originals, so that it does not drift.

Every fourth epoch of a gap, and only where it pays: what has to be read for it is at most a twentieth of what
the session sent while the gap grew. Small budgets fail that test with long messages, as measured: there a
rebuild would be most of what summaries cost. It is written in the background, waited for by nobody, and takes
the old one's place when the next epoch begins.
"""

from proxy.core.plan import Anchor
from proxy.core.situation import Situation
from proxy.core.source import Source, least_of_originals, originals_of

GENERATIONS = 3
"""Summaries of summaries upon the first one, after which the originals are read again."""
MOST_PIECES = 16
_SHARE = 0.05
"""Of the tokens that were sent while the gap grew."""


def drifted(situation: Situation) -> list[Anchor]:
    """The summaries that have been summarised often enough to be made anew."""
    return [anchor for anchor in situation.plan.anchors if anchor.generation >= GENERATIONS]


def worthwhile_originals(situation: Situation, anchor: Anchor, room: int) -> Source | None:
    """What a summary is made anew from, where that pays; ``room`` as in :func:`source_of`.

    Whether it might is asked before anything is counted: a long gap's originals are most of a session.
    """
    span = (anchor.start, anchor.end)
    pieces, tokens = least_of_originals(situation, span, room)
    if not _pays(situation, anchor, pieces, tokens):
        return None
    originals = originals_of(situation, span, room)
    return originals if _pays(situation, anchor, len(originals.pieces), originals.tokens) else None


def _pays(situation: Situation, anchor: Anchor, pieces: int, tokens: int) -> bool:
    messages = situation.chain.messages[anchor.start : anchor.end]
    requests = sum(message.role == "assistant" for message in messages)
    stages = situation.policy.stages
    sent = requests * situation.budget.limit * (stages.target + stages.compact) / 2
    return pieces <= MOST_PIECES and tokens <= _SHARE * sent
