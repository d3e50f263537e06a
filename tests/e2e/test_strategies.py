"""Strategies that act at any usage, seen from outside: a pause, a boundary, a count."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest

from proxy import app
from proxy.adapters.files.policies import shipped_policies
from proxy.core.budget.budget import Stage
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import ByImportance
from proxy.core.policy import values
from tests.support.clients import (
    Chat,
    Chats,
    admin,
    only_session,
    proxying,
    recorded,
    result_counts,
    told,
    user,
    write_policy,
)
from tests.support.servers import awaited
from tests.support.stores import serving, valkey_command
from tests.support.summaries import until_counted
from tests.support.upstreams import Behaviour, Exchange, Message, Model, completion, said

Start = Callable[..., Awaitable[str]]


class Hands(app.SystemClock):
    """A clock that stands still between two requests, or is put forward."""

    ahead = 0.0

    def now(self) -> float:
        return 1_700_000_000.0 + type(self).ahead

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Hands]:
    monkeypatch.setattr(app, "SystemClock", Hands)
    monkeypatch.setattr(Hands, "ahead", 0.0)
    return Hands


@pytest.fixture
def by_session(tmp_path: Path) -> str:
    text = 'extends = "default"\n[strategy]\nname = "session"\nidle = "10m"\n[ledger]\nshare = 0.0\n'
    return str(write_policy(tmp_path, "by-session", text))


async def talk(chat: Chat, turns: int) -> list[httpx2.Response]:
    return [await chat.ask(f"Question {number}, please.") for number in range(turns)]


def kept(model: Model, chat: Chat) -> list[Message]:
    """The client's own messages in the newest view."""
    return [message for message in model.views()[-1] if message in chat.messages]


# --- session


async def test_after_a_pause_everything_before_the_new_request_goes_and_stays_away(
    model: Model, chats: Chats, by_session: str, clock: type[Hands]
) -> None:
    async with proxying(model.url, policy=by_session) as url:
        chat = chats(url)
        chat.messages.append({"role": "system", "content": "Be kind."})
        before = await talk(chat, 3)
        await recorded(url, 3)
        clock.ahead += 599
        before.append(await chat.ask("Still there?"))
        assert {told(response, "cut") for response in before} == {"0"}
        await recorded(url, 4)
        clock.ahead += 601
        response = await chat.ask("Good morning!")
        assert (told(response, "cut"), told(response, "epoch"), told(response, "stage")) == ("8", "1", "calm")
        assert kept(model, chat) == [chat.messages[0], user("Good morning!")]
        assert "earlier messages" in model.views()[-1][1]["content"]
        assert told(response, "summary") == "waited"
        first = model.views()[-1]
        again = await chat.ask("And the weather?")
        assert (told(again, "cut"), told(again, "epoch")) == ("8", "1")
        assert model.views()[-1][: len(first)] == first
        (epoch,) = (await only_session(url))["epochs"]
        assert epoch["reason"].endswith("by session")


async def test_a_pause_while_a_tool_works_is_none(
    model: Model, chats: Chats, by_session: str, clock: type[Hands]
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "build", "arguments": "{}"}}
    async with proxying(model.url, policy=by_session) as url:
        chat = chats(url)
        await talk(chat, 2)
        model.replies.append({"role": "assistant", "content": None, "tool_calls": [call]})
        await chat.ask("Build it.")
        await recorded(url, 3)
        clock.ahead += 4_000
        response = await chat.say({"role": "tool", "tool_call_id": "c1", "content": "built"})
        assert told(response, "cut") == "0"


async def test_a_pause_is_one_of_the_whole_session_whichever_model_answered_last(
    model: Model, chats: Chats, by_session: str, clock: type[Hands]
) -> None:
    async with proxying(model.url, policy=by_session) as url:
        chat = chats(url, X_Unabridged_Session="s")
        await talk(chat, 2)
        chat.members["model"] = "another"
        for number in range(3):  # the person goes on with another model for longer than a pause would last
            clock.ahead += 300
            await chat.ask(f"Question {number} for another model.")
            await recorded(url, 3 + number)
        chat.members["model"] = "gpt-test"
        assert told(await chat.ask("Back to you."), "cut") == "0"
        await recorded(url, 6)
        clock.ahead += 601
        chat.members["model"] = "a third one"
        assert told(await chat.ask("Good morning!"), "cut") == "12"


async def test_whichever_machine_is_asked_a_conversation_without_a_pause_has_none(
    model: Model, chats: Chats, by_session: str, clock: type[Hands]
) -> None:
    with serving(valkey_command()) as server:
        machine = partial(proxying, model.url, policy=by_session, store=server.url)
        async with machine() as first, machine() as second:
            chat = chats(second, X_Unabridged_Session="s")
            await talk(chat, 1)
            await recorded(second, 1)
            chat.url = first
            for number in range(3):
                clock.ahead += 300
                await chat.ask(f"And {number}?")
                await recorded(first, 2 + number)
            aside = chats(first, X_Unabridged_Session="s")
            aside.members["model"] = "another"
            aside.messages = list(chat.messages)
            await aside.ask("Suggest three questions that I may ask next.")
            await recorded(first, 5)
            chat.url = second
            assert told(await chat.ask("What do you think?"), "cut") == "0"


async def test_a_client_that_begins_something_new_says_so_in_a_header(
    model: Model, chats: Chats, by_session: str
) -> None:
    async with proxying(model.url, policy=by_session) as url:
        chat = chats(url)
        await talk(chat, 3)
        chat.headers["X-Unabridged-Boundary"] = "new"
        response = await chat.ask("Something else:")
        assert told(response, "cut") == "6"
        assert "X-Unabridged-Boundary".lower().encode() not in dict(model.chats[-1].headers)
        del chat.headers["X-Unabridged-Boundary"]
        chat.messages.pop()
        repeated = await chat.send()
        assert told(repeated, "cut") == "6"
        assert bytes(model.chats[-1].body) == bytes(model.chats[-2].body)
        transcript = await admin(url, f"sessions/{(await only_session(url))['id']}/transcript")
        assert len(transcript["messages"]) == 8, "nothing is lost"


async def test_a_boundary_comes_before_what_usage_has_prepared(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    text = 'extends = "balanced"\n[strategy]\nname = "session"\n[budget]\ntokens = 800\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "tight", text))) as url:
        chat = chats(url)
        while not chat.stages or chat.stages[-1] != "trim":
            await chat.ask(f"Question {len(chat.stages)}: " + "what became of it, please? " * 4)
        chat.headers["X-Unabridged-Boundary"] = "new"
        response = await chat.ask("Something else:")
        assert told(response, "stage") in ("warn", "trim", "compact")
        assert int(told(response, "cut")) == len(chat.messages) - 2
        assert kept(model, chat) == [user("Something else:")]


async def test_a_boundary_that_is_misspelt_is_refused(model: Model, chats: Chats, by_session: str) -> None:
    async with proxying(model.url, policy=by_session) as url:
        response = await chats(url, X_Unabridged_Boundary="now").ask("Hello")
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_header")
    assert not model.chats


async def test_other_policies_forward_a_boundary_byte_for_byte(model: Model, chats: Chats, url: str) -> None:
    chat = chats(url)
    await talk(chat, 3)
    chat.headers["X-Unabridged-Boundary"] = "new"
    response = await chat.ask("Something else:")
    assert told(response, "cut") == "0"
    assert model.views()[-1] == chat.messages[:-1]


# --- exchanges


async def test_past_ten_exchanges_the_older_six_roll_into_a_note(model: Model, chats: Chats) -> None:
    model.replies.extend(said(f"Answer {number}.") for number in range(30))
    async with proxying(model.url, policy="exchanges") as url:
        chat = chats(url)
        responses = await talk(chat, 17)
        cuts = [int(told(response, "cut")) for response in responses]
        assert cuts == [0] * 10 + [12] * 6 + [24]
        note = model.views()[10][0]["content"]
        told_in_order = [f"[user] Question {n}, please.\n[assistant] Answer {n}." for n in range(6)]
        assert "\n".join(told_in_order) in note
        assert model.views()[15][0]["content"] == note
        assert "Question 11, please." in model.views()[16][0]["content"]
        assert not model.summaries, "short exchanges stand word for word"
        told_of = await only_session(url)
        assert (told_of["llm_compressions"], told_of["prune_count"]) == (0, 2)


LONG = "It was so. " * 100


async def test_what_rolls_in_an_emergency_is_condensed_by_the_model_too(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    rules = "[budget]\ntokens = 20000\n[strategy]\nexchanges = 4\nroll_to = 2\n"
    path = write_policy(tmp_path, "rolls", f'extends = "exchanges"\n{rules}')
    async with proxying(model.url, policy=str(path)) as url:
        chat = chats(url)
        await talk(chat, 5)
        assert not model.summaries, "short exchanges stand word for word"
        more = [(user(f"And {n}?"), {"role": "assistant", "content": f"{n}. {LONG * 10}"}) for n in range(6)]
        chat.messages += [message for pair in more for message in pair]  # too quick to be prepared for
        response = await chat.ask("Something larger: " + "and so on, " * 1_000)
        assert (told(response, "stage"), told(response, "epoch")) == ("emergency", "2")
        await until_counted(url, "written")


async def test_long_answers_are_condensed_by_the_model_one_by_one_before_they_roll(
    model: Model, chats: Chats
) -> None:
    model.replies.extend(said(f"Answer {number}: {LONG * (number % 2)}") for number in range(40))
    model.summary = condensing()
    async with proxying(model.url, policy="exchanges") as url:
        chat = chats(url)
        await talk(chat, 10)
        await written(url, 1)
        response = await chat.ask("Question 10, please.")
        assert told(response, "summary") == "ready"
        note = model.views()[-1][0]["content"]
        for number in range(0, 6, 2):
            assert f"[user] Question {number}, please.\n[assistant] Answer {number}:\n" in note
            assert f"[user] Question {number + 1}, please.\n[assistant] It was {number + 1}.\n" in note
        assert len(model.summaries) == 3
        asked = [bytes(each.body) for each in model.summaries]
        assert all(body.count(b"Answer") == 1 and b"Question" not in body for body in asked)
        assert all(b"Use at most 500 characters" in body for body in asked)


async def test_what_the_model_does_not_condense_code_does(model: Model, chats: Chats) -> None:
    model.replies.extend(said(f"Answer {number}: {LONG}") for number in range(40))
    model.summary = condensing(refused=(2, 4))
    async with proxying(model.url, policy="exchanges") as url:
        await talk(chats(url), 11)
        note = model.views()[-1][0]["content"]
    answers = [line for line in note.splitlines() if line.startswith("[assistant] ")]
    assert [line for line in answers if len(line) < 40] == [f"[assistant] It was {n}." for n in (0, 1, 3, 5)]
    assert [line[:24] for line in answers if len(line) > 40] == [
        f"[assistant] Answer {n}: It" for n in (2, 4)
    ]
    assert all(len(line.removeprefix("[assistant] ").encode()) <= 500 for line in answers)


@pytest.mark.parametrize("length", [20, 400])
async def test_a_summary_that_is_too_long_is_rewritten_by_the_model_within_its_bytes(
    model: Model, chats: Chats, length: int
) -> None:
    words = "It is as it was. " * 30
    model.replies.extend(said(f"Answer {number}. {words}") for number in range(40))
    model.summary = said("They spoke. " * length)
    async with proxying(model.url, policy="exchanges") as url:
        chat = chats(url)
        await talk(chat, 17)
        note = model.views()[-1][0]["content"]
        written = (await only_session(url))["summary_bytes"]
    assert len(model.summaries) == (1 if length == 20 else 2)
    body = bytes(model.summaries[0].body)
    assert b"[user] Question 0, please." in body
    assert b"[user] Question 11, please." in body
    assert b"Use at most 3000 characters" in body
    if length == 20:
        assert note.count("They spoke.") == 20
    else:  # it was too long, twice
        assert "They spoke" not in note
        assert all(f"[user] Question {number}, please." in note for number in range(12))
    assert 0 < written <= 3000


async def test_what_follows_a_later_system_message_gets_its_share_of_the_summary(
    model: Model, chats: Chats
) -> None:
    words = ("It was so. " * 30)[:279]  # of twelve exchanges nearly as much as the summary may have
    model.replies.extend(said(f"Answer {number}. {words}") for number in range(40))
    model.summary = said("They spoke of it at length, and it was settled in the end.")
    async with proxying(model.url, policy="exchanges") as url:
        chat = chats(url)
        await talk(chat, 12)
        chat.messages.append({"role": "system", "content": "The user is on the train now."})
        await talk(chat, 11)
        first, train, second, *_ = (each["content"] for each in model.views()[-1])
    assert train == "The user is on the train now."
    assert [f"[user] Question {number}, please." in first for number in range(12)] == [True] * 12
    assert "They spoke of it at length" in second
    assert len(first.encode()) + len(second.encode()) < 4000
    assert len(model.summaries) == 1


async def test_answers_that_stay_are_condensed_when_others_roll_and_never_between(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    text = 'extends = "exchanges"\n[strategy]\nexchanges = 4\nroll_to = 4\ncondense_active = true\n'
    policy = str(write_policy(tmp_path, "active", text))
    model.replies.extend(said(f"Answer {number}: {LONG}") for number in range(40))
    model.summary = condensing()
    with serving(valkey_command()) as server:
        async with proxying(model.url, policy=policy, store=server.url) as url:
            chat = chats(url, X_Unabridged_Session="s")
            await talk(chat, 4)
            assert model.views()[-1] == chat.messages[:-1]
            await written(url, 3)
            await chat.ask("Question 4, please.")
            view = model.views()[-1]
            assert [each["role"] for each in view] == ["user"] * 8
            assert "[user] Question 0, please.\n[assistant] It was 0." in view[0]["content"]
            assert [each["content"] for each in view[1:7:2]] == [f"Question {n}, please." for n in (1, 2, 3)]
            for number, note in enumerate(view[2:8:2], 1):
                assert f"[assistant] It was {number}." in note["content"]
                assert "The request above was answered" in note["content"]
        # The same request again, to another worker with an empty memory.
        async with proxying(model.url, policy=policy, store=server.url) as url:
            again = chats(url, X_Unabridged_Session="s")
            again.messages = chat.messages[:-2]
            await again.ask("Question 4, please.")
            assert model.views()[-1] == view


def condensing(refused: Sequence[int] = ()) -> Behaviour:
    """A model that condenses the answer with each number to its own short text, or to nothing."""

    async def behave(exchange: Exchange) -> None:
        number = re.findall(r"Answer (\d+)", (await exchange.body()).decode())[0]
        text = "" if int(number) in refused else f"It was {number}."
        await exchange.answer_json(completion(said(text)))

    return behave


async def written(url: str, summaries: int) -> None:
    """Wait until so many are written."""
    await awaited(lambda: result_counts(url), lambda counts: counts.get("written", 0) >= summaries)


async def test_where_the_model_condenses_nothing_answers_lose_their_ends(model: Model, chats: Chats) -> None:
    model.replies.extend(said(f"{number}: {LONG}") for number in range(40))
    model.summary = said("")
    async with proxying(model.url, policy="exchanges") as url:
        chat = chats(url)
        response = (await talk(chat, 11))[-1]
        assert told(response, "summary") == "failed"
        note = model.views()[-1][0]["content"]
        answers = [line for line in note.splitlines() if line.startswith("[assistant] ")]
        assert len(answers) == 6
        assert all(len(line.removeprefix("[assistant] ").encode()) <= 500 for line in answers)
        told_of = await only_session(url)
        assert 0 < told_of["summary_bytes"] <= 4000
        assert told_of["llm_compressions"] == 0


async def test_exchanges_roll_alike_on_two_workers(model: Model, chats: Chats) -> None:
    model.replies.extend(said(f"Answer {number}.") for number in range(40))
    with serving(valkey_command()) as server:
        async with (
            proxying(model.url, policy="exchanges", store=server.url) as one,
            proxying(model.url, policy="exchanges", store=server.url) as other,
        ):
            chat = chats(one, X_Unabridged_Session="s")
            cuts: list[str] = []
            for number in range(18):
                chat.url = (one, other)[number % 2]
                cuts.append(told(await chat.ask(f"Question {number}, please."), "cut"))
    assert cuts == ["0"] * 10 + ["12"] * 6 + ["24"] * 2
    views = model.views()
    assert views[12][: len(views[11])] == views[11]


def test_the_presets_by_count_are_shipped() -> None:
    assert {"exchanges.toml", "sliding-window.toml"} <= {file.name for file in shipped_policies().iterdir()}


# --- side by side with other epochs

BY_COUNT = {
    "units": "[stages]\nmax_units = 3\n[keep]\nrecent = 0.0",
    "exchanges": '[strategy]\nname = "exchanges"\nexchanges = 3\nroll_to = 2',
}


@pytest.mark.parametrize("strategy", BY_COUNT)
async def test_after_a_large_message_is_edited_away_each_cut_by_count_is_kept_until_the_next(
    tmp_path: Path, model: Model, chats: Chats, strategy: str
) -> None:
    text = "budget.tokens = 2000\nsummary.enabled = false\neconomy.enabled = false\n"
    policy = str(write_policy(tmp_path, "by-count", text + BY_COUNT[strategy]))
    async with proxying(model.url, policy=policy) as url:
        chat = chats(url, X_Unabridged_Session="s")
        await talk(chat, 5)
        await chat.ask("A large paste: " + "word " * 1_900)
        del chat.messages[-2:]
        seen: list[tuple[str, list[Message]]] = []
        for number in range(8):
            response = await chat.ask(f"Question {number} after it, please. " + "Tell me all. " * 8)
            seen.append((told(response, "epoch"), model.views()[-1]))
    for (epoch, view), (later, longer) in pairwise(seen):
        assert later == str(int(epoch) + 1) or longer[: len(view)] == view
    assert int(seen[-1][0]) > 1


@pytest.mark.parametrize("name", ["importance", "sliding_window", "exchanges"])
async def test_where_head_and_last_message_are_over_the_window_the_rest_is_cut(
    tmp_path: Path, model: Model, chats: Chats, name: str
) -> None:
    text = 'summary.enabled = false\nbudget.windows = { "*" = 600 }\n'
    text += f'strategy = {{ name = "{name}", last = 8 }}\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "small", text))) as url:
        chat = chats(url)
        for number in range(20):
            chat.messages += [user(f"Question {number}: " + "word " * 60), said("So it is. " * 20)]
        chat.messages.insert(0, {"role": "system", "content": "head " * 300})
        response = await chat.ask("last " * 400)
        assert told(response, "epoch") == "1"
        assert len(model.views()[-1]) < 25


# --- one of your own


class Own(ByImportance):
    """Never says that it is due, and breaks down where that is asked for."""

    is_broken = False

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return False

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        if self.is_broken:
            raise RuntimeError("a case that its author did not think of")
        return super().order(situation, stage)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The path of a policy under it."""
    monkeypatch.setattr(values.STRATEGIES, "_added", {"own": Own()})
    monkeypatch.setattr(Own, "is_broken", False)
    text = 'extends = "default"\n[budget]\ntokens = 400\n[strategy]\nname = "own"\n[summary]\nwait = "0s"\n'
    return str(write_policy(tmp_path, "own", text))


async def test_a_strategy_that_is_never_due_is_asked_where_the_view_would_not_fit(
    model: Model, chats: Chats, own: str
) -> None:
    async with proxying(model.url, policy=own) as url:
        chat = chats(url)
        answers = [await chat.ask(f"{number} " + "word " * 40) for number in range(12)]
    pressed = [each for each in answers if told(each, "stage") == "emergency"]
    assert len(pressed) > 1
    assert all(int(told(each, "cut")) > 0 for each in pressed)


async def test_where_a_strategy_breaks_down_the_plan_in_force_stays(
    model: Model, chats: Chats, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxying(model.url, policy=own) as url:
        chat, answers = chats(url), list[httpx2.Response]()
        for number in range(12):
            answers.append(await chat.ask(f"{number} " + "word " * 40))
            if int(told(answers[-1], "epoch")) == 2:
                monkeypatch.setattr(Own, "is_broken", True)
        *_, before, after = [told(each, "epoch") for each in answers]
        assert (before, after) == ("2", "2")
        assert told(answers[-1], "degraded") == "not-planned"
        assert user("1 " + "word " * 40) not in model.views()[-1]
