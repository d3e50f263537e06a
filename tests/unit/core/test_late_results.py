"""Results that come late, of tools that work on while the agent does, as the engine keeps its epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from proxy.core.budget.budget import Budget
from proxy.core.conversation.units import request_points
from proxy.core.planning.life import NO_PAST, in_force, past_of
from proxy.core.planning.plan import EMPTY, Epoch
from proxy.core.policy.policy import Policy
from tests.support.conversations import (
    Sent,
    Turn,
    assistant,
    calling,
    chain_from,
    prose,
    result,
    turn,
    user,
)
from tests.support.stores import epoch

SLOW = "slow"


def agent(sizes: Sequence[int], answered: int) -> list[Sent]:
    """An agent's turn whose first call is answered ``answered`` rounds later, and two turns behind it.

    ``sizes`` are the words of the other results.
    """
    messages = [user("Do it all."), calling(SLOW)]
    for number, size in enumerate(sizes):
        text = prose("en", size, number)
        messages += [calling(f"c{number}", arguments=f"[{number}]"), result(f"c{number}", text)]
        messages += [result(SLOW, "the slow one says 42")] if number == answered else []
    return [*messages, assistant("Done."), user("And now?"), assistant("Nothing."), user("Well.")]


def turns(messages: list[Sent], budget: Budget) -> Iterator[Turn]:
    """Each request, under the deepest epoch that applies to it."""
    whole, epochs = chain_from(messages), list[Epoch]()
    for length in request_points(whole.messages):
        chain = whole.prefix(length)
        found = in_force(epochs, chain.hashes, None, chain.keeps_open_part, chain.editable_length)
        past = past_of(epochs, found, chain.hashes) if found is not None else NO_PAST
        done = turn(chain, found.plan if found is not None else EMPTY, Policy(), budget, past=past)
        yield done
        if done.begun is not None and done.plan.depth:
            depth, number = done.plan.depth, len(epochs) + 1
            reach, begun_at = chain.hashes[depth - 1], chain.hashes[-1]
            parent = found.id if found is not None else ""
            made = {"number": number, "reach": reach, "depth": depth, "begun_at": begun_at, "plan": done.plan}
            epochs.append(epoch(str(number), parent, calm_below=0, **made))


SIZES = 80, 10, 90, 90, 25, 45, 40, 35, 33, 85, 65, 25, 30, 45


@pytest.mark.parametrize("tokens", range(700, 1_500, 20))
def test_a_late_result_is_never_in_a_view_without_its_call(tokens: int) -> None:
    messages = agent(SIZES, answered=11)
    call = 1
    late = next(place for place, each in enumerate(messages) if each.get("tool_call_id") == SLOW)
    for each in turns(messages, Budget(tokens, 1.0, 3)):
        if late < len(each.chain):
            assert each.plan.covers(call) == each.plan.covers(late)
