"""The proof from outside: a model that needs a fact answers otherwise where that was cut."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from tests.support.browser import browsing
from tests.support.canaries import logged
from tests.support.clients import Chat, Chats, admin, metrics, proxying, question, user, write_policy
from tests.support.repeated_calls import POLICY as REPEATED_CALLS
from tests.support.repeated_calls import TOOLS, WEATHER, known
from tests.support.servers import PATIENCE
from tests.support.stores import embedded_valkey, run
from tests.support.upstreams import JSON, Message, Model, calling, plainly, running, said

FACT = "KX-77120-B"
POLICY = """
[budget]
tokens = 1500
[summary]
enabled = false
[ledger]
share = 0
[economy]
enabled = false
[keep]
first_user = false
[proof]
share = 1.0
"""
PAID = "daily_dollars = 1.0\n"
KEY = "sk-operator"


class Knowing(Model):
    """A model that answers with the fact where its messages have it, and says so where they have not."""

    def _usual(self, body: Message) -> Message:
        texts = [str(message["content"]) for message in body["messages"]]
        if "Which code" not in texts[-1]:
            return said("So it is, as you have said, and nothing more can be said of it. " * 8)
        is_known = any(FACT in text for text in texts)
        return said(f"Your booking code is {FACT}." if is_known else "Nobody has named any of that to me.")


@pytest.fixture
async def model() -> AsyncIterator[Knowing]:
    async with running(Knowing(window=100_000)) as served:
        assert isinstance(served, Knowing)
        yield served


Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start(model: Model, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a proxy whose cuts are proven: `await start(proof="daily_dollars = 1.0", upstream_key=None)`."""
    async with AsyncExitStack() as servers:

        async def started(proof: str = PAID, policy: str = POLICY, **settings: Any) -> str:
            path = write_policy(tmp_path, "proving", policy + proof)
            settings = {"upstream_key": KEY, **settings}
            return await servers.enter_async_context(proxying(model.url, policy=str(path), **settings))

        yield started


async def until(url: str, is_met: Callable[[Message], object]) -> Message:
    """What was found out, once that is so."""
    row: Message = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while not (row and is_met(row)):
                await asyncio.sleep(0.05)
                found: list[Message] = (await admin(url, "stats"))["proof"]
                row = found[0] if found else row
    except TimeoutError:
        raise AssertionError(f"never so: {row}") from None
    return row


def compared(row: Message) -> int:
    return row["whole"]["compared"] + row["control"]["compared"]


async def ask_for(fact: str, chat: Chat, model: str = "gpt-4o") -> None:
    """A talk in which something is said early, cut, and asked for at the end."""
    chat.members |= {"model": model}
    chat.messages = [user(f"My booking code is {fact}, keep it."), said("I have noted it down.")]
    for place in range(20):
        chat.messages += [user(question(place)), said("So it is, and so it will be. " * 12)]
    response = await chat.ask("Which code did I give you for the booking at the beginning?")
    assert int(response.headers["x-unabridged-cut"]) > 0


async def prove(chats: Chats, url: str, fact: str, sessions: int = 10) -> Message:
    """Several such talks one after the other; what was found out by then."""
    row: Message = {}
    for number in range(sessions):
        await ask_for(fact, chats(url, X_Unabridged_Session=f"s{number}"))
        row = await until(url, lambda row, number=number: compared(row) == number + 1)
    assert min(row["whole"]["compared"], row["control"]["compared"]) > 1
    return row


async def test_a_fact_that_was_cut_is_found_and_in_what_it_was(
    start: Start, chats: Chats, model: Knowing
) -> None:
    row = await prove(chats, await start(), FACT)
    assert (row["policy"], row["model"], row["unproven"]) == ("proving", "gpt-4o", {})
    assert row["whole"]["agree"]["value"] == 0
    assert row["control"]["agree"]["value"] == 1
    assert 0 < row["difference"]["low"] < row["difference"]["value"] == 1
    (used,) = (each for each in row["missed"] if each["signal"] == "used")
    assert (used["kind"], used["retention"], used["cut"]) == (
        "user",
        "compressible",
        row["whole"]["compared"],
    )


async def test_where_nothing_is_missed_it_is_silent(start: Start, chats: Chats, model: Knowing) -> None:
    row = await prove(chats, await start(), "a secret that I keep to myself")
    assert row["whole"]["agree"]["value"] == row["control"]["agree"]["value"] == 1
    assert row["difference"]["low"] < row["difference"]["value"] == 0 < row["difference"]["high"]
    assert row["missed"] == []


async def test_a_fact_that_the_ledger_keeps_is_not_missed(start: Start, chats: Chats, model: Knowing) -> None:
    row = await prove(chats, await start(policy=POLICY.replace("share = 0\n", "share = 0.1\n")), FACT)
    assert row["whole"]["agree"]["value"] == 1
    assert row["missed"] == []


async def test_second_answers_have_the_operators_key_and_nothing_of_who_asks(
    start: Start, chats: Chats, model: Knowing
) -> None:
    url = await start()
    chat = chats(url, X_Unabridged_Session="s", Cookie="session=1", OpenAI_Organization="org")
    chat.members |= {"stream": True, "user": "jo", "metadata": {"a": "b"}, "store": True, "temperature": 0.7}
    chat.query = "?api-version=2024-10-21&trace=1"
    await ask_for(FACT, chat)
    await until(url, compared)
    first, second = model.chats
    assert second.value("authorization") == f"Bearer {KEY}".encode()
    assert {second.value("cookie"), second.value("openai-organization")} == {None}
    assert second.target == "/v1/chat/completions?api-version=2024-10-21"
    sent, again = (json.loads(bytes(each.body)) for each in (first, second))
    assert set(sent) - set(again) >= {"stream", "user", "metadata", "store"}
    assert again["temperature"] == 0.7
    assert again["messages"] == (sent["messages"] if len(again["messages"]) < 40 else chat.messages[:-1])


async def test_what_it_costs_is_in_the_bill(start: Start, chats: Chats, model: Knowing) -> None:
    url = await start()
    await ask_for(FACT, chats(url, X_Unabridged_Session="s"))
    row = await until(url, compared)
    session, everything = await admin(url, "sessions/s"), (await admin(url, "stats"))["total"]
    for bill in (session["bill"], everything):
        dollars = bill["dollars"]
        assert dollars["proof"] == pytest.approx(row["dollars"], abs=1e-9)
        assert dollars["spent"] == pytest.approx(dollars["answers"] + dollars["proof"], abs=1e-9)
    assert row["dollars"] > 0


async def nothing_is_sent(url: str, chats: Chats, model: Model, why: str, name: str = "gpt-4o") -> None:
    for number in range(3):
        await ask_for(FACT, chats(url, X_Unabridged_Session=f"s{number}"), name)
        row = await until(url, lambda row, number=number: row["unproven"].get(why) == number + 1)
        assert compared(row) == 0
    assert len(model.chats) == 3


async def test_past_the_days_ceiling_nothing_is_sent(start: Start, chats: Chats, model: Knowing) -> None:
    await nothing_is_sent(await start("daily_dollars = 0.0001\n"), chats, model, "ceiling")


async def test_the_ceiling_is_one_for_all_workers_and_survives_a_restart(
    start: Start, chats: Chats, model: Knowing
) -> None:
    with embedded_valkey() as store:
        ceiling = "daily_dollars = 0.02\n"
        first = await start(ceiling, store=store)
        row: Message = {}
        for number in range(8):
            await ask_for(FACT, chats(first, X_Unabridged_Session=f"s{number}"))
            row = await until(first, lambda row, number=number: asked(row) == number + 1)
        assert 0 < row["unproven"]["ceiling"] < 8
        assert 0.01 < row["dollars"] <= 0.02
        sent = len(model.chats)
        second = await start(ceiling, store=store)
        await ask_for(FACT, chats(second, X_Unabridged_Session="another"))
        await until(second, lambda row: asked(row) == 9)
        assert len(model.chats) == sent + 1


def asked(row: Message) -> int:
    return compared(row) + sum(row["unproven"].values())


async def test_of_a_model_without_a_price_nothing_is_sent_but_by_a_ceiling_of_tokens(
    start: Start, chats: Chats, model: Knowing
) -> None:
    await nothing_is_sent(await start(), chats, model, "ceiling", "gpt-test")
    url = await start("daily_tokens = 50_000\n")
    await ask_for(FACT, chats(url, X_Unabridged_Session="s"), model="gpt-test")
    assert (await until(url, compared))["tokens"] > 0


async def test_what_does_not_fit_the_window_is_not_asked(start: Start, chats: Chats, model: Knowing) -> None:
    url = await start(PAID + '[budget.windows]\n"*" = 3000\n')
    await nothing_is_sent(url, chats, model, "beyond")


async def test_an_answer_within_which_calls_were_answered_is_counted_and_not_compared(
    start: Start, chats: Chats, model: Knowing
) -> None:
    url = await start(PAID + REPEATED_CALLS)
    chat = chats(url)
    chat.messages, chat.members = known()[:-1], {"model": "gpt-4o", "tools": TOOLS}
    for place in range(20):
        chat.messages += [user(question(place)), said("So it is, and so it will be. " * 12)]
    chat.messages += known()[:-1]
    asked = len(model.chats)
    model.replies.append(calling(WEATHER))
    response = await chat.ask("And now?")
    assert int(response.headers["x-unabridged-cut"]) > 0
    assert len(model.chats) == asked + 2, "the proxy answered the call itself"
    row = await until(url, lambda row: row["unproven"])
    assert (compared(row), row["unproven"]) == (0, {"hidden": 1})
    async with browsing(url) as browser:
        assert "Not compared: 1 within which the proxy answered calls." in await browser.text(
            "policies/proving"
        )


async def test_a_refusal_is_no_answer_and_costs_nothing(start: Start, chats: Chats, model: Knowing) -> None:
    url = await start()
    chat = chats(url, X_Unabridged_Session="s")
    model.replies += [said("Nobody has named it."), plainly(400, [JSON], b'{"error": {"message": "no"}}')]
    await ask_for(FACT, chat)
    row = await until(url, lambda row: row["unproven"])
    assert (row["unproven"], row["dollars"]) == ({"failed": 1}, 0)


async def test_without_a_key_nothing_is_sent_and_that_is_said_once(
    start: Start, chats: Chats, model: Knowing
) -> None:
    url = await start(upstream_key=None)
    with logged() as lines:
        for number in range(3):
            await ask_for(FACT, chats(url, X_Unabridged_Session=f"s{number}"))
            await admin(url, f"sessions/s{number}")
    assert len(model.chats) == 3
    assert len([line for line in lines if "UNABRIDGED_UPSTREAM_KEY" in line]) == 1
    assert all(compared(row) == 0 for row in (await admin(url, "stats"))["proof"])


async def test_by_default_nothing_is_asked_again(start: Start, chats: Chats, model: Knowing) -> None:
    url = await start("", POLICY.replace("share = 1.0\n", ""))
    await ask_for(FACT, chats(url, X_Unabridged_Session="s"))
    await asyncio.sleep(0.5)
    assert len(model.chats) == 1


async def test_no_key_of_the_store_has_contents_of_what_was_compared(
    start: Start, chats: Chats, model: Knowing
) -> None:
    with embedded_valkey() as store:
        await prove(chats, await start(store=store), FACT)
        keys = run(store, "KEYS", "*")
        names = [name for name in keys if b"{proof}" in name or b"{bills}" in name]
        assert any(b"{proof}" in name for name in names)
        for name in names:
            told = run(store, "HGETALL", name)
            assert not any(word.encode() in key for key in told for word in (FACT, "booking", "Nobody"))
            assert all(value.isdigit() for value in told.values())
            assert 89 * 86_400 < int(run(store, "TTL", name)) <= 90 * 86_400


class TestRegret:
    async def test_what_is_asked_for_again_is_counted_by_kind_and_class(
        self, start: Start, chats: Chats, model: Knowing
    ) -> None:
        rule = '[[retention]]\nmatch = { tool = "look" }\nclass = "disposable"\n'
        url = await start("", POLICY.replace("share = 1.0\n", "") + rule)
        chat = chats(url, X_Unabridged_Session="s")
        look = ("look", json.dumps({"path": "src/bridge.py"}))
        wish = "Please never book a boat that leaves the harbour before nine in the morning."
        shown = [calling(("c0", *look)), {"role": "tool", "tool_call_id": "c0", "content": "a bridge " * 50}]
        chat.messages = [user("Look at the bridge."), *shown, said("It is a bridge."), user(wish)]
        for place in range(20):
            chat.messages += [said("So it is, and so it will be. " * 12), user(question(place))]
        chat.messages.append(said("So it is."))
        model.replies += [calling(("c1", *look))]
        await chat.ask("How long is it?")
        row = await until(url, lambda row: row["missed"])
        assert row["missed"] == [
            {"kind": "result", "retention": "disposable", "signal": "rerun", "cut": 1, "shown": 0}
        ]
        assert {"kind": "result", "retention": "disposable", "messages": 1} in row["cut"]
        await chat.say({"role": "tool", "tool_call_id": "c1", "content": "a bridge"})
        await chat.ask(wish)
        row = await until(url, lambda row: len(row["missed"]) == 2)
        assert row["missed"][1]["signal"] == "said_again"
        labels = 'kind="result",policy="proving",retention="disposable",signal="rerun"'
        assert (await metrics(url, "unabridged_regret_total"))[f"{{{labels}}}"] == 1

    async def test_what_the_model_recalls_is_counted(
        self, start: Start, chats: Chats, model: Knowing
    ) -> None:
        url = await start("", POLICY.replace("share = 1.0\n", "") + "[recall]\nenabled = true\n")
        asked = json.dumps({"query": "booking code"})
        model.replies += [calling(("r1", "recall_earlier_messages", asked)), said(f"It is {FACT}.")]
        await ask_for(FACT, chats(url, X_Unabridged_Session="s"))
        row = await until(url, lambda row: row["missed"])
        recalled = {each["kind"]: each["cut"] for each in row["missed"] if each["signal"] == "recalled"}
        assert recalled["user"] > 0

    async def test_in_shadow_nothing_was_cut_and_nothing_is_regretted(
        self, start: Start, chats: Chats, model: Knowing
    ) -> None:
        url = await start(shadow=True)
        await ask_for(FACT, chats(url, X_Unabridged_Session="s"))
        await asyncio.sleep(0.5)
        assert len(model.chats) == 1
        assert (await admin(url, "stats"))["proof"] == []


class TestWhereItIsShown:
    async def test_the_policys_page_says_that_cuts_change_answers(
        self, start: Start, chats: Chats, model: Knowing
    ) -> None:
        url = await start()
        async with browsing(url) as browser:
            assert "What its cuts did" not in await browser.text("policies/proving")
            await prove(chats, url, FACT)
            text = await browser.text("policies/proving")
        assert "Answers of gpt-4o" in text
        assert "Cuts change answers." in text
        assert re.search(r"the whole history \d+ 0% \(0% to \d+%\)", text)
        assert re.search(r"conversations with gpt-4o cost \$0\.\d{4} and took \d\S+ tokens\.", text)
        assert re.search(r"user compressible used by a second answer \d+ \d+ 0", text)

    async def test_so_does_the_command(
        self,
        start: Start,
        chats: Chats,
        model: Knowing,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
        url = await start()
        await prove(chats, url, FACT)
        assert await asyncio.to_thread(main, ["stats", "--server", url]) == 0
        told = capsys.readouterr().out
        assert "100% (" in told
        assert re.search(r"proving +gpt-4o +user +compressible +used", told)
