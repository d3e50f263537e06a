"""What a conversation sent turn by turn, told from its messages and its epochs: for people who look at it.

No record is kept of each request's size. None is needed: what went out is a pure function of the messages and
of the epoch in force (law 3), and an epoch says at which message it began.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.budget.budget import Budget
from proxy.core.conversation.units import request_points
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Epoch, view_tokens


@dataclass(frozen=True, slots=True)
class SentTurn:
    """One request. Tokens are the model's, by the ratio and the head of the newest one."""

    messages: int
    """Messages that the client sent, without the head."""
    full: int
    """Tokens of what the client sent."""
    sent: int
    """Tokens of what the model got."""
    epoch: int
    """The number of the epoch in force; 0 where none was."""
    began: bool
    """Whether that epoch began with it, or after the request before."""


def line_of(epochs: Sequence[Epoch], current: Epoch | None) -> list[Epoch]:
    """The epochs that led to the one in force, oldest first, and that one."""
    by_id = {epoch.id: epoch for epoch in epochs}
    line: list[Epoch] = []
    while current is not None:
        line.append(current)
        current = by_id.get(current.parent)
    return line[::-1]


def sent_turns(chain: Chain, line: Sequence[Epoch], budget: Budget) -> list[SentTurn]:
    """Every request that led to ``chain``, under the epochs of ``line`` (oldest first)."""
    points = request_points(chain.messages)
    if not chain.messages or chain.messages[-1].role == "assistant":
        points = points[:-1]  # an answer at the very end has not been sent yet
    whole = chain.tokens
    # What an epoch takes out of a view does not depend on what came after it.
    starts = [(epoch.length_at_start(chain.hashes), epoch) for epoch in line]
    saved = [whole.total - view_tokens(epoch.plan, whole) for epoch in line]
    turns: list[SentTurn] = []
    place, before = -1, 0
    for length in points:
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
    """The epoch since which the message at ``position`` is not in the view as it came; None where it is."""
    found = None
    for epoch in reversed(line):
        if epoch.plan.shows(position):
            break
        found = epoch
    return found
