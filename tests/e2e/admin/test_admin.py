"""Probes, metrics and the admin API."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.support.clients import ADMIN, Chat, Chats, Small, admin, only_session, told, user
from tests.support.upstreams import Model

SESSION = {
    "id",
    "name",
    "stage",
    "tokens",
    "budget",
    "blocked",
    "exchanges",
    "prune_count",
    "summary_bytes",
    "llm_compressions",
    "current_cycle",
    "epochs",
}
EPOCH = {
    "at",
    "stage",
    "original_count",
    "original_tokens",
    "final_count",
    "final_tokens",
    "removed_count",
    "removed_tokens",
    "emergency_mode",
    "reason",
}
METRICS = [
    "unabridged_requests_total",
    "unabridged_overhead_seconds",
    "unabridged_time_to_first_chunk_seconds",
    "unabridged_streams_active",
    "unabridged_stage_total",
    "unabridged_tokens_total",
    "unabridged_cached_tokens_total",
    "unabridged_epochs_total",
    "unabridged_cut_messages_total",
    "unabridged_summaries_total",
    "unabridged_store_seconds",
    "unabridged_degraded",
]


async def get(url: str, path: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url) as client:
        return await client.get(path, headers=headers)


async def talk(chat: Chat) -> list[httpx2.Response]:
    """Fifteen turns, more than the small budget holds."""
    return [await chat.ask(f"Question {number} " + "and so on " * 20) for number in range(15)]


async def test_the_probes_answer(url: str) -> None:
    assert (await get(url, "/healthz")).status_code == 200
    assert (await get(url, "/readyz")).json() == {"status": "ready"}


async def test_the_metrics_of_the_contract_exist_and_carry_no_session(
    url: str, chats: Chats, small: Small
) -> None:
    for served in (url, await small(800)):
        chat = chats(served, X_Unabridged_Session="a-name-of-a-session")
        await talk(chat)
        await get(served, "/v1/models")
        text = (await get(served, "/metrics")).text
        for name in METRICS:
            assert re.search(rf"^# TYPE {name} ", text, re.MULTILINE), name
        assert 'unabridged_requests_total{route="chat",status="200"} 15.0' in text
        assert 'unabridged_tokens_total{kind="received"}' in text
        assert 'unabridged_tokens_total{kind="sent"}' in text
        assert 'unabridged_stage_total{stage="calm"}' in text
        assert "a-name-of-a-session" not in text
        assert "sk-test" not in text


async def test_a_relayed_request_is_counted(url: str) -> None:
    await get(url, "/v1/models")
    text = (await get(url, "/metrics")).text
    assert re.search(r'^unabridged_requests_total\{route="[a-z_]+",status="200"\} 1\.0$', text, re.MULTILINE)


@pytest.mark.parametrize("path", ["sessions", "sessions/x", "sessions/x/transcript", "sessions/x/view"])
async def test_the_admin_api_is_closed_without_its_token_and_to_a_clients_key(url: str, path: str) -> None:
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer sk-test"}, 403),
        ({"Authorization": "x"}, 401),
    ):
        response = await get(url, f"/unabridged/v1/{path}", **headers)
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"]


async def test_an_unknown_session_is_not_found(url: str) -> None:
    for name in ("x", "a.b.c", "*", "%00"):
        response = await get(url, f"/unabridged/v1/sessions/{name}", **ADMIN)
        assert response.status_code in (400, 404)


async def test_a_session_is_told_as_the_contract_has_it(url: str, chats: Chats) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await chat.ask("Hello")
    await chat.ask("And then?")
    listed = await only_session(url)
    session = await admin(url, f"sessions/{listed['id']}")
    assert set(listed) >= SESSION
    assert set(session) >= SESSION
    assert (session["name"], session["stage"], session["blocked"], session["exchanges"]) == (
        "chat",
        "calm",
        None,
        2,
    )
    assert session["current_cycle"] == {
        "user_question": "And then?",
        "agent_messages": 1,
        "final_answer": chat.messages[-1]["content"],
    }
    assert await admin(url, "sessions/chat") == session, "a name that only one session has is enough"


async def test_epochs_are_told_as_the_contract_has_them(chats: Chats, small: Small) -> None:
    url = await small(800)
    chat = chats(url, X_Unabridged_Session="chat")
    response = (await talk(chat))[-1]
    session = await only_session(url)
    assert session["prune_count"] == len(session["epochs"]) == int(told(response, "epoch"))
    for epoch in session["epochs"]:
        assert set(epoch) >= EPOCH
        assert epoch["removed_count"] == epoch["original_count"] - epoch["final_count"]
        assert epoch["removed_tokens"] == epoch["original_tokens"] - epoch["final_tokens"] > 0
        assert epoch["stage"] in ("trim", "compact", "emergency")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", epoch["at"])
    assert session["llm_compressions"] >= 1
    assert session["summary_bytes"] > 0


async def test_the_view_is_what_was_forwarded_and_the_answer(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(800)
    chat = chats(url, X_Unabridged_Session="chat")
    chat.messages.append({"role": "system", "content": "Be brief."})
    await talk(chat)
    session = await only_session(url)
    view = await admin(url, f"sessions/{session['id']}/view")
    assert view["messages"] == [*model.views()[-1], chat.messages[-1]]
    transcript = await admin(url, f"sessions/{session['id']}/transcript")
    assert [each["message"] for each in transcript["messages"]] == chat.messages
    assert transcript["tip"] == view["tip"]


async def test_an_explanation_accounts_for_every_message(chats: Chats, small: Small) -> None:
    url = await small(800)
    chat = chats(url, X_Unabridged_Session="chat")
    response = (await talk(chat))[-1]
    session = await only_session(url)
    told_of = await admin(url, f"sessions/{session['id']}/explain")
    assert [unit["start"] for unit in told_of["units"]] == list(range(30))
    cut = sum(unit["end"] - unit["start"] for unit in told_of["units"] if unit["state"] == "cut")
    assert cut == int(told(response, "cut"))
    assert told_of["stages"]["trim"] == 0.8


async def test_sessions_are_listed_newest_first_up_to_a_limit(url: str, chats: Chats) -> None:
    for name in ("a", "b", "c"):
        await chats(url, X_Unabridged_Session=name).ask("Hello")
    listed = (await admin(url, "sessions", limit="2"))["sessions"]
    assert [session["name"] for session in listed] == ["c", "b"]
    response = await get(url, "/unabridged/v1/sessions?limit=many", **ADMIN)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "limit")


@pytest.mark.parametrize(
    ("path", "name", "most"), [("sessions", "limit", 1_000), ("events", "seconds", 3_600)]
)
async def test_a_number_above_the_most_that_is_allowed_is_refused_and_the_most_is_named(
    url: str, path: str, name: str, most: int
) -> None:
    for number in (most + 1, 10**30):
        response = await get(url, f"/unabridged/v1/{path}?{name}={number}", **ADMIN)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", name)
        assert error["message"] == f"`{name}` is at most {most:,}."
    assert len((await admin(url, "sessions", limit="1000"))["sessions"]) == 0


async def test_the_text_of_a_message_is_shown_as_it_was_sent(url: str, chats: Chats) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    odd = "\ud800 \x00 \u202e \u2028 🐘 </script>"
    await chat.say(user(odd))
    session = await only_session(url)
    transcript = await admin(url, f"sessions/{session['id']}/transcript")
    assert transcript["messages"][0]["message"]["content"] == odd


async def test_a_canary_in_keys_names_and_texts_is_found_in_no_log_line_and_no_metric(
    model: Model, chats: Chats, small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    canary = "canary-7f3a"
    url = await small(800)
    chat = chats(url, X_Unabridged_Session=canary, Authorization=f"Bearer {canary}")
    chat.members["user"] = canary
    model.summary = {"role": "assistant", "content": canary}
    for number in range(15):
        await chat.ask(f"Question {number} {canary} " + "and so on " * 20)
    broken = await chat.client.post(
        f"{url}/v1/chat/completions",
        content=f'{{"model": "{canary}", "messages": "{canary}"}}',
        headers={**chat.headers, "Content-Type": "application/json"},
    )
    metrics = await get(url, "/metrics")
    logged = capsys.readouterr().err  # a request's line may be written just after its answer
    assert broken.status_code == 400
    assert logged.count('"message":"request"') == 16
    assert canary not in logged
    assert canary not in broken.text
    assert canary not in metrics.text
