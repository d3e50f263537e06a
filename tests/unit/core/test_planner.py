"""The planner on conversations that can be followed by eye: when an epoch begins, and that the view fits."""

from __future__ import annotations

from itertools import pairwise

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.units import request_points
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import EMPTY, apply, view_tokens
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Stages, Strategy, Summary
from tests.support.conversations import (
    Sent,
    assistant,
    calling,
    chain_from,
    count,
    from_scratch,
    oddities,
    result,
    session,
    system,
    turn,
    user,
)
from tests.support.planned import BALANCED, agent, at, talk, text


@pytest.mark.parametrize("usage", [0.1, 0.59, 0.7, 0.79])
def test_below_trim_nothing_is_cut(usage: float):
    assert at(usage, talk(20)).plan == EMPTY


@pytest.mark.parametrize("usage", [0.85, 0.95, 1.2, 3.0])
def test_from_trim_on_an_epoch_takes_the_view_to_the_goal(usage: float):
    done = at(usage, talk(30))
    assert done.begun is not None
    budget = done.begun.situation.budget
    assert done.tokens <= budget.share(0.7)
    assert not done.begun.yielded


def test_a_conversation_goes_through_every_stage():
    chain, budget = chain_from(talk(40)), Budget(2500, 1.0, 0)
    stages: list[Stage] = []
    for length in range(1, len(chain) + 1, 2):
        done = turn(chain.prefix(length), EMPTY, BALANCED, budget)
        stages.append(done.stage)
    assert list(dict.fromkeys(stages)) == [
        Stage.CALM,
        Stage.WARN,
        Stage.TRIM,
        Stage.COMPACT,
        Stage.EMERGENCY,
    ]


@pytest.mark.parametrize("head", [0, 1_000])
@pytest.mark.parametrize("summary", [None, "They built a bridge. " * 8])
@pytest.mark.parametrize(
    ("tokens", "trim", "compact", "target"),
    [(8_000, 0.8, 0.9, 0.7), (6_000, 0.6, 0.75, 0.5), (12_000, 0.9, 0.95, 0.8), (20_000, 0.8, 0.9, 0.5)],
    ids=["balanced", "conservative", "aggressive", "default"],
)
@pytest.mark.parametrize("messages", [talk(400), agent(300)], ids=["chat", "agent"])
def test_an_epoch_begins_at_trim_and_ends_within_five_points_of_its_goal(
    messages: list[Sent],
    tokens: int,
    trim: float,
    compact: float,
    target: float,
    summary: str | None,
    head: int,
):
    stages = Stages(warn=0.4, trim=trim, compact=compact, target=target)
    policy = Policy(stages=stages, summary=Summary(max_tokens=150))
    budget = Budget(tokens, 1.0, head)
    goal = head + target * (tokens - head)
    least = goal + 0.1 * (tokens - head)  # an epoch frees a tenth of the room
    begun = [each for each in session(chain_from(messages), policy, budget, summary) if each.begun]
    assert len(begun) >= 2
    for each in begun:
        before = head + view_tokens(each.before, each.chain.tokens)
        assert trim * tokens <= before <= max(trim * tokens, least) + 0.05 * tokens
        assert abs(head + each.tokens - goal) <= 0.05 * tokens


@pytest.mark.parametrize("asked", [40, 60, 80])
@pytest.mark.parametrize(
    ("trim", "compact", "target"),
    [(0.8, 0.9, 0.7), (0.6, 0.75, 0.5), (0.9, 0.95, 0.8), (0.8999, 0.9, 0.5)],
    ids=["balanced", "conservative", "aggressive", "at compact, where room is kept for a summary"],
)
def test_so_it_does_where_requests_are_long_and_are_quoted_and_little_is_exact(
    trim: float, compact: float, target: float, asked: int
):
    said = [each for n in range(100) for each in (user(text(n, asked)), assistant(text(n, 60)))]
    stages = Stages(warn=0.4, trim=trim, compact=compact, target=target)
    policy, budget = Policy(stages=stages), Budget(4_000, 1.0, 0)
    lived = session(chain_from([*said, user("and now?")]), policy, budget, "They built a bridge.")
    begun = [each for each in lived if each.begun]
    assert len(begun) >= 5
    for each in begun:
        assert abs(each.tokens - target * 4_000) <= 0.05 * 4_000


def test_after_an_epoch_a_session_is_calm_again_and_fills_up_anew():
    chain, budget = chain_from(talk(60)), Budget(2500, 1.0, 0)
    begun = [done for done in session(chain, BALANCED, budget) if done.begun is not None]
    assert len(begun) >= 2
    assert all(done.stage in (Stage.TRIM, Stage.COMPACT) for done in begun)
    assert all(done.tokens < 0.8 * 2500 for done in begun)


@pytest.mark.parametrize("policy", [Policy(), BALANCED])
def test_a_session_of_300_turns_keeps_fitting_and_is_seldom_rewritten(policy: Policy):
    chain, budget = chain_from(talk(300)), Budget(6000, 1.0, 200)
    done = list(session(chain, policy, budget))
    assert len(done) == 301
    assert all(budget.head + each.tokens <= budget.limit for each in done)
    epochs = sum(each.begun is not None for each in done)
    between = (policy.stages.trim - policy.stages.target) * budget.room
    assert 3 <= epochs <= sum(chain.tokens) / between + 1


def test_an_agent_of_300_rounds_keeps_fitting_with_one_user_message():
    chain, budget = chain_from(agent(300)), Budget(6000, 1.0, 200)
    done = list(session(chain, Policy(), budget))
    assert all(budget.head + each.tokens <= budget.limit for each in done)
    assert all(not oddities(each.view) for each in done)
    assert all(each.view[0] == chain.raws[0] for each in done)
    assert 3 <= sum(each.begun is not None for each in done) <= 60


def test_mixed_patterns_keep_fitting():
    messages = [
        *talk(10)[:-1],
        *agent(15),
        assistant("Done."),
        system("Answer briefly."),
        *talk(10, language="ja")[:-1],
        user([{"type": "text", "text": text(7)}, {"type": "image_url", "image_url": {"url": "u"}}]),
        assistant(text(3, 200)),
        *agent(10, words=200),
    ]
    budget = Budget(4000, 1.25, 100)
    for each in session(chain_from(messages), Policy(), budget):
        assert budget.head + each.tokens <= budget.limit
        assert not oddities(each.view)


def test_of_a_chain_of_errors_the_newest_are_kept():
    messages = [user("Build the bridge.")]
    for n in range(40):
        messages += [calling(f"c{n}"), result(f"c{n}", f"error {text(n, 40)}"), *talk(1)[1:2]]
        messages += [user(f"try again {n}")]
    done = at(0.95, messages)
    kept = [Content.of(raw).text for raw in done.view]
    assert any(each.startswith("error 39 ") for each in kept)
    results = [each for each in kept if each.startswith("error")]
    chat = [each for each in kept if each.startswith("0 ")]
    assert len(results) > len(chat)


# --- without stored epochs


def test_a_chain_that_never_was_full_is_planned_from_scratch_without_an_epoch():
    assert from_scratch(chain_from(talk(5)), BALANCED, Budget(100_000, 1.0, 0), count) == (EMPTY, 0)


def test_a_first_request_far_over_the_budget_is_cut_until_it_fits():
    chain, budget = chain_from(talk(200)), Budget(3000, 1.0, 100)
    plan, epochs = from_scratch(chain, BALANCED, budget, count)
    assert view_tokens(plan, chain.tokens) <= budget.room
    assert epochs > 3
    assert apply(plan, chain.raws)[-1] == chain.raws[-1]


def test_a_plan_from_scratch_is_what_the_requests_themselves_would_have_come_to_at_compact():
    chain, budget = chain_from(talk(80)), Budget(3000, 1.0, 100)
    policy = BALANCED.model_copy(update={"stages": Stages(trim=0.899999, target=0.7)})
    lived = list(session(chain, policy, budget))[-1]
    plan, epochs = from_scratch(chain, policy, budget, count)
    assert epochs == 8  # of as many it writes every ledger
    assert plan == lived.plan


def test_the_view_of_a_very_long_past_changes_only_at_epochs_and_every_32_budgets():
    chain, budget, span = chain_from(talk(1_000)), Budget(1500, 1.0, 0), 32 * 1500
    seen: dict[tuple[int, int], list[bytes]] = {}
    requests = [chain.prefix(length) for length in request_points(chain.messages)]
    for prefix in (each for each in requests if abs(each.tokens.total - 2 * span) < 1500):
        plan, epochs = from_scratch(prefix, BALANCED, budget, count)
        view = apply(plan, prefix.raws)
        before = seen.setdefault((prefix.tokens.total // span, epochs), view)
        assert view[: len(before)] == before  # the epoch is the same, so only what is new is added
    assert {past for past, _ in seen} == {1, 2}
    assert len(seen) < 16


@pytest.mark.parametrize("strategy", ["importance", "exchanges"])
@pytest.mark.parametrize("exchanges", [14, 16, 20, 26])
def test_a_cut_that_a_late_result_undoes_stays_undone_in_later_plans_from_scratch(
    exchanges: int, strategy: str
):
    messages = [user("Start the build."), calling("a"), *talk(exchanges), result("a", "built")]
    messages += [assistant("It is built."), *talk(4)]
    chain, budget = chain_from(messages), Budget(1500 if strategy == "importance" else 100_000, 1.0, 0)
    policy = BALANCED.model_copy(update={"strategy": Strategy(name=strategy, exchanges=12)})
    planned = [
        (prefix, *from_scratch(prefix, policy, budget, count))
        for prefix in map(chain.prefix, request_points(chain.messages))
    ]
    assert any(plan.gaps for _, plan, _ in planned)
    assert all(prefix.keeps_open_part(plan) for prefix, plan, _ in planned)
    assert all(later[2] - earlier[2] in (0, 1) for earlier, later in pairwise(planned))


def test_emergency_without_anything_to_cut_changes_nothing():
    chain = chain_from([user(text(1, 900))])
    done = turn(chain, EMPTY, Policy(), Budget(100, 1.0, 0))
    assert (done.stage, done.plan) == (Stage.EMERGENCY, EMPTY)


def test_an_empty_chain_is_planned_as_it_is():
    chain = chain_from([system("only a head")])
    assert from_scratch(chain, Policy(), Budget(10, 1.0, 50), count)[0] == EMPTY
