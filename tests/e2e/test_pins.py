"""Pins by the body, retention classes, epochs by count: what clients and policies keep, through the proxy."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.support.clients import KEY, Chat, Chats, Small, admin, only_session, told, user
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import Message, Model, calling, said

BUDGET = 800
CHAT = "/v1/chat/completions"
ORDER = "My order number is 4711-B. " + "It came in a green box. " * 4


def question(number: int) -> str:
    return f"Question {number}: what became of item {number * 37}? " + "Tell me all of it, please. " * 4


async def talk(chat: Chat, turns: int, first: int = 0) -> list[httpx2.Response]:
    return [await chat.ask(question(number)) for number in range(first, first + turns)]


async def pin(chat: Chat, *indexes: int) -> None:
    """Ask something, and pin messages with it."""
    chat.members["unabridged"] = {"pin": list(indexes)}
    assert (await chat.ask("Please remember that.")).status_code == 200
    del chat.members["unabridged"]


# --- the member goes ---


async def test_the_upstream_gets_the_body_as_if_the_member_had_never_been_in_it(
    client: httpx2.AsyncClient, model: Model
) -> None:
    plain: Message = {"seed": 1, "model": "gpt-test", "messages": [user("Hello é")], "x": [1.0, None]}
    extension = {"unabridged": {"pin": [0], "inject": {"text": ""}}}
    names = list(plain)
    for place in range(len(names) + 1):
        members = {name: plain[name] for name in names[:place]} | extension
        whole = members | {name: plain[name] for name in names[place:]}
        for separators in ((", ", ": "), (",", ":")):
            content = json.dumps(whole, separators=separators).encode()
            response = await client.post(CHAT, content=content, headers={"Content-Type": "application/json"})
            assert response.status_code == 200
            assert bytes(model.chats[-1].body) == json.dumps(plain, separators=separators).encode()


async def test_a_pruned_body_has_no_such_member_either(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    chat.members["unabridged"] = {"pin": [0]}
    responses = await talk(chat, 12)
    assert int(told(responses[-1], "cut")) > 0
    assert all("unabridged" not in body for body in model.bodies())


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a member that is null": (None, "invalid_type", "unabridged"),
    "a member that is an array": ([], "invalid_type", "unabridged"),
    "an unknown name": ({"pins": [0]}, "unknown_parameter", "unabridged.pins"),
    "a pin that is a number": ({"pin": 0}, "invalid_type", "unabridged.pin"),
    "a pin that is a text": ({"pin": ["0"]}, "invalid_type", "unabridged.pin"),
    "a pin that is true": ({"pin": [True]}, "invalid_type", "unabridged.pin"),
    "a pin past the end": ({"pin": [1]}, "invalid_value", "unabridged.pin"),
    "a pin before the beginning": ({"pin": [-1]}, "invalid_value", "unabridged.pin"),
    "a huge pin": ({"pin": [10**4000]}, "invalid_value", "unabridged.pin"),
    "inject that is a text": ({"inject": "x"}, "invalid_type", "unabridged.inject"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("mode", ["full", "append"])
async def test_what_cannot_be_meant_is_refused(
    client: httpx2.AsyncClient, model: Model, what: str, mode: str
) -> None:
    value, code, param = REFUSED[what]
    body = {"model": "gpt-test", "messages": [user("Hello")], "unabridged": value}
    headers = {"X-Unabridged-Mode": mode, "X-Unabridged-Session": "s"}
    response = await client.post(CHAT, json=body, headers=headers)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"
    assert not model.chats


# --- pins hold ---


async def test_a_pinned_message_survives_epochs_on_another_worker(
    model: Model, chats: Chats, small: Small
) -> None:
    with serving(valkey_command()) as server:
        one, two = [await small(BUDGET, store=server.url) for _ in range(2)]
        for pins in (True, False):
            chat = chats(one, X_Unabridged_Session=f"pins {pins}")
            await talk(chat, 1)
            await chat.ask(ORDER)
            await (pin(chat, 2) if pins else chat.ask("Please remember that."))
            chat.url = two
            responses = await talk(chat, 20, first=1)
            assert int(told(responses[-1], "epoch")) >= 2
            assert (user(ORDER) in model.views()[-1]) == pins
        explained = await admin(two, f"sessions/{(await session_of(two, 'pins True'))['id']}/explain")
        assert explained["pins"] == [2]
        (row,) = [row for row in explained["units"] if row["start"] == 2]
        assert (row["protection"], row["state"]) == ("pinned", "kept")


async def session_of(url: str, name: str) -> Any:
    sessions = (await admin(url, "sessions"))["sessions"]
    return next(session for session in sessions if session["name"] == name)


async def test_a_pin_holds_without_a_header_and_after_a_restart(
    model: Model, chats: Chats, small: Small
) -> None:
    with serving(valkey_command()) as server:
        chat = chats(await small(BUDGET, store=server.url))
        await talk(chat, 1)
        await chat.ask(ORDER)
        await pin(chat, 2)
        await talk(chat, 10, first=1)
        chat.url = await small(BUDGET, store=server.url)
        await talk(chat, 10, first=11)
    assert user(ORDER) in model.views()[-1]


async def test_a_pin_of_one_branch_does_not_hold_for_another(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    await talk(chat, 1)
    await chat.ask(ORDER)
    await pin(chat, 2)
    chat.messages = [user("Another beginning."), *chat.messages[1:4]]
    await talk(chat, 20, first=1)
    assert user(ORDER) not in model.views()[-1]


async def test_pins_yield_last_and_the_answer_says_so(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    await talk(chat, 3)
    await pin(chat, 0, 1, 2, 3, 4, 5)
    huge = await chat.ask("What do you make of this? " + "a word and another. " * 140)
    assert "protected-cut" in told(huge, "degraded")
    sent = model.views()[-1]
    assert len([message for message in sent if message in chat.messages]) < len(chat.messages) - 1


async def test_in_append_mode_the_indexes_are_of_what_is_sent(
    model: Model, client: httpx2.AsyncClient, small: Small
) -> None:
    url = await small(BUDGET)
    headers = {"X-Unabridged-Mode": "append", "X-Unabridged-Session": "s", "Authorization": KEY}

    async def say(*messages: Message, **members: Any) -> None:
        body = {"model": "gpt-test", "messages": messages, **members}
        response = await client.post(f"{url}{CHAT}", json=body, headers=headers)
        assert response.status_code == 200, response.text

    await say(user(question(0)))
    system = {"role": "system", "content": "Be kind."}
    await say(system, user(ORDER), unabridged={"pin": [0, 1]})
    for number in range(1, 20):
        await say(user(question(number)))
    assert user(ORDER) in model.views()[-1]
    explained = await admin(url, f"sessions/{(await only_session(url))['id']}/explain")
    assert explained["pins"] == [2], "a system message at the beginning is always sent"


async def test_a_fork_takes_the_pins_along(model: Model, chats: Chats, small: Small) -> None:
    url = await small(BUDGET)
    chat = chats(url)
    await chat.ask(ORDER)
    await pin(chat, 0)
    session = await only_session(url)
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer admin"}) as person:
        fork = await person.post(f"{url}/unabridged/v1/sessions/{session['id']}/fork", json={"name": "f"})
    explained = await admin(url, f"sessions/{fork.json()['id']}/explain")
    assert explained["pins"] == [0]
    exported = await admin(url, f"sessions/{fork.json()['id']}/export")
    assert exported["pins"] == [exported["tree"][0]["hash"]]


async def test_a_compaction_on_request_leaves_pins_and_cuts_all_else_that_is_named(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(4 * BUDGET)
    chat = chats(url, X_Unabridged_Session="s")
    await talk(chat, 6)
    await pin(chat, 4)
    session = await only_session(url)
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer admin"}, timeout=PATIENCE) as person:
        answer = await person.post(
            f"{url}/unabridged/v1/sessions/{session['id']}/compact", json={"messages": "0-9"}
        )
    assert answer.json()["asked"] == "compact"
    units = (await admin(url, f"sessions/{session['id']}/explain"))["units"]
    assert [row["start"] for row in units if row["state"] == "kept"][:2] == [4, 10]


# --- retention and counting ---

CLASSES = """
[[retention]]
match = {tool = "secret_*"}
class = "ephemeral"
[[retention]]
match = {content = "#keep"}
class = "critical"
"""


async def test_an_ephemeral_result_reaches_no_summary_and_what_is_critical_stays(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(2 * BUDGET, extra=CLASSES), X_Unabridged_Session="s")
    await talk(chat, 1)
    await chat.ask("Write this down: the ship leaves at nine. #keep " + "And so on. " * 20)
    model.replies.append(calling(("c1", "secret_look", '{"vault": "blue"}')))
    await chat.ask("What is in the vault?")
    model.replies.append(said("There it is."))
    await chat.say({"role": "tool", "tool_call_id": "c1", "content": "The code is 99-17. " * 5})
    responses = await talk(chat, 25, first=1)
    assert int(told(responses[-1], "epoch")) >= 2
    last = json.dumps(model.views()[-1])
    assert "#keep" in last
    assert "99-17" not in last
    await eventually(lambda: bool(model.summaries))
    for summary in model.summaries:
        assert b"99-17" not in summary.body
        assert b"blue" not in summary.body


COUNTED = "[stages]\nmax_units = 6\ntarget = 0.7\n[keep]\nrecent = 0.0\n"


async def test_an_agent_is_compacted_by_count_at_any_usage(model: Model, chats: Chats, small: Small) -> None:
    url = await small(50_000, extra=COUNTED)
    chat = chats(url, X_Unabridged_Session="s")
    epochs: list[int] = []
    model.replies.append(calling(("c0", "look", "{}")))
    await chat.ask("Mend the roof.")
    for number in range(1, 24):
        model.replies.append(calling((f"c{number}", "look", "{}")))
        result = {"role": "tool", "tool_call_id": f"c{number - 1}", "content": f"Beam {number} " * 30}
        response = await chat.say(result)
        assert told(response, "stage") == "calm"
        epochs.append(int(told(response, "epoch")))
        if epochs[-1] == 0 and number >= 7:
            await eventually(lambda: bool(model.summaries))
    assert epochs[:7] == [0] * 7, "it begins when its summary is ready"
    assert 1 in epochs
    assert "Summary of 12 earlier messages" in json.dumps(model.views()[-1])
    session = await only_session(url)
    assert "calm, by count of 6 units" in session["epochs"][0]["reason"]
    assert session["epochs"][0]["emergency_mode"] is False


async def test_without_summaries_an_epoch_by_count_begins_at_once(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(50_000, summaries=False, extra=COUNTED), X_Unabridged_Session="s")
    epochs = [int(told(response, "epoch")) for response in await talk(chat, 12)]
    # Of the 2n - 1 messages of request n the last is still to be answered.
    assert epochs == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert set(chat.stages) == {"calm"}
