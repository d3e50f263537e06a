"""The rounds of one answer: who answers, what fits, and when it is enough."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from proxy.core.dialects.chat.answer_editor import CompletionEditor
from proxy.core.dialects.registry import CHAT
from proxy.engine.tool_rounds import Answerers, Rounds
from proxy.telemetry import Metrics
from tests.support.upstreams import COUNTER, calling, completion, said


@dataclass
class Scripted:
    """Answers calls of one tool with a text, or leaves them to the client."""

    tool: str = "get_a"
    text: str | None = "fresh"
    is_own_tool: bool = False
    fails: bool = False
    rooms: list[int] = field(default_factory=list[int])
    passed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def may_answer(self, tool: str) -> bool:
        return tool == self.tool

    def observe_client_call(self, tool: str, arguments: str) -> None:
        self.passed.append((tool, arguments))

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        self.rooms.append(room)
        if self.fails:
            raise RuntimeError(f"{tool} cannot be answered")
        return self.text


def rounds(*answerers: Scripted, room: int = 1000, limit: int = 4) -> Rounds:
    return Rounds(CHAT, Answerers([*answerers]), COUNTER, Metrics(), limit, room)


async def settled(of: Rounds, message: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether the upstream goes on, and the client's answer otherwise."""
    editor = CompletionEditor(of.rules)
    editor.feed(json.dumps(completion(message)).encode())
    goes_on = await of.settle(editor)
    return goes_on, {} if goes_on else json.loads(editor.end())["choices"][0]["message"]


async def test_an_answered_call_and_its_result_stand_upstream() -> None:
    of = rounds(Scripted())
    assert (await settled(of, calling(("c1", "get_a", "{}"))))[0]
    asked, given = map(json.loads, of.sequence)
    assert asked["tool_calls"][0]["id"] == "c1"
    assert given == {"role": "tool", "tool_call_id": "c1", "content": "fresh"}
    assert of.tokens >= 8
    assert of.hits == 1


async def test_a_call_that_nobody_can_answer_is_the_clients() -> None:
    of = rounds(Scripted(text=None))
    goes_on, message = await settled(of, calling(("c1", "get_a", "{}")))
    assert not goes_on
    assert message["tool_calls"][0]["id"] == "c1"
    assert of.sequence == []


async def test_a_fault_of_an_answerer_leaves_the_call_to_the_client() -> None:
    goes_on, message = await settled(rounds(Scripted(fails=True)), calling(("c1", "get_a", "{}")))
    assert not goes_on
    assert message["tool_calls"][0]["id"] == "c1"


async def test_a_result_that_does_not_fit_is_not_served() -> None:
    goes_on, message = await settled(
        rounds(Scripted(text="long " * 200), room=100), calling(("c1", "get_a", "{}"))
    )
    assert not goes_on
    assert message["tool_calls"][0]["id"] == "c1"


async def test_a_tool_of_ours_is_told_its_room_and_says_so_where_nothing_fits() -> None:
    recall = Scripted("recall", "long " * 200, is_own_tool=True)
    of = rounds(recall, room=100)
    assert (await settled(of, calling(("c1", "recall", "{}"))))[0]
    assert 60 <= recall.rooms[0] <= 90
    assert "too large" in json.loads(of.sequence[1])["content"]
    assert of.hits == 0


RECALL_OFFERED = json.dumps(
    {
        "messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "recall"}}],
    }
).encode()


async def test_where_a_call_of_ours_fits_nowhere_the_upstream_is_asked_once_more_without_the_tool() -> None:
    of = rounds(Scripted("recall", is_own_tool=True), room=5)
    assert (await settled(of, calling(("c1", "recall", "{}"))))[0]
    assert json.loads(of.next_body(RECALL_OFFERED)) == {"messages": [{"role": "user", "content": "a"}]}
    assert not of.may_ask
    assert of.sequence == []


async def test_where_something_was_said_beside_a_call_of_ours_that_fits_nowhere_the_answer_ends() -> None:
    of = rounds(Scripted("recall", is_own_tool=True), room=5)
    goes_on, message = await settled(of, {**calling(("c1", "recall", "{}")), "content": "I do not know."})
    assert not goes_on
    assert message == said("I do not know.")
    assert of.sequence == []


async def test_a_fault_in_a_tool_of_ours_is_told_to_the_model() -> None:
    of = rounds(Scripted("recall", is_own_tool=True, fails=True))
    assert (await settled(of, calling(("c1", "recall", "{}"))))[0]
    assert json.loads(of.sequence[1])["content"] == "This cannot be answered now."


async def test_parallel_calls_share_the_room() -> None:
    of = rounds(Scripted(text="word " * 50), room=100)
    goes_on, message = await settled(of, calling(("c1", "get_a", "{}"), ("c2", "get_a", "{}")))
    assert not goes_on
    assert [call["id"] for call in message["tool_calls"]] == ["c2"]
    assert [json.loads(each)["role"] for each in of.sequence] == ["assistant", "tool"]


async def test_calls_of_the_client_in_the_same_message_are_known_before_any_is_answered() -> None:
    fresh = Scripted()
    goes_on, message = await settled(
        rounds(fresh), calling(("c1", "get_a", "{}"), ("c2", "set_a", '{"x":1}'))
    )
    assert not goes_on
    assert [call["id"] for call in message["tool_calls"]] == ["c2"]
    assert fresh.passed == [("set_a", '{"x":1}')]


async def test_past_the_limit_nothing_is_asked_and_our_tools_are_not_offered() -> None:
    of = rounds(Scripted("recall", is_own_tool=True), limit=1)
    await settled(of, calling(("c1", "recall", "{}")))
    following = json.loads(of.next_body(RECALL_OFFERED))
    assert [message["role"] for message in following["messages"]] == ["user", "assistant", "tool"]
    assert "tools" not in following
    assert not of.may_ask


async def test_the_last_message_stands_upstream_too_unless_it_says_nothing() -> None:
    of = rounds(Scripted())
    await settled(of, calling(("c1", "get_a", "{}")))
    await settled(of, said("Done."))
    assert [json.loads(each)["role"] for each in of.sequence] == ["assistant", "tool", "assistant"]
    silent = rounds(Scripted())
    await settled(silent, calling(("c1", "get_a", "{}")))
    await settled(silent, said(""))
    assert [json.loads(each)["role"] for each in silent.sequence] == ["assistant", "tool"]
