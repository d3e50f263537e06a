"""What stands upstream in later requests: on every worker, for every kind of client, in forks."""

from __future__ import annotations

import httpx2
import openai

from tests.support.clients import ADMIN, admin, only_session, proxying, tokens_of, user
from tests.support.repeated_calls import (
    ROME,
    WEATHER,
    ask,
    both,
    known,
    result,
    sent_back,
    talking,
)
from tests.support.upstreams import Message, Model, calling, said


@both
async def test_a_second_worker_sends_the_same(model: Model, policy: str, valkey: str, stream: bool) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18."), said("Fine."), said("Fine.")]
    messages, named = known(), {"X-Unabridged-Session": f"streamed {stream}"}
    async with (
        proxying(model.url, policy=policy, store=valkey) as first,
        proxying(model.url, policy=policy, store=valkey) as second,
        openai.AsyncOpenAI(base_url=f"{first}/v1", api_key="sk-test", default_headers=named) as one,
        openai.AsyncOpenAI(base_url=f"{second}/v1", api_key="sk-test", default_headers=named) as other,
    ):
        messages.append(sent_back(await ask(one, messages, stream=stream)))
        messages.append(user("Thank you"))
        await ask(one, messages, stream=stream)
        await ask(other, messages, stream=stream)
    assert bytes(model.chats[2].body) == bytes(model.chats[3].body)
    assert len(model.views()[3]) == len(messages) + 2


async def test_an_appending_client_has_its_hidden_calls_in_later_views(model: Model, url: str) -> None:
    headers = {"Authorization": "Bearer sk", "X-Unabridged-Mode": "append", "X-Unabridged-Session": "s"}
    model.replies += [calling(("c1", "get_weather", ROME)), said("18."), talking("Wait. ", WEATHER)]
    model.replies += [said("Still 18."), said("Fine.")]
    async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
        for message in (user("How?"), result("c1", "18 degrees"), user("And now?"), user("Thank you")):
            body = {"model": "gpt-test", "messages": [message], "stream": True}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
    roles = [message["role"] for message in model.views()[-1]]
    assert roles == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert model.invalid == []


async def test_a_title_request_is_not_touched(model: Model, client: openai.AsyncOpenAI) -> None:
    model.replies += [calling(WEATHER), said("Still 18."), said("A title"), said("Fine.")]
    messages = known()
    messages.append(sent_back(await ask(client, messages, stream=False)))
    title = [user("Title for: " + str(messages))]
    await ask(client, title, stream=False)
    assert model.views()[-1] == title
    await ask(client, [*messages, user("Thank you")], stream=False)
    assert len(model.views()[-1]) == len(messages) + 3


async def test_of_two_ways_to_the_same_words_the_first_stays(model: Model, url: str) -> None:
    twice = calling(WEATHER, ("c3", "get_weather", ROME))
    model.replies += [calling(WEATHER), said("Still 18."), twice, said("Still 18."), said("Fine.")]
    messages, named = known(), {"X-Unabridged-Session": "s"}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", default_headers=named) as client:
        answer = await ask(client, messages, stream=True)
        await ask(client, messages, stream=True)
        await ask(client, [*messages, sent_back(answer), user("Thank you")], stream=True)
    calls = [len(message.get("tool_calls", ())) for message in model.views()[-1]]
    assert calls == [0, 1, 0, 0, 0, 1, 0, 0, 0]


async def test_the_view_the_export_and_a_fork_have_them(model: Model, url: str) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18."), said("Fine.")]
    named = {"X-Unabridged-Session": "s"}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", default_headers=named) as client:
        messages = known()
        messages.append(sent_back(await ask(client, messages, stream=True)))
    one = await only_session(url)
    view = await admin(url, f"sessions/{one['id']}/view")
    assert [message["role"] for message in view["messages"][-3:]] == ["assistant", "tool", "assistant"]
    export = await admin(url, f"sessions/{one['id']}/export")
    assert [len(each["messages"]) for each in export["hidden"]] == [3]
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as operator:
        forked = await operator.post(f"/unabridged/v1/sessions/{one['id']}/fork", json={"name": "f"})
    assert forked.status_code < 300
    named = {"X-Unabridged-Session": "f"}
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", default_headers=named) as client:
        await ask(client, [*messages, user("Thank you")], stream=True)
    assert len(model.views()[-1]) == len(messages) + 3
    assert model.invalid == []


async def test_what_is_hidden_counts_as_it_would_if_the_client_had_sent_it(model: Model, url: str) -> None:
    model.replies += [calling(WEATHER), said("Still 18."), said("Fine."), said("Fine.")]
    body: Message = {"model": "gpt-test", "messages": known()}
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk"}) as client:
        first = await client.post("/v1/chat/completions", json=body)
        body["messages"] = [*known(), first.json()["choices"][0]["message"], user("Thank you")]
        second = await client.post("/v1/chat/completions", json=body)
        stranger = {"Authorization": "Bearer another"}
        openly = await client.post("/v1/chat/completions", json=model.bodies()[-1], headers=stranger)
    assert tokens_of(second)["sent"] == tokens_of(openly)["sent"]
