"""What a pruned request looks like on the wire: law 2, byte by byte."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from tests.support.canaries import logged
from tests.support.clients import (
    CHAT,
    Chats,
    Small,
    admin,
    proxying,
    question,
    tokens_of,
    told,
    user,
    write_policy,
)
from tests.support.servers import Exchange, eventually
from tests.support.upstreams import Message, Model, calling, completion, count_tokens, fault_in, said

BUDGET = 800


def past(turns: int) -> list[Message]:
    pairs = [
        [user(question(number)), {"role": "assistant", "content": f"Done {number}."}]
        for number in range(turns)
    ]
    return [message for pair in pairs for message in pair]


def is_note(message: Message) -> bool:
    return str(message.get("content")).startswith("<note ")


ODD_MEMBERS = b'{ "seed" : 123456789012345678901234567890,\n "model":"gpt-test" , "x":1.0, "messages" :[ '
ODD_MESSAGES = [
    b'{"role" :"system","content":"Be brief. \\ud800" }',
    *(b'{ "content":"%b", "role":"user","x_odd":1.50 }' % question(number).encode() for number in range(15)),
    b'{"content" : "The last one. \\u0000 \\ud83d\\udc18" ,"role": "user","name":"jo" }',
]
ODD_END = b' ]\r\n, "temperature":1.000 , "x_unknown":{"b":[1e400]} }\n'


async def test_what_is_kept_of_a_pruned_request_keeps_its_bytes(model: Model, small: Small) -> None:
    body = ODD_MEMBERS + b" ,\n".join(ODD_MESSAGES) + ODD_END
    async with httpx2.AsyncClient(base_url=await small(BUDGET)) as client:
        response = await client.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 200
    assert told(response, "stage") == "emergency"
    sent = bytes(model.chats[0].body)
    start = ODD_MEMBERS.rstrip(b"[ ")
    assert sent.startswith(start)
    assert sent.endswith(ODD_END.lstrip(b" ]"))
    assert ODD_MESSAGES[0] in sent
    assert ODD_MESSAGES[-1] in sent
    kept = [message for message in ODD_MESSAGES if message in sent]
    assert len(ODD_MESSAGES) - len(kept) == int(told(response, "cut")) > 0
    notes = [message for message in json.loads(sent)["messages"] if is_note(message)]
    assert len(json.loads(sent)["messages"]) == len(kept) + len(notes)


async def test_a_last_message_that_has_room_only_alone_goes_out_alone_and_a_later_note_tells_of_the_rest(
    model: Model, chats: Chats, small: Small
) -> None:
    last = user("Question: " + "what is it? " * 200)
    chat = chats(await small(count_tokens({"messages": [last]}), summaries=False), X_Unabridged_Session="s")
    chat.members["model"] = "gpt-4o"  # whose tokens are counted exactly
    chat.messages = [*past(5), last]
    responses = [await chat.send(), await chat.send()]
    assert model.views() == [[last], [last]]
    assert [told(response, "cut") for response in responses] == ["10", "10"]
    chat.messages.append({"role": "assistant", "content": "Read."})
    await chat.ask("Question: and now?")
    first, note, *rest = model.views()[-1]
    assert first == chat.messages[0], "it has room again"
    assert "omitted]" in str(note["content"])
    assert rest == chat.messages[-1 - len(rest) : -1]
    assert rest[-1] == user("Question: and now?")


async def test_a_trailing_prefill_stays_last_and_as_it_is(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET))
    chat.messages = [*past(20), user("Question: the last"), {"role": "assistant", "content": "It was "}]
    response = await chat.send()
    assert told(response, "stage") == "emergency"
    assert model.views()[0][-2:] == chat.messages[-2:]
    assert count_tokens(model.bodies()[0]) <= BUDGET


async def test_a_huge_tool_result_is_clipped_in_the_open_unit(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    text = " ".join(f"line{number}" for number in range(3000))
    chat.messages = [user("Do read it."), calling(("c1", "read", "{}"))]
    response = await chat.say({"role": "tool", "tool_call_id": "c1", "content": text})
    assert response.status_code == 200
    sent = model.views()[0]
    assert sent[:2] == chat.messages[:2]
    assert sent[2]["content"].startswith("line0 ")
    assert sent[2]["content"].endswith("line2999")
    assert count_tokens(model.bodies()[0]) <= BUDGET
    chat.messages.pop()
    await chat.send()
    assert model.views()[1] == sent, "the same request is clipped in the same way"


async def test_parallel_calls_and_their_results_are_kept_or_cut_together(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET))
    for number in range(20):
        model.replies.append(calling(*((f"c{number}-{part}", "read", "{}") for part in range(3))))
        results = [
            {"role": "tool", "tool_call_id": f"c{number}-{part}", "content": f"result {part} " * 10}
            for part in (2, 0, 1)
        ]
        await chat.ask(question(number))
        assert (await chat.say(*results)).status_code == 200
    for body in model.bodies():
        assert fault_in(body["messages"]) is None
        assert count_tokens(body) <= BUDGET


async def test_call_ids_that_repeat_are_told_apart_by_their_place(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET))
    for number in range(25):
        model.replies.append(calling(("call_0", "read", json.dumps({"n": number}))))
        await chat.ask(question(number))
        result = {"role": "tool", "tool_call_id": "call_0", "content": f"result {number}"}
        assert (await chat.say(result)).status_code == 200
    for view in model.views():
        assert fault_in(view) is None
        for message, following in pairwise(view):
            if message.get("tool_calls"):
                number = json.loads(message["tool_calls"][0]["function"]["arguments"])["n"]
                assert following["content"] == f"result {number}"


async def test_several_choices_are_relayed_and_the_next_body_tells_which_was_taken(
    model: Model, chats: Chats, url: str
) -> None:
    two = completion(said("One"))
    two["choices"].append({**two["choices"][0], "index": 1, "message": said("Two")})

    async def both(exchange: Exchange) -> None:
        await exchange.answer_json(two)

    model.replies.append(both)
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["n"] = 2
    chat.messages.append(user("Hello"))
    assert len((await chat.send()).json()["choices"]) == 2
    chat.members.pop("n")
    chat.messages.append({"role": "assistant", "content": "Two"})
    await chat.ask("And then?")
    transcript = await admin(url, "sessions/s/transcript")
    assert [each["message"]["content"] for each in transcript["messages"]][:3] == [
        "Hello",
        "Two",
        "And then?",
    ]


async def test_a_client_that_compacts_by_itself_gets_nothing_of_ours(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    for number in range(15):
        await chat.ask(question(number))
    chat.messages = [user("What happened so far: all items were sent.")]
    response = await chat.say()
    assert (told(response, "cut"), told(response, "epoch")) == ("0", "0")
    assert model.views()[-1] == chat.messages[:1]


async def test_a_model_that_insists_on_alternating_roles_gets_them(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET, extra="alternate = true\n"))
    for number in range(20):
        assert (await chat.ask(question(number))).status_code == 200
    for body in model.bodies():
        roles = [message["role"] for message in body["messages"]]
        assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
        assert count_tokens(body) <= BUDGET
    assert "<note " in json.dumps(model.views()[-1])


async def test_that_a_model_insists_on_alternating_roles_is_learned_from_its_refusal(
    model: Model, chats: Chats, small: Small
) -> None:
    async def picky(exchange: Exchange) -> None:
        roles = [message["role"] for message in json.loads(model.chats[-1].body)["messages"]]
        if ("user", "user") in pairwise(roles):
            complaint = "Conversation roles must alternate user/assistant/user/assistant/..."
            await exchange.answer_json({"error": {"message": complaint}}, status=400)
        else:
            await exchange.answer_json(completion(said("So it is. " * 30)))

    model.replies.extend([picky] * 60)
    chat = chats(await small(BUDGET))
    responses = [await chat.ask(question(number)) for number in range(20)]
    assert [response.status_code for response in responses] == [200] * 20
    assert int(told(responses[-1], "epoch")) >= 2
    assert len(model.chats) == 21  # one of them was refused, unseen


@pytest.mark.parametrize("preset", ["sliding-window", "agent", "aggressive", "conservative"])
async def test_a_preset_keeps_a_long_conversation_valid_and_within_its_budget(
    model: Model, chats: Chats, url: str, preset: str
) -> None:
    chat = chats(url, X_Unabridged_Policy=preset, X_Unabridged_Budget="900")
    responses = [await chat.ask(question(number)) for number in range(30)]
    assert [response.status_code for response in responses] == [200] * 30
    assert told(responses[-1], "cut") != "0"
    for body in model.bodies():
        assert fault_in(body["messages"]) is None
        assert count_tokens(body) <= 900
        assert body["messages"][-1]["content"].startswith("Question")


async def test_a_models_budget_is_raised_by_nobody(chats: Chats, url: str) -> None:
    chat = chats(url)
    chat.members["model"] = "gpt-4o"
    budget = tokens_of(await chat.ask("Hello"))["budget"]
    chat.headers["X-Unabridged-Budget"] = str(budget + 1)
    assert tokens_of(await chat.ask("Hello"))["budget"] == budget


async def test_a_window_is_learned_from_the_model_list_while_somebody_is_being_answered(
    model: Model, chats: Chats, url: str
) -> None:
    model.listing = {"data": [{"id": "gpt-test", "context_length": 32_000}]}
    model.replies.append(model.hang)
    busy = asyncio.create_task(chats(url).ask("Something long"))
    await eventually(lambda: model.hanging == 1)
    budgets: list[int] = []
    try:
        for _ in range(20):
            budgets.append(tokens_of(await chats(url).ask("Hello")).get("budget", 0))
            await asyncio.sleep(0.01)
    finally:
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
    assert budgets[-1] == 28_000


async def test_the_reserve_is_what_the_request_allows_itself(
    chats: Chats, model: Model, tmp_path: Path
) -> None:
    text = 'extends = "default"\n[budget]\nwindows = { "gpt-test" = 4000 }\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "w", text))) as url:
        chat = chats(url)
        budgets: list[int] = []
        for value in (None, 1000, -5, 10**9, "many"):
            chat.members["max_tokens"] = value
            budgets.append(tokens_of(await chat.ask("Hello"))["budget"])
    needed = 11  # of a greeting, in a model's tokens; at most half of what it leaves is for the answer
    assert budgets == [3500, 3000, 3500, 4000 - (4000 - needed) // 2, 3500]


# --- what the log says of it ---


async def test_the_log_warns_once_an_epoch_and_says_what_each_pruning_did(chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET, summaries=False), X_Unabridged_Session="a-name")
    with logged() as lines:
        stages = [told(await chat.ask(question(number)), "stage") for number in range(30)]
        epochs = (await admin(chat.url, "sessions"))["sessions"][0]["epochs"]
    entries = [json.loads(line) for line in lines]
    warned = [each["epoch"] for each in entries if each["message"] == "a conversation has reached warn"]
    assert "warn" in stages
    assert warned == sorted(set(warned)) == list(range(warned[-1] + 1))
    pruned = [each for each in entries if each["message"].startswith("pruned: ")]
    assert [each["message"] for each in pruned] == [
        f"pruned: messages {epoch['original_count']}→{epoch['final_count']}, "
        f"tokens {epoch['original_tokens']}→{epoch['final_tokens']}"
        for epoch in epochs
    ]
    assert [(each["stage"], each["reason"]) for each in pruned] == [
        (epoch["stage"], epoch["reason"]) for epoch in epochs
    ]
    assert "a-name" not in "".join(lines)
    assert not any(question(number) in line for number in range(30) for line in lines)


async def test_the_log_warns_at_emergency(chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    chat.messages = past(20)
    with logged() as lines:
        await chat.ask("The last?")
        await chat.ask("And another?")
    emergencies = [each for each in map(json.loads, lines) if each["message"].startswith("emergency: ")]
    assert [(each["level"], each["stage"], each["epoch"]) for each in emergencies] == [
        ("warning", "emergency", 0)
    ]
