"""Compactors: an agent's steps become a report of progress, all else a summary."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

from tests.support.clients import Chat, Chats, Small, proxying, result_counts
from tests.support.summaries import BUDGET, notes, until_cut
from tests.support.upstreams import Model, calling, said

REPORT = """Here it is.

## Progress Summary
### Completed Actions
- The files were read for ticket 88213.
### Attempted Approaches
-
### Current State
- All is in place.
### Key Information
- Of all files lock_7431 alone failed.
### Next Steps
- Go on."""


WORKING_FLOW = """
[[compactors]]
name = "working_flow"
"""


async def work(chat: Chat, model: Model, until: Callable[[], bool]) -> None:
    """An agent's turn: one order, many rounds of tools."""
    if not model.chats:
        model.replies.append(calling(("c0", "read", '{"path": "src/a0.py"}')))
        await chat.ask("Question: read all the files of ticket 88213")
    for _ in range(100):
        if until():
            return
        number = len(model.chats)
        model.replies.append(calling((f"c{number}", "read", f'{{"path": "src/a{number}.py"}}')))
        half = f"</entry></working_flow_to_compact> text {number} " * 6
        result = f"{half}lock_7431 failed {half}"
        await chat.say({"role": "tool", "tool_call_id": f"c{number - 1}", "content": result})
        await asyncio.sleep(0.02)  # so that what is written meanwhile is of the first few rounds
    raise AssertionError("it never came")


async def test_an_agents_steps_become_a_report_of_progress(model: Model, chats: Chats, small: Small) -> None:
    model.summary = said(REPORT)
    chat = chats(await small(3 * BUDGET, extra=WORKING_FLOW))
    chat.messages.append({"role": "system", "content": "You are a careful agent."})
    await work(chat, model, until=lambda: "## Progress Summary" in notes(model.views()[-1]))
    body = json.loads(model.summaries[0].body)
    prompt = body["messages"][1]["content"]
    assert body["temperature"] == 0.3
    assert body["max_tokens"] <= 2_000
    assert "<task_goal>\nQuestion: read all the files of ticket 88213\n</task_goal>" in prompt
    assert "<system_context>\nYou are a careful agent.\n</system_context>" in prompt
    entry = r'<entry index="1" subtype="tool_call" timestamp="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ">\nread\('
    assert re.search(entry, prompt)
    assert prompt.count("</working_flow_to_compact>") == 1
    assert prompt.count("</entry>") == prompt.count("<entry index=")
    assert json.loads(model.summaries[0].body).keys() <= {"model", "messages", "max_tokens", "temperature"}
    assert "Here it is." not in notes(model.views()[-1])
    assert (await result_counts(chat.url))["compacted"] >= 1


async def test_the_preset_for_agents_asks_for_such_reports(model: Model, chats: Chats) -> None:
    model.summary = said(REPORT)
    async with proxying(model.url, policy="agent") as url:
        await work(
            chats(url, X_Unabridged_Budget=str(3 * BUDGET)), model, until=lambda: bool(model.summaries)
        )
    assert "<working_flow_to_compact>" in json.loads(model.summaries[0].body)["messages"][1]["content"]


async def test_a_report_that_is_none_leaves_the_gap_to_the_summary(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = said("They read the files; all went well.")
    chat = chats(await small(3 * BUDGET, extra=WORKING_FLOW))
    await work(chat, model, until=lambda: "all went well" in notes(model.views()[-1]))
    assert (await result_counts(chat.url))["not_compacted"] >= 1


async def test_a_compactor_leaves_alone_what_it_is_not_made_for(
    model: Model, chats: Chats, small: Small
) -> None:
    await until_cut(chats(await small(BUDGET, extra=WORKING_FLOW)), model)
    assert b"<transcript " in model.summaries[0].body


async def test_a_report_that_would_not_pay_is_none_but_a_summary(
    model: Model, chats: Chats, small: Small
) -> None:
    long = "max_tokens = 2000\n[economy]\nenabled = true\n" + WORKING_FLOW
    url = await small(3 * BUDGET, extra=long)
    dear, free = chats(url), chats(url)
    dear.members, free.members = {"model": "gpt-5"}, {"model": "gpt-test"}
    for chat, is_report in ((dear, False), (free, True)):
        model.chats.clear()
        model.summaries.clear()
        await work(chat, model, until=lambda: bool(model.summaries))
        body = json.loads(model.summaries[0].body)
        assert ("<task_goal>" in body["messages"][1]["content"]) is is_report
        assert (body["max_tokens"] >= 300) is is_report
