"""What is remembered can be looked at, searched, taken back and forgotten, also by those whom it is of."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from proxy.http.admin.memory_schemas import ItemReport, LogReport
from tests.support.clients import KEY, Chats, admin
from tests.support.operator import ask, code
from tests.support.remembering import (
    ALLERGIC,
    LIVES,
    OSLO,
    RememberingModel,
    ana_speaks,
    opening,
    person,
    read,
    remembering,
)
from tests.support.servers import eventually, until

OTHER = "Bearer sk-other"
ADMIN_KEY = "Bearer admin"


async def items(url: str, query: str = "") -> list[dict[str, Any]]:
    return (await ask(url, "GET", f"memory{query}")).json()["items"]


async def count_of_items(url: str) -> int:
    return len(await items(url))


async def one(url: str, text: str) -> dict[str, Any]:
    (found,) = [each for each in await items(url) if each["text"] == text]
    return found


async def own(url: str, method: str = "GET", key: str = KEY, **whose: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": key}) as client:
        return await client.request(method, "/unabridged/v1/me/memory", params=whose)


async def speak(url: str, encoding: str, words: str = OSLO, key: str = KEY, **whose: str) -> None:
    """Ana says something in a session, a channel or a workspace whose name is sent in this encoding."""
    names = [(f"x-unabridged-{name}".encode(), value.encode(encoding)) for name, value in whose.items()]
    body = {"model": "m", "messages": [{"role": "user", "content": words}], "user": "ana"}
    async with httpx2.AsyncClient(base_url=url) as client:
        headers = [(b"authorization", key.encode()), *names]
        await client.post("/v1/chat/completions", json=body, headers=headers)


# --- looking ---


async def test_the_newest_items_are_listed_with_whose_they_are_and_where_they_come_from(
    remembered: str,
) -> None:
    answer = await admin(remembered, "memory")
    (scope,) = answer["scopes"]
    assert (scope["kind"], scope["name"], scope["items"], scope["archived"]) == ("person", "ana", 2, 0)
    assert "Oslo" in scope["short"]
    item = await one(remembered, ALLERGIC)
    (session,) = (await admin(remembered, "sessions"))["sessions"]
    source = item["source"]
    assert (source["session"], source["role"], source["name"]) == (session["id"], "user", "ana")
    assert source["passage"] == OSLO
    assert (item["scope"], item["state"], item["standing"]) == (scope["id"], "remembered", True)
    assert (item["importance_score"], item["access_count"]) == (0.5, 0)
    assert await admin(remembered, f"memory/{item['id']}") == ItemReport.model_validate(item).model_dump()
    assert await items(remembered, f"?scope={scope['id']}") == await items(remembered)
    assert len(await items(remembered, "?k=1")) == 1
    for number in ("-1", "0", "1.5", "many"):
        answer = await ask(remembered, "GET", f"memory?k={number}")
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "`k` must be a whole number above 0."
    error = (await ask(remembered, "GET", "memory?k=100001")).json()["error"]
    assert (error["code"], error["message"]) == ("invalid_value", "`k` is at most 100,000.")


async def test_a_query_finds_what_says_most_of_it_first(remembered: str) -> None:
    (scope,) = (await admin(remembered, "memory"))["scopes"]
    for query in ("?query=nuts+allergic&k=1", f"?query=nuts+allergic&k=1&scope={scope['id']}"):
        assert [each["text"] for each in await items(remembered, query)] == [ALLERGIC]
    assert (await ask(remembered, "GET", "memory?query=harbour")).json() == {
        "scopes": [],
        "items": [],
        "said": [],
        "left_out": [],
        "enabled": True,
    }


async def test_a_query_of_one_memory_finds_what_was_said_in_its_sessions_as_a_recall_does(
    remembered: str,
) -> None:
    (scope,) = (await admin(remembered, "memory"))["scopes"]
    found = (await admin(remembered, "memory", query="live Oslo", scope=scope["id"]))["said"]
    assert ("ana", "user", OSLO) in [(each["name"], each["trust"], each["text"]) for each in found]
    assert (await admin(remembered, "memory", query="live Oslo"))["said"] == found
    assert not (await admin(remembered, "memory", scope=scope["id"]))["said"]


async def test_what_is_no_longer_so_is_told_as_superseded_and_can_be_taken_back(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    await person(chats, remembered, X_Unabridged_Session="two").ask("I have moved to Bergen.")
    await read(model, 2)
    oslo, bergen = await one(remembered, LIVES), await one(remembered, "Ana lives in Bergen.")
    assert (oslo["state"], oslo["superseded_by"]) == ("superseded", bergen["id"])
    back = (await ask(remembered, "POST", f"memory/{oslo['id']}/restore")).json()
    assert (back["state"], back["superseded_by"], back["access_count"]) == ("remembered", None, 0)
    log = await admin(remembered, f"memory/{oslo['id']}/log")
    told = [each.event for each in LogReport.model_validate(log).events]
    assert told == ["create", "use", "supersede", "restore"]
    again = await ask(remembered, "POST", f"memory/{oslo['id']}/restore")
    assert code(again) == (409, "nothing_to_change")


async def test_a_use_is_in_the_items_log(model: RememberingModel, remembered: str, chats: Chats) -> None:
    assert "Oslo" in await opening(model, person(chats, remembered), "two")
    item = await one(remembered, LIVES)

    async def log() -> list[Any]:
        events = (await admin(remembered, f"memory/{item['id']}/log"))["events"]
        return [(each["event"], each["before"], each["after"]) for each in events]

    await until([("create", None, 0.5), ("use", 0.5, 0.6)], log)


@pytest.mark.parametrize("name", ["nothing", "a.b.c", "person.00.11", "person.{x}.11", "thread.00.1-2"])
async def test_what_is_not_there_is_not_found(url: str, name: str) -> None:
    for method, part in (("GET", ""), ("DELETE", ""), ("GET", "/log"), ("POST", "/restore")):
        assert code(await ask(url, method, f"memory/{name}{part}")) == (404, "not_found")
    assert code(await ask(url, "GET", f"memory?scope={name}")) == (404, "not_found")


async def test_maintenance_on_demand_counts_what_it_did(remembered: str) -> None:
    done = (await ask(remembered, "POST", "memory/maintain")).json()
    counts = {"scopes": 1, "of": 1, "archived": 0, "deleted": 0, "threads": 0, "failed": 0}
    assert done == {**counts, "rescored": 2}
    told = await ask(remembered, "POST", "memory/maintain", Accept="application/x-ndjson")
    lines = [json.loads(line) for line in told.text.splitlines()]
    assert [(each["scopes"], each["of"]) for each in lines] == [(0, 1), (1, 1), (1, 1)]


async def test_maintenance_that_takes_long_tells_again_and_again_how_far_it_is(
    model: RememberingModel, tmp_path: Path, chats: Chats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.http.admin.memories._REPEATED", 0.02)
    async with remembering(model, tmp_path, "channel_every = 100", upstream_key="operator") as url:
        await person(chats, url, X_Unabridged_Session="one").ask(OSLO)
        await eventually(lambda: len(model.asked_for_texts) == 2)
        await until(2, lambda: count_of_items(url))
        model.meanwhile = partial(asyncio.sleep, 0.2)
        told = await ask(url, "POST", "memory/maintain", Accept="application/x-ndjson")
    lines = [json.loads(line)["scopes"] for line in told.text.splitlines()]
    assert lines.count(0) > 3
    assert lines[-2:] == [1, 1]


# --- forgetting ---


async def test_an_item_that_is_forgotten_is_in_no_list_text_or_opening(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    item = await one(remembered, LIVES)
    answer = (await ask(remembered, "DELETE", f"memory/{item['id']}")).json()
    assert answer == {"id": item["id"], "items": 1, "forgotten": True, "unread": 0}
    assert [each["text"] for each in await items(remembered)] == [ALLERGIC]
    assert "Oslo" not in json.dumps(await items(remembered))
    (scope,) = (await admin(remembered, "memory"))["scopes"]
    assert "Oslo" not in scope["long"] + scope["short"]
    assert code(await ask(remembered, "GET", f"memory/{item['id']}")) == (404, "not_found")
    log = await admin(remembered, f"memory/{item['id']}/log")
    assert [each["event"] for each in log["events"]] == ["create", "delete"]
    assert "Oslo" not in await opening(model, person(chats, remembered), "later")


async def test_what_is_remembered_for_a_session_alone_is_deleted_with_it(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    await chats(url, X_Unabridged_Session="one").ask("We paint the boat green.")
    await eventually(lambda: len(model.asked_for_texts) == 2)

    async def kinds() -> list[tuple[str, int]]:
        return [(each["kind"], each["items"]) for each in (await admin(url, "memory"))["scopes"]]

    await until([("thread", 1)], kinds)
    assert (await ask(url, "DELETE", "sessions/one")).status_code == 200
    assert await kinds() == []


@pytest.mark.parametrize("name", ["my-chat", "grüße.v1.2"])
async def test_what_was_learned_from_a_session_is_forgotten_by_its_name_after_it_is_deleted(
    model: RememberingModel, url: str, name: str
) -> None:
    for times, key in enumerate((KEY, OTHER), 1):
        await speak(url, "utf-8", key=key, session=name, channel="general")
        await read(model, times)
        await until(2 * times, lambda: count_of_items(url))
    one, two = (await admin(url, "sessions"))["sessions"]
    forget = partial(ask, url, "DELETE", f"memory?session={quote(name)}")
    for each in (one, two):  # one of them deleted, then both
        assert each["name"] == name
        assert (await ask(url, "DELETE", f"sessions/{each['id']}")).status_code == 200
        refused = await forget()
        assert code(refused) == (409, "ambiguous_session")
        candidates = {each["id"] for each in refused.json()["error"]["candidates"]}
        assert candidates == {one["id"], two["id"]}
    assert (await ask(url, "DELETE", f"memory?session={one['id']}")).json()["items"] == 2
    assert (await forget()).json() == {"id": "", "items": 2, "forgotten": True, "unread": 0}
    assert await items(url) == []
    assert not (await ask(url, "DELETE", f"memory?session={one['id']}")).json()["forgotten"]
    assert code(await ask(url, "DELETE", "memory?session=my-chat")) == (404, "not_found")


async def test_a_person_is_forgotten_in_channels_too_and_others_are_not(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    await ana_speaks(model, url, chats, X_Unabridged_Channel="general")
    bo = person(chats, url, "bo", X_Unabridged_Session="two", X_Unabridged_Channel="general")
    await bo.ask("We paint the boat green in May.")

    async def told() -> set[str]:
        (scope,) = (await admin(url, "memory"))["scopes"]
        return {word for word in ("Oslo", "boat") if word in scope["long"]}

    await until({"Oslo", "boat"}, told)
    assert len(await items(url)) == 3
    assert (await ask(url, "DELETE", "memory?person=ana")).json()["items"] == 2
    assert [each["source"]["name"] for each in await items(url)] == ["bo"]
    (scope,) = (await admin(url, "memory"))["scopes"]
    assert "Oslo" not in scope["long"] + scope["short"]
    assert "boat" in scope["short"]
    assert code(await ask(url, "DELETE", "memory?person=ana")) == (404, "not_found")


async def test_two_tenants_persons_of_one_name_are_told_apart(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    await person(chats, remembered, "ana", X_Unabridged_Session="one", Authorization=OTHER).ask(OSLO)
    await read(model, 2)
    refused = await ask(remembered, "DELETE", "memory?person=ana")
    assert code(refused) == (400, "invalid_type")
    assert refused.json()["error"]["message"].endswith(". Name one as `tenant`.")
    scopes = (await admin(remembered, "memory"))["scopes"]
    tenant = scopes[0]["id"].partition(".")[0]
    assert (await ask(remembered, "DELETE", f"memory?person=ana&tenant={tenant}")).json()["items"] == 2
    assert [each["id"] for each in (await admin(remembered, "memory"))["scopes"]] == [scopes[1]["id"]]


@pytest.mark.parametrize(
    "query", ["", "?tenant=x", "?scope=a.b.c&person=x", "?session=one&tenant=x", "?everything=1"]
)
async def test_nothing_is_forgotten_that_was_not_named(remembered: str, query: str) -> None:
    assert (await ask(remembered, "DELETE", f"memory{query}")).status_code == 400
    assert len(await items(remembered)) == 2


# --- a client's own ---


async def test_a_client_sees_and_forgets_what_is_remembered_of_its_own(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    for key, whose in ((OTHER, "ana"), (KEY, "bo"), ("", "ana"), (ADMIN_KEY, "ana")):
        answer = await own(remembered, key=key, user=whose)
        assert answer.json() == {"kind": "person", "name": whose, "long": "", "short": "", "items": []}
        gone = await own(remembered, "DELETE", key=key, user=whose)
        assert gone.json() == {"id": "", "items": 0, "forgotten": False, "unread": 0}
    seen = (await own(remembered, user="ana")).json()
    assert {each["text"] for each in seen["items"]} == {LIVES, ALLERGIC}
    assert "Oslo" in seen["short"]
    gone = await own(remembered, "DELETE", user="ana")
    assert gone.json() == {"id": "", "items": 2, "forgotten": True, "unread": 0}
    assert (await own(remembered, user="ana")).json()["items"] == []
    assert await opening(model, person(chats, remembered), "later") == ""


@pytest.mark.parametrize(
    "whose", [{"channel": "général"}, {"channel": "général", "workspace": "wörk"}, {"workspace": "wörk"}]
)
async def test_a_channel_and_a_workspace_are_named_as_headers_name_them(
    model: RememberingModel, url: str, chats: Chats, whose: dict[str, str]
) -> None:
    for number, encoding in enumerate(("utf-8", "latin-1"), 1):
        await speak(url, encoding, **whose)
        await read(model, number)
        assert len((await own(url, **whose)).json()["items"]) == 2
        for key, other in ((OTHER, whose), (KEY, dict.fromkeys(whose, "else")), (KEY, {"user": "général"})):
            assert (await own(url, key=key, **other)).json()["items"] == []
        assert (await own(url, "DELETE", **whose)).json()["forgotten"]
        assert (await own(url, **whose)).json()["items"] == []


@pytest.mark.parametrize("whose", [{"channel": "général"}, {"workspace": "wörk"}])
async def test_what_clients_name_in_two_encodings_is_seen_and_forgotten_as_one(
    model: RememberingModel, url: str, whose: dict[str, str]
) -> None:
    await speak(url, "utf-8", **whose)
    await read(model)
    await speak(url, "latin-1", "We paint the boat green.", **whose)
    await read(model, 2)
    await until(3, lambda: count_of_items(url))
    seen = (await own(url, **whose)).json()
    assert {each["text"] for each in seen["items"]} == {LIVES, ALLERGIC, "The boat is painted green."}
    assert all(word in seen[text] for word in ("Oslo", "boat") for text in ("long", "short"))
    assert (await own(url, "DELETE", **whose)).json() == {
        "id": "",
        "items": 3,
        "forgotten": True,
        "unread": 0,
    }
    assert await items(url) == (await own(url, **whose)).json()["items"] == []


@pytest.mark.parametrize("name", [" ana", "ana\n", "\u00a0ana ", " "])
async def test_a_person_with_white_space_around_the_name_is_seen_and_forgotten_under_that_name_alone(
    model: RememberingModel, url: str, chats: Chats, name: str
) -> None:
    await person(chats, url, name).ask(OSLO)
    await read(model)
    seen = (await own(url, user=name)).json()
    assert (seen["name"], bool(seen["items"])) == (name, True)
    assert (await own(url, user="ana")).json()["items"] == []
    assert (await own(url, "DELETE", user=name)).json()["forgotten"]
    assert (await own(url, user=name)).json()["items"] == []


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize("name", [" room\t", "\u00a0room\u00a0"])
async def test_a_channel_with_white_space_around_the_name_is_seen_and_forgotten(
    model: RememberingModel, url: str, name: str, encoding: str
) -> None:
    await speak(url, encoding, channel=name.strip(" \t"))  # a client library strips what HTTP strips
    await read(model)
    assert len((await own(url, channel=name)).json()["items"]) == 2
    assert (await own(url, "DELETE", channel=name)).json()["forgotten"]
    assert (await own(url, channel=name)).json()["items"] == []


async def test_who_names_nobody_or_too_many_is_told_so_and_no_other_path_opens_to_a_clients_key(
    remembered: str,
) -> None:
    assert code(await own(remembered)) == (400, "missing_required_parameter")
    assert code(await own(remembered, user="ana", channel="general")) == (400, "invalid_type")
    item = await one(remembered, LIVES)
    paths = [("GET", "memory"), ("DELETE", "memory?person=ana"), ("POST", "memory/maintain")]
    paths += [(method, f"memory/{item['id']}") for method in ("GET", "DELETE")]
    paths += [("GET", f"memory/{item['id']}/log"), ("POST", f"memory/{item['id']}/restore")]
    for method, path in paths:
        assert code(await ask(remembered, method, path, Authorization=KEY)) == (403, "forbidden")
        assert code(await ask(remembered, method, path, Authorization="")) == (401, "unauthorized")
    assert len(await items(remembered)) == 2
