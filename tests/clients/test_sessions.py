"""Real clients on chat completions, told nothing but a base URL: a conversation that outgrows its budget.

Each is a program that somebody could have written, in a process of its own. What is asserted is seen from
outside: by the client, by the upstream, and by whoever reads the admin API.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import BUDGET, PROGRAMS, Program, converse, here
from tests.clients.python.dialogue import Dialogue, Turn, look_up
from tests.clients.serving import sessions, transcript
from tests.support.upstreams import JSON, Message, Model, calling, count_tokens, plainly, said

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = ("harbour", "lantern", "orchard", "saddle", "meadow", "anchor", "thimble")


@dataclass(frozen=True)
class Passage:
    """What the user says, which words the model looks up about it, and its answer."""

    text: str
    words: tuple[str, ...]
    answer: str
    stream: bool

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        return [(f"call_{word}", "look_up", json.dumps({"word": word})) for word in self.words]

    @property
    def messages(self) -> list[Message]:
        """The passage as it should stand in the transcript."""
        asked = [calling(*self.calls)] if self.calls else []
        results = [
            {"role": "tool", "tool_call_id": f"call_{word}", "content": look_up(word)} for word in self.words
        ]
        return [{"role": "user", "content": self.text}, *asked, *results, said(self.answer)]


def passages(count: int, *, tools: bool) -> list[Passage]:
    """A conversation, every other turn streamed; words are looked up from its first turn on."""
    looked_up = {0: WORDS[:2], 3: WORDS[2:3], 4: WORDS[3:4], 6: WORDS[4:6], 9: WORDS[6:]} if tools else {}
    return [
        Passage(
            text=f"Question {place}: what shall we write about word number {place}? "
            + "Take your time. " * 8,
            words=looked_up.get(place, ()),
            answer=f"Answer {place}: “so it is”, 🐘 and\nnothing else. "
            + f"Word {place} is a good one. " * 8,
            stream=place % 2 == 1,
        )
        for place in range(count)
    ]


def script(model: Model, conversation: Sequence[Passage]) -> None:
    for passage in conversation:
        if passage.calls:
            model.replies.append(calling(*passage.calls))
        model.replies.append(said(passage.answer))


def dialogue(program: Program, url: str, conversation: Sequence[Passage], **headers: str) -> Dialogue:
    turns = [Turn(passage.text, passage.stream) for passage in conversation]
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Dialogue(f"{url}/v1", f"sk-{program.name}", f"scripted-{program.name}", named, turns)


def plain(message: Message) -> tuple[Any, ...]:
    """A message without what SDKs may change when they send it back."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    calls = [
        (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    return message["role"], text, calls, message.get("tool_call_id")


def transcript_of(conversation: Sequence[Passage]) -> list[tuple[Any, ...]]:
    """What should be in the store, and nothing else."""
    return [plain(message) for passage in conversation for message in passage.messages]


async def kept(url: str, session: str, length: int) -> list[tuple[Any, ...]]:
    """What is in the store, once it is this long."""
    return [plain(message) for message in await transcript(url, session, length)]


def only_new(before: Collection[str], after: Collection[str]) -> str:
    new = [session for session in after if session not in before]
    assert len(new) == 1
    return new[0]


PATIENT = [program for program in PROGRAMS if program.name in {"openai_async", "npm-openai", "npm-ai_sdk"}]
"""Each way in which clients repeat what failed; the others use the first."""

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)


@programs
async def test_a_conversation_that_outgrows_its_budget_is_one_session(
    program: Program, model: Model, proxy: str, home: Path
) -> None:
    conversation = passages(10, tools=here(program).tools)
    script(model, conversation)
    before = await sessions(proxy)
    told = await converse(program, dialogue(program, proxy, conversation), home)

    # The client has the upstream's answers.
    assert [each["answer"] for each in told] == [passage.answer for passage in conversation]

    # The upstream got each request once, valid and within the budget.
    asked = [passage.stream for passage in conversation for _ in range(1 + bool(passage.calls))]
    assert [body.get("stream") is True for body in model.bodies()] == asked
    assert (model.refused, model.invalid) == (0, [])
    assert max(map(count_tokens, model.bodies())) <= BUDGET

    # The store has one session: all of it, in order, each turn once, calls with their results.
    session = only_new(before, await sessions(proxy))
    whole = transcript_of(conversation)
    assert await kept(proxy, session, len(whole)) == whole
    told_of = (await sessions(proxy))[session]
    assert told_of["exchanges"] == len(conversation)
    assert told_of["prune_count"] >= 1
    assert len(model.views()[-1]) < len(whole) - 1


@programs
async def test_a_header_that_the_client_sets_names_the_session(
    program: Program, model: Model, proxy: str, home: Path
) -> None:
    conversation = passages(2, tools=False)
    script(model, conversation)
    name = f"chat-of-{here(program).name}"
    told = await converse(program, dialogue(program, proxy, conversation, X_Session_Id=name), home)
    assert [each["answer"] for each in told] == [passage.answer for passage in conversation]
    (session,) = [id_ for id_, session in (await sessions(proxy)).items() if session["name"] == name]
    whole = transcript_of(conversation)
    assert await kept(proxy, session, len(whole)) == whole


@pytest.mark.parametrize("program", PATIENT, ids=lambda program: program.name)
async def test_a_request_that_the_client_repeats_by_itself_is_one_turn(
    program: Program, model: Model, proxy: str, home: Path
) -> None:
    conversation = passages(2, tools=False)
    for passage in conversation:
        model.replies.append(plainly(503, [JSON, (b"Retry-After-Ms", b"10")], b'{"error": {}}'))
        script(model, [passage])
    before = await sessions(proxy)
    told = await converse(here(program), dialogue(program, proxy, conversation), home)
    assert [each["answer"] for each in told] == [passage.answer for passage in conversation]
    assert len(model.chats) == 2 * len(conversation)
    session = only_new(before, await sessions(proxy))
    whole = transcript_of(conversation)
    assert await kept(proxy, session, len(whole)) == whole


async def test_raw_responses_tell_the_session_and_its_epoch(model: Model, proxy: str, home: Path) -> None:
    (raw,) = [program for program in PROGRAMS if program.name == "openai_raw"]
    conversation = passages(10, tools=here(raw).tools)
    script(model, conversation)
    told = await converse(raw, dialogue(raw, proxy, conversation, X_Session_Id="raw"), home)
    assert {each["session"] for each in told} == {"raw"}
    epochs = [int(each["epoch"]) for each in told]
    assert epochs == sorted(epochs)
    assert epochs[0] == 0
    assert epochs[-1] >= 1
