"""Laws 2 to 4 where our answers hold calls that no client has seen: valid, stable, counted as they go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.conversation.records import HiddenCalls, outgoing_slices
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.formats.splice import element_slices
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan, apply, view_tokens
from proxy.core.policy.policy import Policy
from tests.support.conversations import (
    Sent,
    budgets,
    calling,
    chain_from,
    counted,
    encode,
    oddities,
    prose,
    result,
    session,
    valid_conversations,
)

CUTS = Policy.model_validate({"extends": None, "stages": {"target": 0.4}, "economy": {"enabled": False}})


@dataclass(frozen=True)
class Case:
    chain: Chain
    """As the planner sees it: the client's messages, at the price of what goes out for them."""
    said: dict[bytes, Sequence[bytes]]
    plans: list[tuple[int, Plan]]
    """By length of the chain."""

    def view(self, length: int, plan: Plan) -> list[bytes]:
        chain = self.chain.prefix(length)
        hidden = {place: each for place, each in chain.hidden.items() if place < length}
        return apply(plan, outgoing_slices(chain.raws, hidden))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    messages = draw(valid_conversations())
    chain = chain_from(messages)
    said: dict[bytes, Sequence[bytes]] = {}
    hidden: dict[int, HiddenCalls] = {}
    for place, raw in enumerate(chain.raws):
        if chain.messages[place].role == "assistant" and draw(st.booleans()):
            several = _hidden(draw, raw)
            said[chain.hashes[place]] = several
            tokens = sum(map(counted, several))
            hidden[place] = HiddenCalls(
                hash=chain.hashes[place], messages=tuple(several), tokens=tokens, at=1.0
            )
    chain = chain.with_hidden(hidden)
    budget = draw(budgets(chain))
    return Case(chain, said, [(len(done.chain), done.plan) for done in session(chain, CUTS, budget)])


def _hidden(draw: st.DrawFn, raw: bytes) -> list[bytes]:
    """What may stand for an answer: calls with their results before it, or beside its own calls."""
    content = Content.of(raw)
    ours = ["h1", "h2"][: draw(st.integers(1, 2))]
    results = [encode(result(call, prose("en", draw(st.integers(0, 60))))) for call in ours]
    own = [call for call, _, _ in content.calls]
    if own:
        return [encode(calling(*ours, *own, content=content.members.get("content"))), *results]
    asked: Sent = calling(*ours)
    return [encode(asked), *results, raw]


@given(cases())
def test_no_call_is_parted_from_its_results(case: Case) -> None:
    for length, plan in case.plans:
        plain = apply(plan, case.chain.prefix(length).raws)
        view = case.view(length, plan)
        assert sum(oddities(_singles(view)).values()) == sum(oddities(plain).values())
        assert [raw for raw in CHAT.alternating(view, plan.note_places) if raw in _slices(case)] == [
            raw for raw in view if raw in _slices(case)
        ]


def _singles(view: list[bytes]) -> list[bytes]:
    return element_slices(b"[%b]" % b",".join(view))


def _slices(case: Case) -> set[bytes]:
    return {b",".join(messages) for messages in case.said.values()}


@given(cases())
def test_a_view_costs_what_it_is_reckoned_at(case: Case) -> None:
    for length, plan in case.plans:
        view = _singles(case.view(length, plan))
        assert sum(map(counted, view)) == view_tokens(plan, case.chain.prefix(length).tokens)


@given(cases())
def test_while_a_plan_stands_a_view_begins_with_the_one_before(case: Case) -> None:
    for (shorter, before), (longer, plan) in zip(case.plans, case.plans[1:], strict=False):
        if plan == before:
            assert case.view(longer, plan)[: len(case.view(shorter, plan))] == case.view(shorter, plan)


@given(cases())
def test_without_a_plan_only_these_answers_differ_from_what_the_client_sent(case: Case) -> None:
    chain = case.chain
    view = case.view(len(chain), EMPTY)
    differ = {chain.hashes[at] for at, raw in enumerate(chain.raws) if view[at] != raw}
    assert differ == case.said.keys()


@given(cases())
def test_near_a_ceiling_in_bytes_what_goes_out_is_weighed(case: Case) -> None:
    chain = case.chain
    weighed = chain.with_estimated_tokens(EMPTY)
    sizes = [
        sum(map(len, case.said.get(own, (raw,)))) for own, raw in zip(chain.hashes, chain.raws, strict=True)
    ]
    assert 0 <= weighed.tokens.total - chain.tokens.total <= len(chain)
    by_bytes = sorted(range(len(chain)), key=sizes.__getitem__)
    assert [weighed.tokens[place] for place in by_bytes] == sorted(weighed.tokens)
