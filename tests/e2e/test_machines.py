"""Several machines on one store: `serve` processes of their own, and sessions that go from one to another."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio

from tests.support.append_client import Appender, contents
from tests.support.clients import ADMIN, SECRET, Chat, admin, question, told, user, write_policy
from tests.support.cluster import three_nodes
from tests.support.processes import Serving, serving
from tests.support.repeated_calls import POLICY, WEATHER, ask, both, known, result, sent_back, talking
from tests.support.servers import PATIENCE
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, running, said

SMALL = 'extends = "balanced"\nbudget.tokens = 800\n'

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Machines:
    """The machines, before one model."""

    def __init__(self, model: Model, served: list[Serving], stack: AsyncExitStack) -> None:
        self.model = model
        self.served = served
        self._stack = stack

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.served]

    def chat(self, policy: str = "small", **headers: str) -> Chat:
        chat = Chat(self.urls[0])
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        chat.headers |= {"X-Unabridged-Policy": policy, **named}
        self._stack.push_async_callback(chat.client.aclose)
        return chat

    def appenders(self, session: str) -> list[Appender]:
        """A client at each machine."""
        made = [Appender(url, session, {"X-Unabridged-Policy": "tools"}) for url in self.urls]
        for each in made:
            self._stack.push_async_callback(each.client.aclose)
        return made

    def sdk(self, at: int, session: str) -> openai.AsyncOpenAI:
        headers = {"X-Unabridged-Policy": "tools", "X-Unabridged-Session": session}
        client = openai.AsyncOpenAI(
            base_url=f"{self.urls[at]}/v1", api_key="sk-test", max_retries=0, default_headers=headers
        )
        self._stack.push_async_callback(client.close)
        return client

    async def session(self, name: str, at: int = 0) -> Any:
        """What a machine says of a session."""
        listed = (await admin(self.urls[at], "sessions"))["sessions"]
        return next((each for each in listed if each["name"] == name), None)

    async def delete(self, name: str, at: int) -> None:
        """Delete a session at a machine, once it is in the store."""
        async with httpx2.AsyncClient(base_url=self.urls[at], headers=ADMIN, timeout=PATIENCE) as client:
            while (await client.delete(f"/unabridged/v1/sessions/{name}")).status_code != 200:
                pass


@pytest.fixture(scope="module", params=["one server", "a cluster"])
def store(request: pytest.FixtureRequest) -> Generator[str]:
    """What the machines share."""
    if request.param == "a cluster":
        with three_nodes() as cluster:
            yield cluster.url
    else:
        with embedded_valkey() as url:
            yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(store: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Machines]:
    policies = tmp_path_factory.mktemp("policies")
    write_policy(policies, "small", SMALL)
    write_policy(policies, "tools", POLICY)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(running(Model()))
        served = [
            await stack.enter_async_context(_machine(tmp_path_factory.mktemp("d"), model, store, policies))
            for _ in range(2)
        ]
        for each in served:
            await each.becomes(200)
        yield Machines(model, served, stack)


def _machine(data: Path, model: Model, store: str, policies: Path) -> AbstractAsyncContextManager[Serving]:
    return serving(
        data,
        *("--upstream", model.url, "--store", store, "--policies", str(policies)),
        ready=False,
        UNABRIDGED_SECRET=SECRET,
        UNABRIDGED_ADMIN_TOKEN="admin",
        UNABRIDGED_STORE_TIMEOUT="10",
    )


@pytest.fixture
def machines(started: Machines) -> Machines:
    started.model.chats.clear()
    started.model.replies.clear()
    return started


async def test_a_chat_that_alternates_gets_the_same_bytes_as_one_that_stays(machines: Machines) -> None:
    """Each turn is asked of both machines at once; of each epoch there is one, whoever planned it first."""
    chat, session = machines.chat(), "alternating"
    epochs: list[str] = []
    for number in range(14):
        chat.messages.append(user(question(number)))
        machines.model.replies.extend([said(f"It is done, {number}. " * 8)] * 2)
        pair = [machines.chat(X_Unabridged_Session=session) for _ in machines.urls]
        for each, url in zip(pair, machines.urls, strict=True):
            each.url, each.messages = url, chat.messages
        answers = await asyncio.gather(*(each.send() for each in pair))
        assert len({bytes(sent.body) for sent in machines.model.chats[-2:]}) == 1
        assert {answer.headers.get("x-unabridged-degraded") for answer in answers} == {None}
        (epoch,) = {told(answer, "epoch") for answer in answers}
        epochs.append(epoch)
        chat.messages.append(answers[0].json()["choices"][0]["message"])
    assert int(epochs[-1]) >= 2
    assert (await machines.session(session))["epochs"] == (await machines.session(session, at=1))["epochs"]
    assert len((await machines.session(session))["epochs"]) == int(epochs[-1])


async def test_within_an_epoch_the_other_machine_goes_on_with_the_same_first_bytes(
    machines: Machines,
) -> None:
    chat = machines.chat(X_Unabridged_Session="stable")
    seen: list[tuple[str, list[Any]]] = []
    for number in range(14):
        chat.url = machines.urls[number % 2]
        response = await chat.ask(question(number))
        seen.append((told(response, "epoch"), machines.model.views()[-1]))
    assert seen[-1][0] != "0"
    for (epoch, view), (later, longer) in pairwise(seen):
        assert later == str(int(epoch) + 1) or longer[: len(view)] == view


async def test_a_session_that_no_header_names_is_found_at_the_other_machine(machines: Machines) -> None:
    chat = machines.chat()
    before = len((await admin(machines.urls[1], "sessions"))["sessions"])
    first = await chat.ask("Where is the harbour festival?")
    while len((await admin(machines.urls[1], "sessions"))["sessions"]) == before:
        pass  # a turn is written after its answer
    chat.url = machines.urls[1]
    second = await chat.ask("And when?")
    assert told(second, "session") == told(first, "session")


async def test_two_people_who_got_the_same_answer_at_two_machines_never_hear_of_each_other(
    machines: Machines,
) -> None:
    names = list[str | None]()
    people = machines.chat(), machines.chat()
    people[0].members["unabridged"] = {"inject": {"text": "The customer is called Ada, card 4711."}}
    people[1].url = machines.urls[1]
    for number, person in enumerate(people):
        machines.model.replies.append({"role": "assistant", "content": "Hello! How can I help you?"})
        names.append(told(await person.ask("Hi"), "session"))
        while await machines.session(str(names[number]), at=number) is None:
            pass  # a turn is written after its answer
    later = told(await people[1].ask("What do you know of me?"), "session")
    assert later not in names
    assert "Ada" not in json.dumps(machines.model.views()[-1])


async def test_a_session_that_is_deleted_at_one_machine_is_begun_anew_at_the_other(
    machines: Machines,
) -> None:
    chat, number = machines.chat(X_Unabridged_Session="deleted"), 0
    while told(await chat.ask(question(number)), "epoch") != "2":
        number += 1
    await machines.delete("deleted", at=1)
    assert told(await chat.ask(question(number + 1)), "epoch") == "1"
    chat.url = machines.urls[1]
    before = machines.model.views()[-1]
    await chat.ask(question(number + 2))
    assert machines.model.views()[-1][: len(before)] == before


async def test_a_session_that_one_machine_began_anew_is_found_by_the_other_though_it_gave_answers_before(
    machines: Machines,
) -> None:
    chat = machines.chat()
    name = told(await chat.ask("Where is the regatta?"), "session")
    await machines.delete(name, at=1)
    chat.url = machines.urls[1]
    name = told(await chat.ask("And when is it?"), "session")
    while await machines.session(name) is None:
        pass  # a turn is written after its answer
    chat.url = machines.urls[0]
    assert told(await chat.ask("Who sails?"), "session") == name


async def test_appended_turns_run_in_order_and_each_has_the_whole_past(machines: Machines) -> None:
    clients = machines.appenders("appended")
    asked = (clients[number % 2].ask(f"turn {number}") for number in range(8))
    responses = await asyncio.gather(*asked)
    assert [response.status_code for response in responses] == [200] * 8
    views = [contents(view) for view in machines.model.views()]
    assert [len(view) for view in views] == list(range(1, 17, 2))
    assert all(later[: len(view)] == view for view, later in pairwise(views))
    assert (await machines.session("appended", at=1))["turns"] == 8


@both
async def test_a_call_that_one_machine_answered_stands_in_the_views_of_the_other(
    machines: Machines, stream: bool
) -> None:
    model, session = machines.model, f"hidden {stream}"
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18."), said("You are welcome.")]
    messages = known()
    messages.append(sent_back(await ask(machines.sdk(0, session), messages, stream=stream)))
    await ask(machines.sdk(1, session), [*messages, user("Thank you")], stream=stream)
    _, second, third = model.views()
    assert third[: len(second)] == second
    assert third[-4:-2] == [second[-2], result("c2", "18 degrees")]
    assert third[-1] == user("Thank you")


async def test_what_was_handed_in_at_one_machine_stands_at_the_other(machines: Machines) -> None:
    chat = machines.chat(X_Unabridged_Session="handed")
    chat.members["unabridged"] = {"inject": {"text": "The customer is called Ada."}}
    await chat.ask("One?")
    chat.url = machines.urls[1]
    chat.members["unabridged"] = {"inject": {"text": "The customer is called Bob."}}
    assert told(await chat.ask("Two?"), "degraded") == "inject-ignored"
    del chat.members["unabridged"]
    await chat.ask("Three?")
    first, *later = machines.model.views()
    assert "Ada" in json.dumps(first)
    assert all(view[: len(first)] == first for view in later)
    assert "Bob" not in json.dumps(later)


@pytest.mark.soak
async def test_many_sessions_that_go_where_they_like_lose_nothing_and_repeat_nothing(
    machines: Machines,
) -> None:
    choice = random.Random(6)

    async def talk(number: int) -> None:
        chat, epochs = machines.chat(X_Unabridged_Session=f"long {number}"), list[str]()
        for turn in range(40):
            chat.url = choice.choice(machines.urls)
            response = await chat.ask(question(turn, topic=f"item of {number}"))
            assert response.status_code == 200
            assert "x-unabridged-degraded" not in response.headers
            epochs.append(told(response, "epoch"))
        session = await machines.session(f"long {number}", at=number % 2)
        kept: list[Any] = []
        while len(kept) < len(chat.messages):  # the last turn is written after its answer
            listed = await admin(machines.urls[number % 2], f"sessions/{session['id']}/transcript")
            kept = [each["message"]["content"] for each in listed["messages"]]
        assert kept == contents(chat.messages)
        assert len(session["epochs"]) == int(epochs[-1]) > 1
        while (await machines.session(f"long {number}"))["turns"] != 40:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # a turn that the next one overtook is counted when it comes

    async with asyncio.timeout(300):
        await asyncio.gather(*map(talk, range(12)))
