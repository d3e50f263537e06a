"""Any sequence of roles, known or not, missing or of an odd type, is planned: laws 2 and 4."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget
from proxy.core.conversation.units import units_of
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions
from proxy.core.planning.strategies import STRATEGIES
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Stages, Strategy
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    count,
    from_scratch,
    is_bounded,
    session,
    texts,
)

KNOWN = ("user", "assistant", "tool", "function", "system", "developer")
UNKNOWN_ROLES = ("narrator", "", "User", None, 7, True, ["user"], {"role": "user"})
MISSING = object()
CALLS: list[Any] = [
    None,
    7,
    {},
    [],
    [7],
    [{}],
    [{"id": 5}],
    [{"id": "a", "function": {"name": "look", "arguments": "{}"}}],
]
CONTENTS: list[Any] = [None, 7, [7], {}]
OFTEN: tuple[Any, ...] = (*KNOWN, *KNOWN, *UNKNOWN_ROLES, MISSING)


@st.composite
def odd_messages(draw: st.DrawFn) -> Sent:
    """One message of whichever role."""
    role, content = draw(st.sampled_from(OFTEN)), draw(st.one_of(texts, st.sampled_from(CONTENTS)))
    message: Sent = {"content": content} if role is MISSING else {"role": role, "content": content}
    if draw(st.integers(0, 3)) == 0:
        message[draw(st.sampled_from(["tool_calls", "function_call"]))] = draw(st.sampled_from(CALLS))
    if role in ("tool", 7):
        message["tool_call_id"] = draw(st.sampled_from(["a", "b", 5, None]))
    return message


def policies_of(name: str) -> list[Policy]:
    """A strategy that acts soon, and one that protects nothing."""
    soon = Strategy(name=name, last=4, exchanges=2, roll_to=1)
    return [Policy(strategy=soon), Policy(strategy=soon, keep=Keep(recent=0.0, first_user=False))]


policies = st.sampled_from(
    [
        Policy(stages=Stages(max_units=2)),
        *(policy for name in STRATEGIES if name != "off" for policy in policies_of(name)),
    ]
)
conversations = st.lists(odd_messages(), min_size=1, max_size=30)


def holds_whole_units(chain: Chain, plan: Plan) -> bool:
    """Whether no call was parted from its results."""
    return all(
        len({plan.covers(place) for place in range(unit.start, unit.end)}) == 1
        for unit in units_of(chain.messages)
    )


def roles(*named: str) -> list[Sent]:
    """A conversation by role alone."""
    return [{"role": role, "content": f"said {number}"} for number, role in enumerate(named)]


EXCHANGES = Policy(strategy=Strategy(name="exchanges", exchanges=2, roll_to=1))


@given(conversations, policies, st.data(), st.sampled_from([UNKNOWN_CONDITIONS, Conditions(boundary=True)]))
def test_any_sequence_of_roles_is_planned(
    messages: list[Sent], policy: Policy, data: st.DataObject, conditions: Conditions
) -> None:
    chain = chain_from(messages)
    assume(len(chain) > 0)
    budget = data.draw(budgets(chain))
    plan, _ = from_scratch(chain, policy, budget, count, conditions)
    assert holds_whole_units(chain, plan)
    assert is_bounded(chain, plan, policy, budget)
    for done in session(chain, policy, budget):
        assert holds_whole_units(done.chain, done.plan)
        assert is_bounded(done.chain, done.plan, policy, budget)


def test_exchanges_roll_where_no_assistant_ever_speaks() -> None:
    chain = chain_from(roles(*(["user", "narrator"] * 6)))
    plan, epochs = from_scratch(chain, EXCHANGES, Budget(10_000, 1.0, 0), count)
    assert epochs == 1
    assert [(gap.start, gap.end) for gap in plan.gaps] == [(0, 10)]
