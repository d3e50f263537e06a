"""What a session is told at its start stays where it is, so that its provider's prompt cache holds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support.clients import Chat, Chats, admin, question, user
from tests.support.remembering import RememberingModel, person, prelude, read
from tests.support.servers import until
from tests.support.upstreams import said

TURNS = 30
CLOSE = 0.01
"""How far apart two shares may be."""
LONG = [f"The crane number {number} was painted in the week {number + 3} by Ben." for number in range(40)]


@pytest.fixture
async def painted(model: RememberingModel, url: str, chats: Chats) -> str:
    """The proxy once there is much to be told to the person ana."""
    model.caches = True
    first = person(chats, url, X_Unabridged_Session="one")
    for text in LONG[:-1]:
        first.messages += [user(text), said("Noted.")]
    await first.ask(LONG[-1])
    await read(model)

    async def is_written() -> bool:
        return all(scope["long"] for scope in (await admin(url, "memory"))["scopes"])

    await until(True, is_written)
    return url


async def test_from_its_second_turn_on_nothing_of_a_request_changes_but_what_the_client_adds(
    model: RememberingModel, painted: str, chats: Chats
) -> None:
    chat = person(chats, painted, X_Unabridged_Session="two")
    for number in range(6):
        await chat.ask(question(number))
    bodies = [bytes(request.body) for request in model.chats[-6:]]
    assert b"The crane number" in bodies[0]
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier.rpartition(b"]")[0])


@pytest.mark.parametrize("budget", [None, 4_000], ids=["whole", "cut"])
async def test_as_much_of_a_session_is_cached_with_memory_as_without(
    model: RememberingModel, painted: str, chats: Chats, budget: int | None
) -> None:
    limited = {} if budget is None else {"X_Unabridged_Budget": str(budget)}
    told = person(chats, painted, X_Unabridged_Session="two", **limited)
    untold = person(chats, painted, X_Unabridged_Session="three", X_Unabridged_Policy="default", **limited)
    without = await cached_share(untold, "boat")
    assert prelude(model.views()[-1]).count("crane number") == 0
    share = await cached_share(told, "ship")
    assert prelude(model.views()[-1]).count("crane number") > 10
    assert share > without - CLOSE


async def cached_share(chat: Chat, topic: str) -> float:
    """Of the tokens of all its prompts, how many the provider had kept."""
    prompts = cached = 0
    for number in range(TURNS):
        usage: dict[str, Any] = (await chat.ask(question(number, topic))).json()["usage"]
        prompts += usage["prompt_tokens"]
        cached += usage["prompt_tokens_details"]["cached_tokens"]
    return cached / prompts
