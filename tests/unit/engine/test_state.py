"""What a session stands at, as the log tells it."""

from __future__ import annotations

import pytest

from proxy.core.dialects.registry import CHAT
from proxy.core.tool_cache.cache import CachedResult
from proxy.engine.state import SessionSnapshot, SummaryCounts, role_texts

FRESH = CachedResult(
    key=b"k",
    tool="get_weather",
    arguments='{"city":"Oslo"}',
    text="Rain.",
    call_id="c1",
    message_hash=b"p",
    duration=3,
    remaining=2,
)
STATE = SessionSnapshot(
    id="t.aa.01",
    session="my-chat",
    exchanges=4,
    summarised=SummaryCounts(812, 1),
    functions=[FRESH],
    messages=[("system", "Be brief."), ("user", "Where\n  do I \x1b[31mlive?")],
)
HEAD = """MEMORY STATE
  Session: my-chat · Exchanges: 4 · Running summary: 812 bytes · Model compressions: 1
FUNCTION CACHE STATE
  Cached functions: 1
"""


def test_three_blocks_tell_of_the_session_its_tool_results_and_the_messages() -> None:
    assert STATE.lines(with_content=True) == (
        HEAD
        + """  • get_weather({"city":"Oslo"}): 2/3 exchanges remaining
AGENT RECEIVES
  2 messages
  [1] SYSTEM: Be brief.
  [2] USER: Where do I  [31mlive?"""
    )


def test_what_was_said_is_told_only_where_that_is_wanted() -> None:
    assert STATE.lines(with_content=False) == (
        HEAD.replace("my-chat", "t.aa.01")
        + """  • get_weather(…): 2/3 exchanges remaining
AGENT RECEIVES
  2 messages
  [1] SYSTEM: …
  [2] USER: …"""
    )


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"role":"user","content":"Hello"}', ("user", "Hello")),
        (
            b'{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"get","arguments":"{}"}}]}',
            ("assistant", "get({})"),
        ),
    ],
)
def test_a_message_is_told_by_its_text_and_its_calls(raw: bytes, expected: tuple[str, str]) -> None:
    assert role_texts([raw], CHAT) == [expected]
