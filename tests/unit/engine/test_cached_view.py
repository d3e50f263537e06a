"""When a summary is asked for behind what was sent last, and of what that may be the summary."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Window, WindowSource
from proxy.core.budget.prices import UNKNOWN_PRICES
from proxy.core.dialects.chat.body import read_body
from proxy.core.planning.gaps import gap_with_note
from proxy.core.planning.plan import EMPTY, Anchor, Gap, Plan
from proxy.core.planning.situation import Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.core.summaries.prompt import Limit
from proxy.core.summaries.source import source_of
from proxy.engine.summaries.cached_view import CachedQuestion, CachedView
from tests.support.conversations import Sent, assistant, chain_from, count, prose, user
from tests.support.requests import a_request

SPAN, MOST, TEXT = (1, 31), Limit(150), prose("en", 50)
WORDS: list[Sent] = [
    said
    for n in range(20)
    for said in (user(f"{n}. {prose('en', 50)}"), assistant(f"{n}: {prose('en', 50)}"))
]
WARM = Conditions(idle=10.0, head_idle=10.0, prices=UNKNOWN_PRICES)


def question(
    *,
    said: list[Sent] = WORDS,
    policy: dict[str, Any] | None = None,
    conditions: Conditions = WARM,
    window: int | None = None,
    members: bytes = b"",
    plan: Plan = EMPTY,
    span: tuple[int, int] = SPAN,
    shows_cache: bool = True,
) -> CachedQuestion | None:
    """That for the summary of a gap, as it is asked at the next request."""
    chain = chain_from([*said, user("And?")])
    budget = Budget(8_000, 1.0, 0, Window(window, WindowSource.POLICY))
    stated = policy or {}
    # long enough that the cut part alone would be read whole, which is dearer
    rules = Policy.model_validate(stated | {"summary": {"max_tokens": 1_000} | stated.get("summary", {})})
    request = a_request(chain, budget, policy=rules)
    request.model.shows_cache = shows_cache
    body = read_body(request.incoming.body[:-1] + members + b"}", 100)
    request = replace(request, history=replace(request.history, body=body))
    situation = Situation(chain, plan, rules, budget, count, conditions=conditions)
    source = source_of(situation, span, 4_000)
    return CachedView(request, situation, None, 0.0).question(situation, span, source, MOST)


def test_it_is_asked_after_the_messages_of_the_request_before():
    asked = question()
    assert asked is not None
    sent = chain_from(WORDS[:-1]).raws  # all before the newest answer
    assert read_body(asked.body, 100).messages == [*sent]
    assert asked.cut_part.text.count("[user]") == asked.cut_part.text.count("[assistant]") == 15


def test_under_a_head_that_comes_back_it_is_asked_after_what_that_sent_last():
    asked = question(conditions=replace(WARM, head_sent=35))
    assert asked is not None
    assert read_body(asked.body, 100).messages == [*chain_from(WORDS[:35]).raws]


@pytest.mark.parametrize(
    "otherwise",
    [
        {"conditions": Conditions(prices=UNKNOWN_PRICES)},
        {"conditions": replace(WARM, head_idle=UNKNOWN_PRICES.ttl / 2)},
        {"conditions": replace(WARM, head_idle=None)},
        {"conditions": replace(WARM, head_sent=29)},
        {"conditions": replace(WARM, prices=None)},
        {"span": (1, 5)},
        {"span": (1, 40)},
        {"window": 2_500},
        {"shows_cache": False},
        {"policy": {"summary": {"cached_prefix": False}}},
        {"policy": {"summary": {"model": "gpt-small"}}},
        {"policy": {"summary": {"alternate": True}}},
        {"policy": {"retention": [{"match": {"role": "user"}, "class": "disposable"}]}},
        {"members": b',"response_format":{"type":"json_object"}'},
        {"members": b',"tool_choice":"required"'},
        {"members": b',"function_call":{"name":"look"}'},
    ],
    ids=lambda each: str(each)[:60],
)
def test_it_is_read_afresh(otherwise: dict[str, Any]):
    assert question(**otherwise) is None


def test_what_is_cut_already_is_told_in_the_question_and_the_rest_is_seen():
    chain = chain_from([*WORDS, user("And?")])
    plain = Situation(chain, EMPTY, Policy(), Budget(8_000, 1.0, 0), count)
    summary = "They spoke of boats."
    gap = gap_with_note(plain, (1, 9), (Anchor(1, 7, summary),), ())
    asked = question(plan=Plan((gap,)))
    assert asked is not None
    assert asked.ask.text.count("[earlier summary of 6 messages]\n" + summary) == 1
    assert chain.content(7).text in asked.ask.text
    assert chain.content(10).text not in asked.ask.text
    assert gap.note in asked.body
    assert summary in asked.cut_part.text
    for place in (7, 8, 9, 30):
        assert chain.content(place).text in asked.cut_part.text
    assert chain.content(31).text not in asked.cut_part.text


def test_what_was_cut_without_a_note_is_read_afresh():
    assert question(plan=Plan((Gap(1, 9),))) is None
