"""Models whose window nobody states: nothing is cut until the upstream shows where it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients import (
    Chat,
    Chats,
    admin,
    proxying,
    question,
    tokens_of,
    user,
    window_from,
    write_policy,
)
from tests.support.servers import PATIENCE, Exchange
from tests.support.upstreams import (
    JSON,
    Behaviour,
    Message,
    Model,
    calling,
    completion,
    count_tokens,
    plainly,
    running,
    said,
)

AGENT = 'extends = "agent"\neconomy.enabled = false\nsummary.enabled = false\n'


def counting(count: Callable[[int], int]) -> Behaviour:
    """Answers with a usage of its own: `count` of the tokens that the prompt really has."""

    async def answer(exchange: Exchange) -> None:
        prompt = count_tokens(json.loads(exchange.request.body))
        await exchange.answer_json(completion(said("So it is. " * 40), count(prompt)))

    return answer


def whole(chat: Chat, model: Model) -> bool:
    """Whether the newest request went out as the client wrote it."""
    return model.views()[-1] == chat.messages[:-1]


# --- nobody knows ---


async def test_nothing_is_cut_by_tokens_and_the_answer_says_that_there_is_no_budget(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="agent")
    chat.members["max_tokens"] = 8_000
    response = await chat.ask("Hello")
    for number in range(60):
        response = await chat.ask(question(number) * 4)
        assert whole(chat, model)
    assert response.headers["x-unabridged-tokens"].endswith("budget=none;window=none;window_from=unknown")
    assert (response.headers["x-unabridged-epoch"], set(chat.stages)) == ("0", {"calm"})
    (session,) = (await admin(url, "sessions"))["sessions"]
    assert (session["budget"], session["window"], session["window_from"]) == (None, None, "unknown")


async def test_a_budget_that_is_asked_for_acts_as_ever(model: Model, chats: Chats, url: str) -> None:
    chat = chats(url, X_Unabridged_Budget="1500")
    response = await chat.ask("Hello")
    for number in range(30):
        response = await chat.ask(question(number))
        assert tokens_of(response)["sent"] <= tokens_of(response)["budget"] == 1_500
    assert int(response.headers["x-unabridged-epoch"]) > 0


@pytest.mark.parametrize("text", [AGENT, 'extends = "sliding-window"\n'])
async def test_strategies_by_count_act_as_ever(model: Model, chats: Chats, tmp_path: Path, text: str) -> None:
    policy = write_policy(tmp_path, "counting", text)
    async with proxying(model.url, policy=str(policy)) as url:
        chat = chats(url)
        response = await chat.ask("Hello")
        for number in range(60):
            response = await chat.ask(question(number))
    assert int(response.headers["x-unabridged-cut"]) > 0
    assert "budget" not in tokens_of(response)


async def test_a_ceiling_in_bytes_acts_as_ever(model: Model, chats: Chats, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, "bytes", 'extends = "default"\n[budget]\nbytes = 6000\n')
    async with proxying(model.url, policy=str(policy)) as url:
        chat = chats(url)
        for number in range(40):
            await chat.ask(question(number))
    assert max(len(bytes(request.body)) for request in model.chats) <= 6_000


async def test_a_refusal_teaches_the_window_and_the_request_goes_out_again_unseen(chats: Chats) -> None:
    async with running(Model(window=3_000)) as model, proxying(model.url) as url:
        chat = chats(url)
        response = await chat.ask("Hello")
        for number in range(60):
            response = await chat.ask(question(number))
            assert response.status_code == 200
        assert (tokens_of(response)["window"], window_from(response)) == (3_000, "refusal")
        assert model.refused == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_a_refused_request_of_which_nothing_can_be_cut_is_not_sent_again(
    chats: Chats, *, streams: bool
) -> None:
    async with running(Model(window=3_000)) as model, proxying(model.url) as url:
        chat = chats(url)
        chat.members["stream"] = streams
        answer = await chat.ask("where from here? " * 2_000)
    assert (answer.status_code, len(model.chats)) == (400, 1)


# --- truncation in silence ---


async def test_a_silent_truncation_is_noticed_by_its_usage(
    model: Model, chats: Chats, capfd: pytest.CaptureFixture[str]
) -> None:
    model.replies.extend([counting(lambda prompt: min(prompt, 2_000))] * 60)
    async with proxying(model.url) as url:
        chat = chats(url)
        responses = [await chat.ask(question(number)) for number in range(40)]
    last = tokens_of(responses[-1])
    assert (last["window"], window_from(responses[-1])) == (2_000, "truncated")
    assert last["sent"] <= last["budget"] < 2_000 < last["full"]
    assert capfd.readouterr().err.count("truncates in silence") == 1


@pytest.mark.parametrize("stated", ['windows = { "gpt-test" = 8000 }', None])
async def test_a_truncation_lowers_what_policy_and_upstream_state(
    model: Model, chats: Chats, tmp_path: Path, stated: str | None
) -> None:
    model.listing = {"data": [{"id": "gpt-test", "max_model_len": 8_000}]}
    policy = write_policy(tmp_path, "p", f'extends = "default"\n[budget]\n{stated or ""}\n')
    async with proxying(model.url, policy=str(policy)) as url:
        async with asyncio.timeout(PATIENCE):
            while tokens_of(await chats(url).ask("Hello")).get("window") != 8_000:
                pass
        model.replies.clear()
        model.replies.extend([counting(lambda prompt: min(prompt, 2_000))] * 60)
        chat = chats(url)
        responses = [await chat.ask(question(number)) for number in range(30)]
    assert (tokens_of(responses[-1])["window"], window_from(responses[-1])) == (2_000, "truncated")


ODD_COUNTS: dict[str, Callable[[list[int]], int]] = {
    "cached tokens are left out": lambda prompts: prompts[-1] - prompts[-2] if prompts[1:] else prompts[-1],
    "ten, always": lambda _: 10,
    "nothing at all": lambda _: 0,
    "the same large number, always": lambda _: 5_000,
}


@pytest.mark.parametrize("how", ODD_COUNTS)
async def test_servers_that_count_otherwise_teach_nothing(
    model: Model, chats: Chats, url: str, how: str
) -> None:
    prompts: list[int] = []

    def count(prompt: int) -> int:
        prompts.append(prompt)
        return ODD_COUNTS[how](prompts)

    model.replies.extend([counting(count)] * 60)
    chat = chats(url)
    response = await chat.ask("Hello")
    for number in range(50):
        response = await chat.ask(question(number))
        assert whole(chat, model)
    assert window_from(response) == "unknown"


def with_picture(text: str) -> Message:
    """A user's message with a picture that the proxy counts as 1,445 tokens."""
    picture = {"type": "image_url", "image_url": {"url": "https://127.0.0.1/bridge.png"}}
    return {"role": "user", "content": [{"type": "text", "text": text}, picture]}


def counting_pictures(each: int) -> Behaviour:
    """Answers with a usage of the text's tokens and so many for each picture."""

    async def answer(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        pictures = exchange.request.body.count(b"bridge.png")
        await exchange.answer_json(completion(said("So it is."), count_tokens(body) + each * pictures))

    return answer


async def test_pictures_that_cost_less_than_counted_look_like_no_truncation(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    """The newest ten exchanges are sent. Pictures take the place of texts that cost the model as much."""
    text = 'extends = "sliding-window"\n[stages]\nmax_units = 20\n'
    model.replies.extend([counting_pictures(225)] * 60)
    async with proxying(model.url, policy=str(write_policy(tmp_path, "p", text))) as url:
        chat = chats(url)
        for number in range(12):
            await chat.ask(f"{number}: " + "so it is, " * 62)
        for number in range(12):
            shown = await chat.say(with_picture(f"What is picture {number}?"))
            assert window_from(shown) == "unknown"


async def test_pictures_that_cost_less_than_counted_do_not_lower_the_count_of_text(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.extend([counting_pictures(250)] * 60)
    pictures = chats(url)
    for number in range(12):
        await pictures.say(with_picture(f"What is picture {number}?"))
    text = chats(url)
    for number in range(6):
        sent = tokens_of(await text.ask(question(number)))["sent"]
        assert sent >= count_tokens({"messages": text.messages[:-1]})


async def test_pictures_that_cost_more_than_counted_raise_the_count(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.extend([counting_pictures(3_500)] * 60)
    chat = chats(url)
    responses = [await chat.say(with_picture(f"What is picture {number}?")) for number in range(12)]
    assert tokens_of(responses[-1])["sent"] >= 3_500 * 12


FOUND: dict[str, tuple[Message, int]] = {
    "a web search": ({"plugins": [{"id": "web"}]}, 400),
    "a short web search": ({"web_search_options": {}}, 1_500),
    "what nobody announces": ({}, 9_000),
}


@pytest.mark.parametrize("how", FOUND)
async def test_tokens_that_are_not_in_the_request_count_for_nobody_else(
    model: Model, chats: Chats, url: str, how: str
) -> None:
    members, extra = FOUND[how]
    whole_story = chats(url)
    whole_story.members["model"] = "gpt-4o"
    before = [tokens_of(await whole_story.ask(question(number) * 10))["sent"] for number in range(12)]
    model.replies.extend([counting(lambda prompt: prompt + extra)] * 12)
    for number in range(12):
        searching = chats(url, X_Unabridged_Session=str(number))
        searching.members |= {"model": "gpt-4o", **members}
        await searching.ask(question(number) * 4)
    after = tokens_of(await whole_story.ask("And now?"))["sent"]
    assert before[-1] < after < before[-1] + 500


async def test_searches_that_find_less_each_time_look_like_no_truncation(
    model: Model, chats: Chats, url: str
) -> None:
    long = chats(url)
    long.members["model"] = "gpt-4o"
    for number in range(40):
        await long.ask(question(number) * 5)
    found = iter([9_000, 8_700, 8_600, 8_800])
    model.replies.extend([counting(lambda _: next(found))] * 4)
    searching = chats(url, X_Unabridged_Session="searching")
    searching.members["model"] = "gpt-4o"
    responses = [await searching.ask(question(number)) for number in range(4)]
    responses.append(await long.ask("And now?"))
    assert {window_from(response) for response in responses} == {"prices"}
    assert whole(long, model)


async def test_a_truncation_is_noticed_though_an_early_message_had_a_picture(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.extend([counting(lambda prompt: min(prompt + 255, 2_000))] * 60)
    chat = chats(url)
    await chat.say(with_picture("What is it?"))
    responses = [await chat.ask(question(number)) for number in range(40)]
    assert (tokens_of(responses[-1])["window"], window_from(responses[-1])) == (2_000, "truncated")


async def test_usage_of_requests_with_pictures_is_not_asked_for_again_and_again(
    model: Model, chats: Chats, url: str
) -> None:
    chat, asked = chats(url), list[bool]()
    chat.members["stream"] = True
    for number in range(12):
        await chat.say(with_picture(f"What is picture {number}?"))
        asked.append("stream_options" in model.bodies()[-1])
        del chat.messages[:-2]  # as long as before
    assert (asked[2], asked[-1]) == (True, False)


async def test_a_client_that_streams_without_usage_is_protected_as_well(
    model: Model, chats: Chats, url: str
) -> None:
    """The usage is asked for, and taken out again; seldom, once five samples are known."""

    async def truncates(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        usage = min(count_tokens(body), 2_000) if body.get("stream_options") else None
        chunk: Message = {"id": "c", "object": "chat.completion.chunk", "model": "gpt-test"}
        choice = {"index": 0, "delta": {"role": "assistant", "content": "So it is. " * 40}}
        said_so: list[Message] = [{**chunk, "choices": [{**choice, "finish_reason": "stop"}]}]
        if usage:
            said_so.append(
                {**chunk, "choices": [], "usage": {"prompt_tokens": usage, "completion_tokens": 9}}
            )
        await exchange.stream_events(said_so)

    model.replies.extend([truncates] * 80)
    chat = chats(url)
    chat.members["stream"] = True
    response = await chat.ask("Hello")
    for number in range(50):
        response = await chat.ask(question(number))
        assert b"prompt_tokens" not in response.content
    assert (tokens_of(response)["window"], window_from(response)) == (2_000, "truncated")


async def test_usage_of_short_requests_is_asked_for_five_times_too(
    model: Model, chats: Chats, url: str
) -> None:
    for number in range(8):
        chat = chats(url, X_Unabridged_Session=str(number))
        chat.members["stream"] = True
        assert b"prompt_tokens" not in (await chat.ask("Hello")).content
    assert ["stream_options" in body for body in model.bodies()] == [True] * 5 + [False] * 3


async def test_usage_that_is_refused_is_asked_for_once_and_the_request_goes_out_as_it_was_written(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.append(plainly(400, [JSON], b'{"error": {"message": "Unknown parameter: stream_options"}}'))
    chat = chats(url)
    chat.members["stream"] = True
    statuses = [(await chat.ask("Hello")).status_code for _ in range(3)]
    asked = ["stream_options" in body for body in model.bodies()]
    assert (statuses, asked) == ([200] * 3, [True, False, False, False])


async def test_usage_is_asked_for_again_where_the_request_is_refused_without_it_too(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies += [
        plainly(400, [JSON], b'{"error": {"message": "It is filtered.", "param": "prompt"}}')
    ] * 2
    chat = chats(url)
    chat.members["stream"] = True
    statuses = [(await chat.ask("Hello")).status_code for _ in range(2)]
    asked = ["stream_options" in body for body in model.bodies()]
    assert (statuses, asked) == ([400, 200], [True, False, True])


# --- a window or a budget that must be wrong ---


async def test_a_window_that_an_answer_refutes_cuts_nothing(model: Model, chats: Chats, url: str) -> None:
    """The price list says 8,192; the upstream takes more, and says so."""
    chat = chats(url)
    chat.members["model"] = "gpt-4"
    chat.messages.append({"role": "system", "content": "Mind the rules. " * 2_500})
    model.replies.extend([counting(lambda prompt: prompt)] * 30)
    response = await chat.ask("Hello")
    for number in range(20):
        response = await chat.ask(question(number))
        assert whole(chat, model)
    assert window_from(response) == "prices"
    assert tokens_of(response)["window"] > 8_192


async def asked_often(chat: Chat, model: Model) -> tuple[int, dict[str, int]]:
    """Ask sixty questions after a long system prompt; the last answer's epoch and tokens."""
    chat.messages.append({"role": "system", "content": "Mind the rules. " * 2_000})
    response = await chat.ask("Hello")
    for number in range(60):
        response = await chat.ask(question(number))
        assert model.views()[-1][:2] == chat.messages[:2], "the first user message stays"
        assert model.views()[-1][-3:] == chat.messages[-4:-1], "the newest messages stay"
    return int(response.headers["x-unabridged-epoch"]), tokens_of(response)


async def test_where_head_and_last_message_exceed_the_window_little_is_cut_and_one_warning_says_why(
    model: Model, chats: Chats, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = 'extends = "default"\n[budget]\nwindows = { "gpt-test" = 4000 }\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "wrong", text))) as url:
        chat = chats(url)
        chat.members["max_tokens"] = 8_000
        epoch, tokens = await asked_often(chat, model)
    assert 1 <= epoch <= (tokens["full"] - 6_000) / 1_000, "one for a quarter of the window, at most"
    assert tokens["sent"] < tokens["full"]
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "exceed the context window" in line]
    logged = json.loads(warning)
    assert (logged["window"], logged["window_from"]) == (4_000, "policy")
    assert logged["needed"] > 6_000


async def test_where_the_head_alone_exceeds_the_budget_little_is_cut_and_one_warning_says_why(
    model: Model, chats: Chats, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = 'extends = "default"\n[budget]\ntokens = 4000\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "small", text))) as url:
        epoch, tokens = await asked_often(chats(url), model)
    assert 1 <= epoch <= (tokens["full"] - 6_000) / 1_000, "one for a quarter of the budget, at most"
    assert tokens["sent"] < tokens["full"]
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "head alone exceeds" in line]
    assert json.loads(warning)["budget"] == 4_000


async def test_a_reserve_takes_at_most_half_of_what_head_and_last_message_leave(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    text = 'extends = "default"\n[budget]\nwindows = { "gpt-test" = 8000 }\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "reserve", text))) as url:
        chat = chats(url)
        chat.members["max_tokens"] = 8_000
        chat.messages.append({"role": "system", "content": "Mind the rules. " * 500})
        tokens = tokens_of(await chat.ask("Hello"))
    assert tokens["budget"] == tokens["window"] - (tokens["window"] - tokens["sent"]) // 2


async def test_the_log_says_once_per_model_what_its_window_is(
    model: Model, chats: Chats, capfd: pytest.CaptureFixture[str]
) -> None:
    async with proxying(model.url) as url:
        chat = chats(url)
        chat.members["model"] = "gpt-4o"
        for number in range(3):
            await chat.say(user(question(number)))
    lines = [line for line in capfd.readouterr().err.splitlines() if '"context window"' in line]
    (told,) = map(json.loads, lines)
    assert (told["model"], told["window"], told["window_from"]) == ("gpt-4o", 128_000, "prices")


async def test_a_count_that_cannot_be_the_prompts_refutes_no_window(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.extend([counting(lambda _: 10**9)] * 3)
    chat = chats(url)
    chat.members["model"] = "gpt-4o"
    responses = [await chat.ask(question(number)) for number in range(3)]
    assert tokens_of(responses[-1])["window"] == 128_000


async def test_a_tool_result_that_is_larger_than_the_window_is_still_clipped(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    text = 'extends = "default"\n[budget]\nwindows = { "gpt-test" = 4000 }\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "small", text))) as url:
        chat = chats(url)
        chat.messages += [user("Read it."), calling(("c1", "read", "{}"))]
        result = {"role": "tool", "tool_call_id": "c1", "content": "A line of the file.\n" * 2_000}
        tokens = tokens_of(await chat.say(result))
    assert tokens["full"] > tokens["window"] > tokens["budget"] >= tokens["sent"]


async def test_a_refusal_of_prompt_and_answer_together_is_answered_by_enough_pruning(
    model: Model, chats: Chats, url: str
) -> None:
    """As vLLM does: what the request allows the answer counts as well."""

    async def strict(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        prompt, answer = count_tokens(body), body["max_tokens"]
        if prompt + answer <= 4_000:
            await exchange.answer_json(completion(said("So it is. " * 40), prompt))
            return
        told = (
            "This model's maximum context length is 4000 tokens. However, you requested "
            f"{prompt + answer} tokens ({prompt} in the messages, {answer} in the completion)."
        )
        await exchange.answer_json({"error": {"message": told, "code": 400}}, 400)

    model.replies.extend([strict] * 80)
    chat = chats(url)
    chat.members["max_tokens"] = 2_500
    assert [(await chat.ask(question(number))).status_code for number in range(25)] == [200] * 25


@pytest.mark.parametrize("ratio_name", ["gpt-test", "chatgpt-test"])
async def test_a_count_of_the_newest_user_message_alone_teaches_nothing(
    model: Model, chats: Chats, url: str, ratio_name: str
) -> None:
    """The server has kept its own answers as well."""
    asked: list[int] = []

    async def answer(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        asked.append(count_tokens(body if not asked else {"messages": body["messages"][-1:]}))
        await exchange.answer_json(completion(said("So it is. " * 300), asked[-1]))

    model.replies.extend([answer] * 20)
    chat = chats(url)
    chat.members["model"] = ratio_name
    response = await chat.ask("Hello")
    for number in range(12):
        response = await chat.ask(question(number) * 20)
        assert whole(chat, model)
    assert window_from(response) == "unknown"
