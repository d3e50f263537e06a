"""Every unit of a chain, and what became of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget
from proxy.core.planning.chain import Chain
from proxy.core.planning.explain import Row, explain
from proxy.core.planning.plan import EMPTY, Gap, Plan, Replacement
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep
from tests.support.conversations import (
    Sent,
    assistant,
    budgets,
    calling,
    chain_from,
    conversations,
    count,
    result,
    session,
    system,
    user,
)


def rows(chain: Chain, plan: Plan = EMPTY, policy: Policy | None = None, tokens: int = 10_000) -> list[Row]:
    return explain(
        Situation(chain, plan, policy or Policy(keep=Keep(recent=0)), Budget(tokens, 1.0, 10), count)
    )


CHAIN = chain_from(
    [
        user("What is the weather in Bern?"),
        calling("a", "b"),
        result("a", "It rains, and it will go on to rain until the evening."),
        result("b", "8 °C"),
        assistant("Rain, 8 °C."),
        system("From now on, answer in French."),
        user("Remember the number 4711."),
        assistant("Noted."),
        user("And tomorrow?"),
    ]
)


def test_a_call_and_its_results_are_one_row() -> None:
    row = rows(CHAIN)[1]
    assert (row.start, row.end, row.roles) == (1, 4, ("assistant", "tool", "tool"))
    assert row.tokens == sum(CHAIN.tokens[1:4])


def test_protections_are_named() -> None:
    policy = Policy(keep=Keep(recent=0, pins=("4711",)))
    assert [row.protection for row in rows(CHAIN, policy=policy)] == [
        "first_user",
        "free",
        "free",
        "critical",
        "critical",
        "free",
        "fixed",
    ]


def test_the_newest_are_protected_as_recent() -> None:
    policy = Policy(keep=Keep(recent=1.0, first_user=False))
    assert [row.protection for row in rows(CHAIN, policy=policy)][:2] == ["recent", "recent"]


def test_a_cut_unit_has_its_gap_and_its_size_and_no_score() -> None:
    plan = Plan((Gap(1, 4, b"{}", 5), Gap(7, 8, b"{}", 5)))
    found = rows(CHAIN, plan)
    assert [row.gap for row in found] == [None, 0, None, None, None, 1, None]
    assert [row.state for row in found] == ["kept", "cut", "kept", "kept", "kept", "cut", "kept"]
    assert found[1].score is None
    assert found[1].protection is None
    assert found[1].tokens == sum(CHAIN.tokens[1:4])


def test_a_clipped_message_is_shown_with_its_new_size() -> None:
    plan = Plan((), (Replacement(2, b"{}", 6),))
    row = rows(CHAIN, plan)[1]
    assert row.state == "clipped"
    assert row.tokens == CHAIN.tokens[1] + 6 + CHAIN.tokens[3]


def test_what_stands_has_the_parts_of_its_score() -> None:
    first, last = rows(CHAIN)[0], rows(CHAIN)[-1]
    assert first.score is not None
    assert last.score is not None
    assert (first.score.recency, first.score.role) == (0.0, 1.0)
    assert last.score.recency == 1.0
    assert last.score.total > first.score.total


@given(data=st.data(), said=conversations)
def test_the_rows_are_the_chain_without_gaps_or_overlaps(data: st.DataObject, said: list[Sent]) -> None:
    chain, policy = chain_from(said), Policy()
    budget = data.draw(budgets(chain))
    for done in session(chain, policy, budget):
        found = explain(Situation(done.chain, done.plan, policy, budget, count))
        assert [row.start for row in found] == [0, *(row.end for row in found)][: len(found)]
        assert sum(row.end - row.start for row in found if row.state == "cut") == done.plan.cut
        assert all((row.score is None) == (row.state == "cut") == (row.gap is not None) for row in found)
