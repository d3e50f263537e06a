"""At debug level each request is followed by what its session stands at, as the admin API tells it too."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from tests.support.canaries import logged
from tests.support.clients import Chats, Small, admin, proxying
from tests.support.upstreams import Model

TOOLS = """
[[tools]]
match = "get_*"
cache_exchanges = 3
"""


def states(lines: list[str]) -> list[str]:
    return [json.loads(line)["state"] for line in lines if '"memory state"' in line]


@pytest.mark.parametrize("with_content", [False, True])
async def test_three_blocks_follow_each_request(model: Model, chats: Chats, with_content: bool) -> None:
    async with proxying(model.url, log_level="debug", log_content=with_content) as url:
        with logged() as lines:
            chat = chats(url, X_Unabridged_Session="my-chat")
            chat.messages.append({"role": "system", "content": "Be brief."})
            await chat.ask("Where is Wendelin?")
        (session,) = (await admin(url, "sessions"))["sessions"]
    (state,) = states(lines)
    name = "my-chat" if with_content else session["id"]
    system, user = ("Be brief.", "Where is Wendelin?") if with_content else ("…", "…")
    assert state.splitlines() == [
        "MEMORY STATE",
        f"  Session: {name} · Exchanges: 0 · Running summary: 0 bytes · Model compressions: 0",
        "FUNCTION CACHE STATE",
        "  Cached functions: 0",
        "AGENT RECEIVES",
        "  2 messages",
        f"  [1] SYSTEM: {system}",
        f"  [2] USER: {user}",
    ]
    assert any("Wendelin" in line for line in lines) == with_content


async def test_nothing_of_it_is_logged_above_debug_level(
    model: Model, chats: Chats, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    async with proxying(model.url) as url:
        await chats(url).ask("Hello")
    assert '"message":"request"' in stderr.getvalue()
    assert "MEMORY STATE" not in stderr.getvalue()


async def test_the_admin_api_tells_what_a_session_stands_at(model: Model, chats: Chats, small: Small) -> None:
    url = await small(800, extra=TOOLS)
    chat = chats(url, X_Unabridged_Session="chat")
    handed = {"name": "get_weather", "arguments": {"city": "Oslo"}, "result": "Rain."}
    chat.members["unabridged"] = {"inject": {"tools": [handed]}}
    for number in range(8):
        await chat.ask(f"Question {number}: where do we go from here, and why would we? " * 4)
    told = await admin(url, "sessions/chat/state")
    session = await admin(url, "sessions/chat")
    view = (await admin(url, "sessions/chat/view"))["messages"]
    for name in ("exchanges", "summary_bytes", "llm_compressions"):
        assert told[name] == session[name]
    assert told["llm_compressions"] > 0
    assert [each["role"] for each in told["messages"]] == [each["role"] for each in view]
    assert told["lines"].startswith(f"MEMORY STATE\n  Session: chat · Exchanges: {told['exchanges']} · ")
    assert re.search(r"AGENT RECEIVES\n  \d+ messages\n  \[1\] ", told["lines"])
