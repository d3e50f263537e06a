"""What each table of a policy comes to in a conversation."""

from __future__ import annotations

import tomllib

import pytest

from proxy.adapters.files.policies import PolicyLibrary
from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import UNKNOWN_PRICES
from proxy.core.economics.consequences import effects
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from tests.support.conversations import assistant, calling, chain_from, count, result, user

TALK = [
    user("What is the weather in Bern? Never answer in French."),
    calling("a"),
    result("a", "It rains, and it will go on to rain until the evening. " * 5),
    assistant("Rain."),
    user("Some small talk."),
    assistant("Indeed."),
    user("And tomorrow?"),
]


def told(text: str = "", tokens: int | None = 200, policy: Policy | None = None) -> dict[str, str]:
    """The effects of a policy on the conversation, by table."""
    chain = chain_from(TALK)
    budget = Budget(tokens, 1.0, 10, chain_tokens=chain.tokens.total)
    policy = policy or Policy.model_validate(tomllib.loads(text))
    return dict(effects(Situation(chain, EMPTY, policy, budget, count), UNKNOWN_PRICES))


@pytest.mark.parametrize("name", PolicyLibrary().names())
def test_every_preset_has_effects(name: str) -> None:
    assert told(policy=PolicyLibrary().load(name))["strategy"]


def test_what_a_rule_or_a_pattern_touches_is_counted() -> None:
    found = told(
        '[[retention]]\nmatch = {content = "small talk"}\nclass = "disposable"\n'
        '[keep]\nrecent = 0\npins = ["Indeed"]\n'
    )
    assert found["retention"] == "messages by class: 6 compressible, 1 disposable"
    assert found["keep"].startswith(
        "protects 1 as the first request, 1 as critical or by a pattern in pins, 1 because they are not"
    )


def test_results_and_how_they_go_are_told() -> None:
    assert "1 result with" in told()["tool_results"]
    assert told()["tool_results"].endswith("they are cleared before messages are cut")
    assert told("tool_results.clear_first = false")["tool_results"].endswith("scored like all else")
    assert "tools" not in told()
    cached = told('[[tools]]\nmatch = "*"\ncache_exchanges = 5\npure = true\n')
    assert cached["tools"] == "1 result fresh at its end"


def test_without_a_budget_no_stage_is_reached() -> None:
    found = told(tokens=None)
    assert found["budget"].startswith("none: nobody knows the window")
    assert found["stages"] == "none is reached without a budget"


def test_rules_that_bind_are_counted_for_the_ledger() -> None:
    assert told()["ledger"].startswith("1 rule in force now")
    assert told("ledger.constraints = false\nledger.identifiers = false")["ledger"] == "none"


def test_what_stands_beside_cuts_is_told_where_it_is_on() -> None:
    assert not {"recall", "memory", "proof"} & told().keys()
    found = told("recall.enabled = true\nmemory.enabled = true\nproof.share = 0.02\n")
    assert found["proof"] == "2% of the answers to cut views are asked for again, for $1.00 a day at most"
    assert {"recall", "memory"} <= found.keys()
