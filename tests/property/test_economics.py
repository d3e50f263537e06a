"""Rewrites are earned: whatever a conversation is like, they are bounded by its growth. Money only delays."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget, Stage
from proxy.core.budget.prices import Prices
from proxy.core.economics.economy import SummaryCalls, pays_from
from proxy.core.economics.simulate import ReplayedTurn, replay
from proxy.core.planning.chain import Chain
from proxy.core.planning.life import growth_per_epoch
from proxy.core.planning.plan import Verdict
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Importance, Keep, Stages, Summary
from tests.support.conversations import (
    Sent,
    assistant,
    budgets,
    chain_from,
    conversations,
    count,
    prose,
    rounds,
    user,
    valid_conversations,
)

POLICIES = [
    Policy(),
    Policy(stages=Stages(target=0.7), summary=Summary(max_tokens=150)),
    Policy(stages=Stages(trim=0.6, compact=0.65, warn=0.3, target=0.55)),
    Policy(keep=Keep(recent=0.0, first_user=False), importance=Importance(low=1.0)),
    Policy(keep=Keep(recent=0.9, pins=("stone",))),
]
policies = st.sampled_from(POLICIES)
rooms = st.sampled_from([500, 1_500, 3_000])
heads = st.sampled_from([0, 50, 2_000])
prices = st.builds(
    Prices,
    cached=st.sampled_from([0.02, 0.1, 0.5, 1.0]),
    written=st.sampled_from([1.0, 1.25]),
    least=st.sampled_from([0, 1_024]),
)
idles = st.sampled_from([1.0, 100_000.0])


@st.composite
def agents(draw: st.DrawFn) -> list[Sent]:
    """One order and many rounds, some with results that fill the budget alone until they are answered."""
    found: list[Sent] = [user("Build the bridge.")]
    sizes = st.sampled_from([10, 10, 40, 400, 1_500])
    results = st.builds(prose, st.just("en"), sizes)
    for _ in range(draw(st.integers(5, 40))):
        found += draw(rounds(results))
    return found


def _tokens(chain: Chain, turn: ReplayedTurn) -> int:
    return sum(chain.tokens[: turn.messages])


@given(st.one_of(agents(), conversations), rooms, policies, heads, prices, idles)
def test_below_100_percent_rewrites_are_no_more_than_growth_over_the_distance_allows(
    said: list[Sent], room: int, policy: Policy, head: int, paid: Prices, idle: float
):
    chain = chain_from(said)
    budget = Budget(room + head, 1.0, head)
    earned = growth_per_epoch(budget, policy.stages)
    turns = list(replay(chain, policy, budget, count, prices=paid, idle=idle))
    began = [turn for turn in turns if turn.began]
    optional = [turn for turn in began if turn.stage is not Stage.EMERGENCY]
    if optional:
        assert len(optional) <= 1 + _tokens(chain, optional[-1]) / earned
    for before, after in itertools.pairwise(began):
        if after.stage is not Stage.EMERGENCY:
            assert 2 * (_tokens(chain, after) - _tokens(chain, before)) >= earned


@given(st.data(), valid_conversations(), policies, prices, idles)
def test_an_epoch_at_trim_saves_more_than_it_costs_or_costs_nothing(
    data: st.DataObject, said: list[Sent], policy: Policy, paid: Prices, idle: float
):
    chain = chain_from(said)
    budget = data.draw(budgets(chain))
    for turn in replay(chain, policy, budget, count, prices=paid, idle=idle):
        if turn.account is None:
            continue
        assert turn.began == (turn.account.verdict is not Verdict.WAITS)
        assert turn.account.verdict is not Verdict.WAITS or turn.stage is Stage.TRIM
        if turn.account.verdict is Verdict.PAYS:
            assert turn.account.freed > 0


@given(st.data(), valid_conversations(), policies, prices)
def test_what_is_billed_as_cached_was_sent_before(
    data: st.DataObject, said: list[Sent], policy: Policy, paid: Prices
):
    chain = chain_from(said)
    budget = data.draw(budgets(chain))
    turns = list(replay(chain, policy, budget, count, prices=paid, idle=1.0))
    for before, after in itertools.pairwise(turns):
        for old, new in ((before.sent, after.sent), (before.full, after.full)):
            assert new.cached <= min(old.tokens, new.tokens)
            assert new.cached % paid.step == 0
        if not after.began:
            assert after.sent.cached == paid.cached_prefix(before.sent.tokens)
        assert after.full.cached == paid.cached_prefix(before.full.tokens)


@given(st.sampled_from([100, 300, 800]), st.integers(1, 30), prices)
def test_what_fits_below_trim_costs_what_the_whole_history_costs(words: int, exchanges: int, paid: Prices):
    told = [each for n in range(exchanges) for each in (user(f"And {n}?"), assistant(prose("en", words, n)))]
    chain = chain_from([*told, user("And now?")])
    budget = Budget(int(chain.tokens.total / Policy().stages.trim) + 10, 1.0, 0)
    for turn in replay(chain, Policy(), budget, count, prices=paid):
        assert turn.sent == turn.full
        assert turn.summaries == SummaryCalls()


@settings(max_examples=15)
@given(
    st.sampled_from([2_000, 4_000, 8_000]), st.sampled_from([60, 150, 300]), st.sampled_from([0.1, 0.25, 0.5])
)
def test_a_session_as_long_as_check_says_costs_no_more_than_its_whole_history(
    room: int, words: int, cached: float
):
    policy, paid = Policy(), Prices(cached=cached, least=0, step=1)
    pace = chain_from([user("And now?"), assistant(prose("en", words))]).tokens.total
    exchanges = pays_from(policy, room, paid, pace) // pace + 1
    told = [each for n in range(exchanges) for each in (user(f"And {n}?"), assistant(prose("en", words, n)))]
    turns = list(replay(chain_from(told), policy, Budget(room, 1.0, 0), count, prices=paid))
    ours = sum(turn.sent.dollars(paid) + turn.summaries.dollars(paid) for turn in turns)
    whole = sum(turn.full.dollars(paid) for turn in turns)
    assert any(turn.began for turn in turns)
    assert ours <= whole
