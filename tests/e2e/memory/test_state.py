"""At debug level each request is followed by what its session stands at, as the admin API tells it too."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from proxy.core.text.cutting import one_line
from tests.support.canaries import logged
from tests.support.clients import Chats, Small, admin, proxying, write_policy
from tests.support.upstreams import Model, said

TOOLS = """
[[tools]]
match = "get_*"
cache_exchanges = 3
"""


def states(lines: list[str]) -> list[str]:
    return [json.loads(line)["state"] for line in lines if '"memory state"' in line]


OSLO = '{"city":"Oslo"}'
HANDED = {"name": "get_weather", "arguments": {"city": "Oslo"}, "result": "Rain."}


@pytest.mark.parametrize("with_content", [False, True])
async def test_three_blocks_follow_each_request(
    model: Model, chats: Chats, tmp_path: Path, with_content: bool
) -> None:
    policy = str(write_policy(tmp_path, "caching", f'extends = "default"\n{TOOLS}'))
    async with proxying(model.url, policy=policy, log_level="debug", log_content=with_content) as url:
        with logged() as lines:
            chat = chats(url, X_Unabridged_Session="my-chat")
            chat.members["unabridged"] = {"inject": {"tools": [HANDED]}}
            chat.messages.append({"role": "system", "content": "Be brief."})
            model.replies += [said("By the harbour."), said("Now.")]
            await chat.ask("Where is Wendelin?")
            await chat.ask("And\nnow?")
        (session,) = (await admin(url, "sessions"))["sessions"]
        told = await admin(url, f"sessions/{session['id']}/state")
    _, state = states(lines)
    name = "my-chat" if with_content else session["id"]

    def shown(text: str) -> str:
        return text if with_content else "…"

    assert state.splitlines() == [
        "MEMORY STATE",
        f"  Session: {name} · Exchanges: 1 · Running summary: 0 bytes · Model compressions: 0",
        "FUNCTION CACHE STATE",
        "  Cached functions: 1",
        f"  • get_weather({shown(OSLO)}): 2/3 exchanges remaining",
        "AGENT RECEIVES",
        "  7 messages",
        f"  [1] SYSTEM: {shown('Be brief.')}",
        f"  [2] USER: {shown(one_line(told['messages'][1]['text'], 200))}",
        f"  [3] ASSISTANT: {shown(f'get_weather({OSLO})')}",
        f"  [4] TOOL: {shown('Rain.')}",
        f"  [5] USER: {shown('Where is Wendelin?')}",
        f"  [6] ASSISTANT: {shown('By the harbour.')}",
        f"  [7] USER: {shown('And now?')}",
    ]
    assert any("Wendelin" in line for line in lines) == with_content
    # The admin API tells the same, as of now: with the answer, and an exchange later.
    assert told["functions"] == [
        {"name": "get_weather", "arguments": OSLO, "remaining_exchanges": 1, "cache_exchanges": 3}
    ]
    assert [each["text"] for each in told["messages"]][2:] == [
        *(f"get_weather({OSLO})", "Rain.", "Where is Wendelin?", "By the harbour.", "And\nnow?", "Now.")
    ]
    if with_content:
        later = (
            state.replace("Exchanges: 1", "Exchanges: 2").replace("2/3", "1/3").replace("7 mess", "8 mess")
        )
        assert told["lines"] == f"{later}\n  [8] ASSISTANT: Now."


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
