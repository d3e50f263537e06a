"""Summaries by models that think before they answer."""

from __future__ import annotations

import pytest

from tests.support.clients import Chats, Small, told
from tests.support.summaries import BUDGET, notes, until_cut
from tests.support.upstreams import Model, said

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
