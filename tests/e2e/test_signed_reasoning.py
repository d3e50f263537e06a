"""Law 9: reasoning goes out only behind what it was made behind, before a model that refuses all else."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from tests.support.clients import Chat, Chats, making_chats, proxying, question, told, user, write_policy
from tests.support.operator import ask, do
from tests.support.servers import Exchange
from tests.support.signing import SigningModel, behind
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


@pytest.fixture
async def url(signing: SigningModel, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "small", POLICY.format(extends="balanced", tokens=900))
    async with proxying(signing.url, policy=str(policy)) as served:
        yield served


async def until_cut(chat: Chat, most: int = 20) -> int:
    """Talk until something is cut; the number of the turn."""
    for number in range(most):
        response = await chat.ask(question(number))
        assert response.status_code == 200
        if told(response, "cut") != "0":
            return number
    raise AssertionError("nothing was cut")


def reasoned(messages: list[Message]) -> list[int]:
    return [
        place
        for place, each in enumerate(messages)
        if "thinking_blocks" in each or "reasoning_details" in each
    ]


# --- an epoch ---


async def test_what_was_thought_before_an_epoch_is_left_out_and_what_is_thought_after_it_comes_back(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await until_cut(chat)
    assert reasoned(signing.views()[-1]) == []
    assert reasoned(signing.views()[-2])
    await chat.ask("Why?")
    assert len(reasoned(signing.views()[-1])) == 1
    assert signing.refusals == []


async def test_all_else_of_a_message_that_loses_its_reasoning_keeps_its_bytes(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await until_cut(chat)
    kept = [each for each in signing.views()[-1] if each["role"] == "assistant"]
    names = {"thinking_blocks", "reasoning_content", "reasoning", "reasoning_details"}
    sent = [{name: value for name, value in each.items() if name not in names} for each in chat.messages]
    assert kept
    assert all(each in sent for each in kept)


async def test_while_nothing_is_cut_bodies_go_out_byte_for_byte(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    for text in ("One?", "Two?", "Three?"):
        await chat.ask(text)
    expected = json.dumps({**chat.members, "messages": chat.messages[:-1]}).encode()
    assert bytes(signing.chats[-1].body) == expected
    assert len(reasoned(signing.views()[-1])) == 2


async def test_amid_calls_that_were_thought_about_nothing_is_cut_before_it_must(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await chat.ask("Look around, please.")
    cuts: list[tuple[str, str]] = []
    signing.replies += [calling((f"c{number}", "look", "{}")) for number in range(25)]
    response = await chat.ask("Look again.")
    for number in range(24):
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": "there is a tree " * 10}
        response = await chat.say(result)
        assert response.status_code == 200
        cuts.append((told(response, "stage"), told(response, "cut")))
    whole = [stage for stage, cut in cuts if cut == "0"]
    assert "trim" in whole
    assert cuts[len(whole)][0] == "compact"
    assert signing.refusals == []


async def test_an_answer_that_is_asked_for_anew_after_all_was_restored_goes_without_what_came_before(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await until_cut(chat)
    await do(url, "restore")
    del chat.messages[-1]
    response = await chat.say()
    assert (response.status_code, told(response, "cut")) == (200, "0")
    await chat.ask("Why?")
    assert reasoned(signing.views()[-2]) == []
    assert signing.refusals == []


# --- a refusal ---


def foreign(chat: Chat, exchanges: int = 2) -> None:
    """A history that was made elsewhere, under another system message."""
    for number in range(exchanges):
        block = {"type": "thinking", "thinking": "so", "signature": f"of another prefix {number}"}
        answer = {"role": "assistant", "content": "So it is.", "thinking_blocks": [block]}
        chat.messages += [user(f"Before {number}?"), answer]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_history_that_was_made_elsewhere_is_sent_once_more_without_its_reasoning(
    signing: SigningModel, url: str, chats: Chats, stream: bool
) -> None:
    chat = chats(url)
    chat.members["stream"] = stream
    foreign(chat)
    response = await chat.ask("And now?")
    assert response.status_code == 200
    assert len(signing.refusals) == 1
    refused, taken = signing.views()
    assert (reasoned(refused), reasoned(taken)) == ([1, 3], [])
    assert [each["content"] for each in refused] == [each["content"] for each in taken]


async def test_what_was_refused_once_is_left_out_from_then_on_and_what_is_new_comes_back(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    foreign(chat)
    for text in ("And now?", "And then?", "And after that?"):
        response = await chat.ask(text)
        assert response.status_code == 200
        assert told(response, "cut") == "0"
    assert len(signing.refusals) == 1
    assert reasoned(signing.views()[-1]) == [5, 7]


async def test_a_refusal_in_the_first_event_of_a_stream_is_mended_too(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    fault = {"error": {"message": "Invalid `signature` in `thinking` block", "code": 400}}
    signing.thinks = 0
    chat = chats(url)
    block = {"type": "reasoning.encrypted", "data": behind(b'{"messages":[]}')}
    chat.messages.append({"role": "assistant", "content": "Hello.", "reasoning_details": [block]})

    async def late(exchange: Exchange) -> None:
        await exchange.stream_events([fault])

    signing.replies.append(late)
    chat.members["stream"] = True
    response = await chat.ask("And now?")
    assert response.status_code == 200
    assert "Invalid" not in response.text
    assert [reasoned(view) for view in signing.views()] == [[0], []]


async def test_a_refusal_that_stays_one_is_passed_on(signing: SigningModel, url: str, chats: Chats) -> None:
    async def refuses(exchange: Exchange) -> None:
        fault = {"error": {"message": "Invalid `signature` in `thinking` block"}}
        await exchange.answer_json(fault, 400)

    signing.replies += [refuses, refuses]
    chat = chats(url)
    response = await chat.ask("Without any reasoning.")
    assert response.status_code == 400
    assert len(signing.chats) == 1


# --- sessions at random ---


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
@pytest.mark.parametrize("count", [25, pytest.param(334, marks=pytest.mark.soak)])
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
