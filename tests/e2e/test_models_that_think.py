"""Summaries by models that think before they answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from tests.support.clients import Chats, Small, question, told
from tests.support.servers import Exchange, eventually
from tests.support.summaries import BUDGET, notes, until_cut
from tests.support.upstreams import Message, Model, completion, count_tokens, said

SUMMARY = "All items were sent."
THOUGHTS = {
    "in tags": "<think>\nThe user asks for items. All went well.\n</think>\n\n",
    "in other tags": "<reasoning>The user asks for items.</reasoning>",
    "with the closing tag alone": "The user asks for items.\n</think>\n\n",
    "of what nobody said": "<think>\nIs it about order 99887766? No.\n</think>\n\n",
}


@pytest.mark.parametrize("thought", THOUGHTS.values(), ids=THOUGHTS)
@pytest.mark.parametrize("form", ["{}", '{{"summary": "{}"}}'], ids=["text", "JSON"])
async def test_what_a_model_thought_before_its_summary_is_no_part_of_it(
    model: Model, chats: Chats, small: Small, thought: str, form: str
) -> None:
    model.summary = said(thought + form.format(SUMMARY))
    await until_cut(chats(await small(BUDGET)), model)
    assert f"earlier messages: {SUMMARY}\n" in notes(model.views()[-1])
    asked = [bytes(call.body) for call in model.summaries]
    assert len(asked) == len(set(asked))


async def test_a_thought_without_an_end_is_no_summary(model: Model, chats: Chats, small: Small) -> None:
    model.summary = said("<think>\nThe user asks for items. All went well.")
    response = await until_cut(chats(await small(BUDGET)), model)
    assert told(response, "summary") == "failed"
    assert "messages removed]" in notes(model.views()[-1])


# --- thoughts that count towards the limit of the answer ---

CUT: dict[str, Message] = {
    "and nothing is shown": said(""),
    "in a member": {**said(""), "content": None, "reasoning_content": "The user asks"},
    "beside half an answer": {**said("All items"), "reasoning": "The user asks for items."},
    "in tags": said("<think>\nThe user asks"),
    "and are counted": said("All items"),
}


@dataclass
class Thinker:
    """A model that thinks for so many tokens before its summary; with fewer it only has the ``cut`` one."""

    cut: Message
    tokens: float = 1_500
    window: int = 1_000_000
    limits: list[int] = field(default_factory=list[int])
    """The most tokens of each answer that was asked for."""
    refused: int = 0

    async def summarise(self, exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        most = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
        self.limits.append(most)
        if count_tokens(body) + most > self.window:
            self.refused += 1
            await exchange.answer_json({"error": {"message": "max_tokens is too large"}}, 400)
            return
        is_whole = most > self.tokens + 50
        answer = completion(said(SUMMARY) if is_whole else self.cut, finish="stop" if is_whole else "length")
        if self.cut == CUT["and are counted"]:
            answer["usage"]["completion_tokens_details"] = {"reasoning_tokens": min(most, 64)}
        await exchange.answer_json(answer)


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
async def test_a_model_whose_thoughts_take_up_its_summary_gets_room_for_both_from_then_on(
    model: Model, chats: Chats, small: Small, cut: Message
) -> None:
    thinker = Thinker(cut)
    model.summary = thinker.summarise
    chat = chats(await small(BUDGET))
    await until_cut(chat, model)
    assert SUMMARY in notes(model.views()[-1])
    for number in range(10):
        await chat.ask(question(number, "letter"))
    await eventually(lambda: len(thinker.limits) > 2)
    first, *later = thinker.limits
    assert first < 200
    assert min(later) > 8_000


async def test_the_room_for_thoughts_is_not_more_than_the_window_has(
    model: Model, chats: Chats, small: Small
) -> None:
    thinker = Thinker(CUT["and nothing is shown"], window=4_000)
    model.summary = thinker.summarise
    url = await small(BUDGET, extra='[budget.windows]\n"gpt-test" = 4000\n')
    await until_cut(chats(url), model)
    assert SUMMARY in notes(model.views()[-1])
    assert thinker.refused == 0


@pytest.mark.parametrize(
    ("thinker", "times"),
    [
        (Thinker(CUT["and nothing is shown"], tokens=1e9), 1),
        (Thinker(CUT["and nothing is shown"], window=4_000), 2),  # once more without the temperature
        (Thinker(said("All items were sent. They"), tokens=1e9), 0),
    ],
    ids=["in vain", "refused", "no thought"],
)
async def test_room_for_thoughts_that_is_of_no_help_is_not_given_again(
    model: Model, chats: Chats, small: Small, thinker: Thinker, times: int
) -> None:
    model.summary = thinker.summarise
    chat = chats(await small(BUDGET))
    assert told(await until_cut(chat, model), "summary") == "failed"
    for number in range(10):
        await chat.ask(question(number, "letter"))
    await eventually(lambda: len(thinker.limits) > 5)
    assert [most > 8_000 for most in thinker.limits].count(True) == times
