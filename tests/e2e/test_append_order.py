"""Appended turns of one session run one after the other, and wait while it is paused."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.adapters.stores import open_store
from proxy.app import SystemClock
from proxy.cache import CacheMemory
from proxy.engine.intake.naming import Naming
from proxy.ports import PlaceState
from tests.support.append_client import Appender, Appenders, contents, error_code, kept, transcript
from tests.support.clients import KEY, SECRET, Chats, answer_in, only_session, proxying, user, write_policy
from tests.support.servers import Exchange, eventually
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, completion, events, said


async def test_turns_of_one_session_run_one_after_the_other(appender: Appender, model: Model) -> None:
    responses = await asyncio.gather(*(appender.ask(f"turn {number}") for number in range(6)))
    assert [response.status_code for response in responses] == [200] * 6
    views = [contents(view) for view in model.views()]
    assert [len(view) for view in views] == [1, 3, 5, 7, 9, 11]
    assert all(later[: len(view)] == view for view, later in pairwise(views))
    assert sorted(views[-1][::2]) == [f"turn {number}" for number in range(6)]


async def test_turns_run_in_order_across_proxies(model: Model, appenders: Appenders) -> None:
    with embedded_valkey() as store:
        async with proxying(model.url, store=store) as one, proxying(model.url, store=store) as two:
            clients = [appenders(one), appenders(two)]
            asked = (clients[number % 2].ask(f"turn {number}") for number in range(8))
            responses = await asyncio.gather(*asked)
            assert [response.status_code for response in responses] == [200] * 8
            assert [len(view) for view in model.views()] == list(range(1, 17, 2))
            assert len(await transcript(one)) == 16


async def test_no_more_wait_than_the_policy_lets(model: Model, tmp_path: Path, appenders: Appenders) -> None:
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.body()
        await release.wait()
        await exchange.answer_json({"choices": [{"index": 0, "message": said("x"), "finish_reason": "stop"}]})

    model.replies.append(held)
    policy = write_policy(tmp_path, "p", '[append]\nwait = "30s"\nqueue = 2\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        asked = [asyncio.create_task(appender.ask(f"{number}")) for number in range(5)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 2:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        refused = [task.result() for task in done]
        assert [(response.status_code, error_code(response)) for response in refused] == [
            (429, "session_busy")
        ] * 2
        assert all("retry-after" in response.headers for response in refused)
        release.set()
        assert [(await task).status_code for task in waiting] == [200] * 3


async def test_nobody_waits_longer_than_the_policy_lets(
    model: Model, tmp_path: Path, appenders: Appenders, chats: Chats
) -> None:
    model.replies.append(model.hang)
    policy = write_policy(tmp_path, "p", '[append]\nwait = "100ms"\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender, other = appenders(url), appenders(url, session="other")
        hanging = asyncio.create_task(appender.ask("hang"))
        await eventually(lambda: model.hanging == 1)
        assert error_code(await appender.ask("waits")) == "session_busy"
        assert (await other.ask("does not wait")).status_code == 200
        chat = chats(url, X_Unabridged_Session="s")
        assert (await chat.ask("sends its history, and does not wait")).status_code == 200
        hanging.cancel()


async def test_a_place_is_free_again_when_its_worker_has_died(model: Model, appenders: Appenders) -> None:
    """The place is kept by a lease alone: here that of a proxy that never gives it up."""
    with embedded_valkey() as store:
        async with proxying(model.url, store=store, line_lease=0.3) as url:
            appender = appenders(url)
            await appender.ask("first")
            named = {b"authorization": KEY.encode(), b"x-unabridged-session": b"s"}
            key = Naming(SECRET, CacheMemory()).caller(named).key
            assert key is not None
            dead = open_store(store, SystemClock(), 1.0, 1.0)
            while await dead.take_place(key, "turn-of-a-dead-worker", 8, 0.3) is not PlaceState.GO:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the first turn's place is given up after its answer
            assert (await appender.ask("second")).status_code == 200
            assert [len(view) for view in model.views()] == [1, 3]
            await dead.aclose()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
async def test_a_turn_that_a_request_with_its_history_overtakes_is_told_so_and_may_be_sent_again(
    appender: Appender, model: Model, chats: Chats, stream: bool
) -> None:
    came, release = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        came.set()
        await release.wait()
        if stream:
            await exchange.stream_events(events(said("Too late.")))
        else:
            await exchange.answer_json(completion(said("Too late.")))

    model.replies += [said("Yes."), held, said("No.")]
    await appender.ask("first")
    appender.members["stream"] = stream
    overtaken = asyncio.create_task(appender.ask("second"))
    await came.wait()
    chat = chats(appender.url, X_Unabridged_Session="s")
    await chat.say(user("first"), said("Yes."), user("quicker"))
    assert await kept(appender.url, 5) == ["first", "Yes.", "second", "quicker", "No."]
    release.set()
    response = await overtaken
    told = "but not saved: another request has continued the session. Send it again."
    assert told in response.text
    assert response.status_code == (200 if stream else 503)
    again = await appender.ask("second")
    assert "x-unabridged-degraded" not in again.headers
    assert contents(model.views()[-1]) == ["first", "Yes.", "quicker", "No.", "second"]


async def test_a_stored_turn_that_a_slower_request_with_its_history_overtakes_follows_that_when_asked_again(
    appender: Appender, model: Model, chats: Chats
) -> None:
    came, release = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        came.set()
        await release.wait()
        await exchange.answer_json(completion(said("No.")))

    model.replies += [said("Yes."), held, said("Quick."), said("Quick again.")]
    await appender.ask("first")
    chat = chats(appender.url, X_Unabridged_Session="s")
    slower = asyncio.create_task(chat.say(user("first"), said("Yes."), user("slower")))
    await came.wait()
    stored = await appender.ask("second", Idempotency_Key="k")
    assert stored.status_code == 200
    release.set()
    await slower
    again = await appender.ask("second", Idempotency_Key="k")
    assert "idempotent-replayed" not in again.headers
    assert contents(model.views()[-1]) == ["first", "Yes.", "slower", "No.", "second"]
    replayed = await appender.ask("second", Idempotency_Key="k")
    assert answer_in(replayed) == answer_in(again) == said("Quick again.")


# --- pauses ---


async def post(url: str, path: str) -> Any:
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer admin"}) as client:
        response = await client.post(f"/unabridged/v1/{path}")
        assert response.status_code == 200, response.text
        return response.json()


async def test_a_paused_session_lets_appended_turns_wait_and_no_others(
    appender: Appender, url: str, model: Model, appenders: Appenders, chats: Chats
) -> None:
    await appender.ask("first")
    session = await only_session(url)
    assert session["blocked"] is None
    assert (await post(url, f"sessions/{session['id']}/pause"))["blocked"] == "paused"
    waiting = asyncio.create_task(appender.ask("second"))
    chat = chats(url, X_Unabridged_Session="s")
    assert (await chat.ask("not me")).status_code == 200
    assert (await appenders(url, session="other").ask("nor me")).status_code == 200
    assert not waiting.done()
    assert (await post(url, f"sessions/{session['id']}/resume"))["blocked"] is None
    assert (await waiting).status_code == 200
    assert contents(model.views()[-1])[0] == "first"


async def test_a_turn_that_waits_for_too_long_learns_that_its_session_is_paused(
    model: Model, tmp_path: Path, appenders: Appenders
) -> None:
    policy = write_policy(tmp_path, "p", '[append]\nwait = "100ms"\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        await appender.ask("first")
        await post(url, f"sessions/{(await only_session(url))['id']}/pause")
        refused = await appender.ask("second")
        assert (refused.status_code, error_code(refused)) == (429, "session_busy")
        assert "paused" in refused.json()["error"]["message"]
