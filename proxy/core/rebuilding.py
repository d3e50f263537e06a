"""When a summary of summaries is made anew from the originals, so that it does not drift.

Every fourth epoch of a gap, and only where it pays: what has to be read for it is at most a twentieth of what
the session sent while the gap grew. Small budgets fail that test with long messages, as measured: there a
rebuild would be most of what summaries cost. It is written in the background, waited for by nobody, and takes
the old one's place when the next epoch begins.
"""

from proxy.core.plan import Anchor
from proxy.core.situation import Situation
from proxy.core.source import Source

GENERATIONS = 3
"""Summaries of summaries upon the first one, after which the originals are read again."""
MOST_PIECES = 16
_SHARE = 0.05
"""Of the tokens that were sent while the gap grew."""


def drifted(situation: Situation) -> list[Anchor]:
    """The summaries that have been summarised often enough to be made anew."""
    return [anchor for anchor in situation.plan.anchors if anchor.generation >= GENERATIONS]


def pays(situation: Situation, anchor: Anchor, originals: Source) -> bool:
    """Whether to make a summary anew from ``originals``."""
    messages = situation.chain.messages[anchor.start : anchor.end]
    requests = sum(message.role == "assistant" for message in messages)
    stages = situation.policy.stages
    sent = requests * situation.budget.limit * (stages.target + stages.compact) / 2
    return len(originals.pieces) <= MOST_PIECES and originals.tokens <= _SHARE * sent
