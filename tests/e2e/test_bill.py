"""The bill from outside: what was paid, what doing nothing would have cost, and that it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.bills import CACHED, FRESH, OUTPUT, talker, usage, using
from tests.support.clients import ADMIN, Chats, Small, admin, bill_of, metrics, proxying, user
from tests.support.operator import ask
from tests.support.replays import replayed
from tests.support.servers import Exchange
from tests.support.stores import embedded_valkey, run
from tests.support.upstreams import (
    Message,
    Model,
    completion,
    count_tokens,
    events,
    said,
)

LONG = "Tell me all of it, please. " * 30
COSTS = "[economy]\nenabled = true\n"


@pytest.fixture(scope="module")
def valkey() -> Any:
    with embedded_valkey() as url:
        yield url


@pytest.fixture
async def url(model: Model, valkey: str) -> AsyncIterator[str]:
    """The proxy before the model, with a store that has nothing yet."""
    run(valkey, "FLUSHALL")
    async with proxying(model.url, store=valkey) as served:
        yield served


async def stats(url: str, **query: str) -> Any:
    return await admin(url, "stats", **query)


async def test_a_sessions_bill_is_its_usage_at_the_prices_of_its_model(
    url: str, model: Model, chats: Chats
) -> None:
    chat = talker(chats, url)
    model.replies += [using(usage(2_000, 100, cached_tokens=0)), using(usage(2_200, 50, cached_tokens=1_920))]
    await chat.ask("What is it?")
    await chat.ask("And what was it?")
    bill = await bill_of(url, requests=2)
    paid = 2_000 * FRESH + 100 * OUTPUT + 280 * FRESH + 1_920 * CACHED + 50 * OUTPUT
    assert bill["tokens"] == {
        "received": 4_200,
        "sent": 4_200,
        "cached": 1_920,
        "cache_writes": 0,
        "output": 150,
        "shadow_cut": 0,
    }
    assert bill["dollars"]["answers"] == pytest.approx(paid, abs=1e-9)
    assert bill["dollars"]["without"] == bill["dollars"]["answers"] == bill["dollars"]["spent"]
    assert bill["dollars"]["saved"] == 0


async def test_what_is_written_to_the_cache_has_a_price_of_its_own(
    url: str, model: Model, chats: Chats
) -> None:
    model.replies.append(using(usage(3_000, 0, cached_tokens=1_000, cache_write_tokens=500)))
    await talker(chats, url, "claude-sonnet-4-5").ask("What is it?")
    bill = await bill_of(url)
    assert bill["tokens"]["cache_writes"] == 500
    assert bill["dollars"]["answers"] == pytest.approx((1_500 * 3 + 1_000 * 0.3 + 500 * 3.75) / 1e6, abs=1e-9)


async def test_all_of_a_long_prompt_and_its_answer_have_the_price_of_long_prompts(
    url: str, model: Model, chats: Chats
) -> None:
    model.replies.append(using(usage(400_000, 1_000, cached_tokens=0)))
    await talker(chats, url, "gpt-5.4").ask("What is it?")
    paid = (400_000 * 5 + 1_000 * 22.5) / 1e6
    assert (await bill_of(url))["dollars"]["answers"] == pytest.approx(paid, abs=1e-9)


async def test_a_restart_keeps_it(model: Model, chats: Chats, valkey: str) -> None:
    run(valkey, "FLUSHALL")
    async with proxying(model.url, store=valkey) as url:
        await talker(chats, url).ask("What is it?")
        before = await bill_of(url), await stats(url)
    async with proxying(model.url, store=valkey) as url:
        assert (await bill_of(url), await stats(url)) == before


async def test_the_end_writes_what_nobody_has_asked_for(model: Model, chats: Chats, valkey: str) -> None:
    run(valkey, "FLUSHALL")
    async with proxying(model.url, store=valkey) as url:
        await talker(chats, url).ask("What is it?")
    async with proxying(model.url, store=valkey) as url:
        assert (await stats(url))["total"]["requests"] == 1


class TestCut:
    async def test_doing_nothing_would_have_sent_the_whole_conversation(
        self, chats: Chats, small: Small, valkey: str
    ) -> None:
        run(valkey, "FLUSHALL")
        url = await small(1_500, store=valkey)
        chat = talker(chats, url)
        for number in range(14):
            await chat.ask(f"Question {number}: {LONG}")
        bill = await bill_of(url, requests=14, has=lambda bill: bill["dollars"]["summaries"])
        tokens, dollars = bill["tokens"], bill["dollars"]
        assert tokens["received"] > tokens["sent"]
        assert bill["epochs"] > 0
        assert dollars["without"] > dollars["answers"]
        assert dollars["spent"] == pytest.approx(dollars["answers"] + dollars["summaries"], abs=1e-9)
        assert dollars["saved"] == pytest.approx(dollars["without"] - dollars["spent"], abs=1e-9)

    async def test_where_the_whole_would_not_have_fitted_it_would_have_failed(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        model.window = 2_000
        url = await small(1_500, extra='[budget.windows]\n"*" = 2000\n')
        chat = talker(chats, url)
        for number in range(12):
            assert (await chat.ask(f"Question {number}: {LONG}")).is_success
        bill = await bill_of(url, requests=12)
        assert 0 < bill["would_have_failed"] < 12
        assert bill["dollars"]["saved"] < bill["dollars"]["without"] < bill["dollars"]["answers"]

    async def test_what_a_client_rewrites_would_have_been_read_anew(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        model.caches = True
        chat, paid = talker(chats, await small(3_000, summaries=False, extra=COSTS)), 0.0
        for number in range(20):
            rewritten = [{"role": "user", "content": f"Since {number} minutes"}]
            chat.messages = [*rewritten, *chat.messages[1:], user(f"Question {number}: {LONG}")]
            paid += FRESH * count_tokens({"messages": chat.messages})
            await chat.say()
        bill = await bill_of(chat.url, requests=20)
        output = bill["tokens"]["output"] * OUTPUT
        assert bill["tokens"]["cached"] == 0
        assert bill["tokens"]["sent"] < bill["tokens"]["received"]
        assert bill["dollars"]["without"] == pytest.approx(paid + output, rel=0.01)

    async def test_an_answer_that_comes_back_changed_was_read_but_for_the_newest(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        model.caches = True

        async def bill(tokens: int) -> Any:
            url = await small(tokens, summaries=False, extra=COSTS)
            chat = chats(url)
            chat.members = {"model": "gpt-4o"}
            for number in range(20):
                await chat.ask(f"Question {number} of {tokens}: {LONG}")
                chat.messages[-1] = said(f"{chat.messages[-1]['content']} Observation: {number}")
            return (await admin(url, "stats"))["total"]["dollars"]

        nothing, cut = await bill(100_000), await bill(3_000)
        assert nothing["without"] == nothing["spent"]
        assert nothing["spent"] * 0.9 < cut["without"] < nothing["spent"] * 1.02

    async def test_a_history_that_was_not_sent_before_would_have_been_read_anew(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        model.replies.append(using(usage(2_000, 0, cached_tokens=0)))
        chat = talker(chats, await small(3_000, summaries=False, extra=COSTS))
        chat.messages = [user(LONG), said(LONG)] * 10
        await chat.ask("And now?")
        bill = await bill_of(chat.url)
        assert bill["tokens"]["received"] > bill["tokens"]["sent"]
        assert bill["dollars"]["without"] == pytest.approx(bill["tokens"]["received"] * FRESH, abs=1e-9)

    @pytest.mark.parametrize("shadow", [False, True], ids=["cut", "in shadow"])
    async def test_where_a_provider_writes_nothing_to_its_cache_no_dearer_write_is_saved(
        self, chats: Chats, model: Model, small: Small, *, shadow: bool
    ) -> None:
        chat = talker(chats, await small(1_500, shadow=shadow), "claude-sonnet-4-5")
        chat.messages = [said(LONG), {"role": "user", "content": LONG}] * 14
        model.replies.append(using(usage(12_000, 100, cached_tokens=0)))
        await chat.ask("And now?")
        bill = await bill_of(chat.url)
        tokens, dollars = bill["tokens"], bill["dollars"]
        assert dollars["without"] == pytest.approx((tokens["received"] * 3 + 100 * 15) / 1e6, abs=1e-9)
        if shadow:
            assert dollars["shadow"] == pytest.approx(tokens["shadow_cut"] * 3 / 1e6, abs=1e-9) != 0
        else:
            assert tokens["received"] > tokens["sent"] == 12_000

    async def test_in_shadow_nothing_is_saved_and_it_is_told_what_would_have_been(
        self, chats: Chats, small: Small
    ) -> None:
        url = await small(1_500, shadow=True)
        chat = talker(chats, url)
        for number in range(14):
            await chat.ask(f"Question {number}: {LONG}")
        bill = await bill_of(url, requests=14)
        tokens, dollars = bill["tokens"], bill["dollars"]
        assert tokens["sent"] == tokens["received"]
        assert 0 < tokens["shadow_cut"] < tokens["sent"]
        assert dollars["spent"] == dollars["without"]
        assert dollars["shadow"] != 0
        assert dollars["saved"] == 0

    async def test_in_shadow_no_more_would_have_been_cut_than_the_upstream_says_it_was_sent(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        url = await small(1_500, shadow=True)
        chat = talker(chats, url)
        for number in range(14):
            model.replies.append(using({"prompt_tokens": 10, "completion_tokens": 5}))  # those it read anew
            await chat.ask(f"Question {number}: {LONG}")
        tokens = (await bill_of(url, requests=14))["tokens"]
        assert 0 < tokens["shadow_cut"] <= tokens["sent"] == 140


async def test_sums_over_hours_days_models_and_sessions_are_the_same(url: str, chats: Chats) -> None:
    for session, name in (("a", "gpt-4o"), ("b", "gpt-4o"), ("c", "gpt-5-nano")):
        chat = talker(chats, url, name, session)
        await chat.ask("What is it?")
        await chat.ask("And what was it?")
        await bill_of(url, session, 2)
    told = {by: await stats(url, by=by) for by in ("hour", "day", "model", "session")}
    for each in told.values():
        rows = each["rows"]
        assert sum(row["requests"] for row in rows) == each["total"]["requests"] == 6
        paid = sum(row["dollars"]["answers"] for row in rows)
        assert paid == pytest.approx(each["total"]["dollars"]["answers"], abs=1e-9)
    assert [row["key"] for row in told["model"]["rows"]] == ["gpt-4o", "gpt-5-nano"]
    assert {row["name"] for row in told["session"]["rows"]} == {"a", "b", "c"}


async def test_a_price_that_nobody_knows_is_told_as_such(url: str, chats: Chats) -> None:
    await talker(chats, url, "a-model-of-mine").ask("What is it?")
    bill = await bill_of(url)
    assert (bill["dollars"], bill["price_unknown"]) == (None, 1)


async def test_a_stream_without_usage_is_billed_by_our_own_count(url: str, chats: Chats) -> None:
    chat = talker(chats, url)
    chat.members["stream"] = True
    await chat.ask("What is it?")
    bill = await bill_of(url)
    assert bill["estimated"] == 1
    assert bill["tokens"]["sent"] > 0
    assert bill["tokens"]["output"] > 0
    assert bill["dollars"]["answers"] > 0


async def test_what_a_deleted_session_cost_stays_in_the_sums(url: str, chats: Chats, valkey: str) -> None:
    await talker(chats, url).ask("What is it?")
    before = (await bill_of(url), (await stats(url))["total"])[1]
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
        assert (await client.delete("/unabridged/v1/sessions/s")).is_success
    assert (await stats(url))["total"] == before
    assert run(valkey, "KEYS", "*:bill") == []


@pytest.mark.parametrize(("name", "value"), [("since", "yesterday"), ("since", "91d"), ("by", "colour")])
async def test_what_cannot_be_meant_is_refused(url: str, name: str, value: str) -> None:
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
        answer = await client.get("/unabridged/v1/stats", params={name: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize("since", ["7", "", "1y", "7D"])
async def test_who_writes_a_duration_wrongly_hears_how_it_is_written(url: str, since: str) -> None:
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
        answer = await client.get("/unabridged/v1/stats", params={"since": since})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "since")
    assert error["message"] == "`since` must be a duration such as 24h or 7d."


async def test_a_summary_that_could_not_be_had_is_told_with_its_reason(
    chats: Chats, model: Model, small: Small
) -> None:
    model.summary = said("")
    url = await small(1_500)
    chat = talker(chats, url)
    for number in range(14):
        await chat.ask(f"Question {number}: {LONG}")
    bill = await bill_of(url, requests=14, has=lambda bill: bill["summaries_failed"].get("empty"))
    assert bill["dollars"]["summaries"] > 0  # what is of no use is paid for, too


async def test_metrics_have_the_same_dollars_and_tokens(small: Small, chats: Chats) -> None:
    url = await small(1_500, summaries=False)  # which are billed at any time
    chat = talker(chats, url)
    for number in range(14):
        await chat.ask(f"Question {number}: {LONG}")
    bill = await bill_of(url, requests=14)
    for metric, told in (("dollars", bill["dollars"]), ("tokens", bill["tokens"])):
        counted = await metrics(url, f'unabridged_{metric}_total{{kind="', '"}')
        shared = counted.keys() & told.keys()
        assert len(shared) > 1
        assert {kind: counted[kind] for kind in shared} == pytest.approx(
            {kind: told[kind] for kind in shared}, abs=1e-9
        )
    assert bill["tokens"]["sent"] < bill["tokens"]["received"]
    assert (await metrics(url))["unabridged_cached_tokens_total"] == bill["tokens"]["cached"]


async def test_a_replay_of_what_was_exported_comes_to_the_same_bill(
    model: Model, small: Small, chats: Chats, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.tells_usage = False  # so that both count by themselves
    url = await small(2_000, summaries=False)
    chat = talker(chats, url)
    for number in range(24):
        await chat.ask(f"Question {number}: {LONG}")
    bill = await bill_of(url, requests=24)
    exported, policy = tmp_path / "s.jsonl", tmp_path / "small.toml"
    exported.write_bytes((await ask(url, "GET", "sessions/s/export")).content)
    words = (str(exported), "--policy", str(policy), "--model", "gpt-4o")
    (replayed_under,) = await asyncio.to_thread(replayed, capsys, *words)
    totals, tokens, dollars = replayed_under["totals"], bill["tokens"], bill["dollars"]
    assert bill["epochs"] == totals["epochs"] > 1
    assert (tokens["received"], tokens["sent"]) == (totals["full_tokens"], totals["sent_tokens"])
    assert tokens["cached"] == totals["bill"]["sent_cached_tokens"] > 0
    output = tokens["output"] * OUTPUT  # a replay leaves answers out: they cost the same
    assert dollars["answers"] - output == pytest.approx(totals["bill"]["sent_dollars"], abs=1e-6)
    assert dollars["without"] - output == pytest.approx(totals["bill"]["whole_dollars"], abs=1e-6)


@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
async def test_several_answers_without_a_usage_are_of_unknown_price(
    url: str, model: Model, chats: Chats, stream: bool
) -> None:
    chat, model.tells_usage = talker(chats, url), False
    chat.messages, chat.members["n"], chat.members["stream"] = [user("What is it?")], 2, stream

    async def twice(exchange: Exchange) -> None:
        both = completion(said("So it is."), None), completion(said("Or so."), None)
        if stream:
            chunks = [*events(said("So it is.")), *events(said("Or so."))]
            for chunk in chunks[len(chunks) // 2 :]:
                chunk["choices"][0]["index"] = 1
            await exchange.stream_events(chunks)
        else:
            choices = [{**each["choices"][0], "index": place} for place, each in enumerate(both)]
            await exchange.answer_json({**both[0], "choices": choices})

    model.replies.append(twice)
    assert (await chat.send()).status_code == 200
    bill = await bill_of(url)
    assert (bill["requests"], bill["price_unknown"], bill["dollars"]) == (1, 1, None)


@pytest.mark.parametrize(
    "nonsense",
    [
        usage(-5, -5, cached_tokens=-5),
        usage(10**30, 10**30),
        usage(10, 1, cached_tokens=99, cache_write_tokens=99),
    ],
    ids=["below nothing", "more than there is", "more cached than sent"],
)
async def test_a_usage_that_makes_no_sense_loses_no_turn_and_stops_no_bill(
    url: str, model: Model, chats: Chats, nonsense: Message
) -> None:
    chat = talker(chats, url)
    model.replies.append(using(nonsense))
    await chat.ask("What is it?")
    before = await bill_of(url)
    model.replies.append(using(usage(2_000, 100, cached_tokens=0)))
    await chat.ask("And what was it?")
    after = await bill_of(url, requests=2)
    assert before["dollars"]["answers"] >= 0
    paid = after["dollars"]["answers"] - before["dollars"]["answers"]
    assert paid == pytest.approx(2_000 * FRESH + 100 * OUTPUT, abs=1e-6)
    assert (await admin(url, "sessions/s"))["turns"] == 2
