"""Law 9 in sessions at random: epochs, branches, restarts and a lost store, and no reasoning is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.clients import Chat, making_chats, proxying, question, user, write_policy
from tests.support.operator import ask
from tests.support.signing import SigningModel
from tests.support.stores import embedded_valkey, run
from tests.support.upstreams import Message, calling, running

POLICY = """
extends = "{extends}"
budget.tokens = {tokens}
recall.enabled = true
"""
TURNS = 16


@pytest.fixture
async def signing() -> AsyncGenerator[SigningModel]:
    model = SigningModel(thinks=1.0)
    async with running(model):
        yield model


@pytest.fixture
def store() -> Generator[str]:
    with embedded_valkey() as url:
        yield url


class Site:
    """Two workers before one model, on one store."""

    def __init__(self, model: SigningModel, store: str, policy: Path) -> None:
        self.model, self.store, self.policy = model, store, policy
        self.urls: list[str] = []
        self._stacks: list[AsyncExitStack] = []

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Site]:
        try:
            for _ in range(2):
                self._stacks.append(AsyncExitStack())
                self.urls.append(await self._start(self._stacks[-1]))
            yield self
        finally:
            for each in self._stacks:
                await each.aclose()

    async def _start(self, stack: AsyncExitStack) -> str:
        served = proxying(self.model.url, policy=str(self.policy), store=self.store)
        return await stack.enter_async_context(served)

    async def restart(self, number: int) -> None:
        await self._stacks[number].aclose()
        self._stacks[number] = AsyncExitStack()
        self.urls[number] = await self._start(self._stacks[number])


async def a_session(site: Site, chat: Chat, random: Random) -> None:
    """Turns on either worker: questions, rounds of calls, words changed, answers asked anew, verbs."""
    branches: list[list[Message]] = []
    for turn in range(TURNS):
        kind = random.random()
        asked = [place for place, each in enumerate(chat.messages) if each["role"] == "user"]
        if kind < 0.2 and asked:
            branches.append([*chat.messages])
            del chat.messages[random.choice((asked[-1], random.choice(asked[-3:]), random.choice(asked))) :]
        elif kind < 0.3 and asked:
            del chat.messages[asked[-1] + 1 :]
            await answered(chat)
        elif kind < 0.55 and branches:
            other = random.choice(branches)
            branches.append(chat.messages)
            chat.messages = [*other]
        elif kind < 0.65 and asked:
            # The worker that gave the newest answer knows that it is the newest.
            name, verb = chat.headers["X-Unabridged-Session"], random.choice(("compact", "restore"))
            assert (await ask(chat.url, "POST", f"sessions/{name}/{verb}")).status_code < 500
        chat.url = random.choice(site.urls)
        rounds = random.choice((0, 0, 1, 4))
        site.model.replies += [calling((f"c{turn}-{number}", "look", "{}")) for number in range(rounds)]
        await answered(chat, user(question(random.randrange(1000)) * random.choice((1, 1, 3))))
        for number in range(rounds):
            chat.url = random.choice(site.urls)
            words = "there is a tree " * random.choice((2, 20))
            await answered(chat, {"role": "tool", "tool_call_id": f"c{turn}-{number}", "content": words})


async def answered(chat: Chat, *messages: Message) -> None:
    response = await chat.say(*messages)
    assert response.status_code == 200, response.text


async def sessions(site: Site, seeds: range) -> None:
    async with making_chats() as chats:
        for seed in seeds:
            random = Random(seed)
            site.model.random, site.model.thinks = random, random.choice((0.5, 1.0))
            site.model.replies.clear()
            if random.random() < 0.1:
                await site.restart(random.randrange(2))
            await a_session(site, chats(site.urls[0], X_Unabridged_Session=f"s{seed}"), random)
            assert site.model.refusals == [], f"seed {seed}"


@pytest.mark.parametrize("extends", ["balanced", "aggressive", "agent"])
@pytest.mark.parametrize("count", [8, pytest.param(334, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_in_sessions_at_random_no_reasoning_is_refused(
    signing: SigningModel, store: str, tmp_path: Path, extends: str, count: int
) -> None:
    policy = write_policy(tmp_path, "small", POLICY.format(extends=extends, tokens=1200))
    async with Site(signing, store, policy).running() as site:
        await sessions(site, range(count))
    assert len(signing.views()) > 10 * count


async def test_where_all_records_are_lost_a_refusal_is_mended_before_anyone_sees_it(
    signing: SigningModel, store: str, tmp_path: Path
) -> None:
    """Nobody can know behind what it was made; after each loss one request is refused at most."""
    policy = write_policy(tmp_path, "small", POLICY.format(extends="balanced", tokens=1200))
    async with Site(signing, store, policy).running() as site, making_chats() as chats:
        for seed in range(6):
            chat, losses = chats(site.urls[0], X_Unabridged_Session=f"s{seed}"), 0
            signing.refusals.clear()
            for turn in range(24):
                if turn in (9, 16):
                    losses += 1
                    run(store, "FLUSHALL")
                    for number in range(2):
                        await site.restart(number)
                chat.url = site.urls[(turn + seed) % 2]
                await answered(chat, user(question(100 * seed + turn)))
            assert len(signing.refusals) <= losses
