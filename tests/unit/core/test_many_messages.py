"""A conversation of very many messages is planned with work that grows as it does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from cProfile import Profile
from functools import partial

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.messages import chain_hashes, read_message, root_hash
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.reading import ReadingCache, Sentence
from proxy.core.extraction.subjects import subject_of
from proxy.core.persistent import PersistentList, Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Stages, Strategy
from tests.bench.messages import KINDS, conversation, work
from tests.support.conversations import (
    Sent,
    calling,
    chain_from,
    count,
    encode,
    from_scratch,
    result,
    user,
)
from tests.support.planned import at, talk
from tests.support.timing import growth

FEW, MANY = 1_500, 4_500
"""Of fewer, some kinds leave nothing exact for a ledger, and the step to the first is no growth."""
SLACK = 1.5
"""By how much more work may grow than what it is done for, as ledgers are written again."""
POLICIES = {
    name: Policy(strategy=Strategy(name=name, summary_max=400, summary_to=300))
    for name in ("importance", "topic", "session", "exchanges", "sliding_window", "off")
} | {"by count": Policy(stages=Stages(max_units=20))}


longer = partial(pytest.param, marks=pytest.mark.soak)


def long_chain(kind: str, length: int) -> Chain:
    """As the engine holds one: no copy is made of what it begins with."""
    chain = chain_from(conversation(kind, length))
    return Chain(
        PersistentList([*chain.messages]),
        PersistentList([*chain.raws]),
        chain.tokens,
        PersistentList([*chain.hashes]),
        CHAT,
    )


def calls(work: Callable[[], object]) -> int:
    """Calls of functions that it takes, which no other load changes. Nothing is known from before."""
    with pytest.MonkeyPatch.context() as known:
        known.setattr("proxy.core.extraction.reading.READINGS", ReadingCache())
        profile = Profile()
        profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def calls_of_fold(kind: str, length: int, policy: Policy) -> int:
    """Those of a first request over its budget."""
    chain = long_chain(kind, length)
    return calls(lambda: from_scratch(chain, policy, Budget(2_000, 1.0, 0), count))


def calls_of_epoch(stage: Stage, length: int, policy: Policy) -> int:
    """Those of one epoch of all of it."""
    chain = long_chain("talk", length)
    budget = Budget(int(chain.tokens.total / (0.95 if stage is Stage.COMPACT else 2)), 1.0, 0)

    def plan() -> None:
        decided = draft_epoch(Situation(chain, EMPTY, policy, budget, count), stage)
        assert decided is not None
        assert finish(decided, {}) != EMPTY

    return calls(plan)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "importance") for kind in ("talk", "mixed")),
        *(longer(kind, "importance") for kind in KINDS if kind != "talk"),
        *(longer("talk", name) for name in POLICIES if name != "importance"),
    ],
)
def test_three_times_as_many_messages_take_some_three_times_the_work(kind: str, name: str) -> None:
    few, many = (calls_of_fold(kind, length, POLICIES[name]) for length in (FEW, MANY))
    assert many <= SLACK * 3 * few


def test_a_long_past_is_decoded_little_more_than_once() -> None:
    chain = long_chain("mixed", FEW)
    profile = Profile()
    profile.runcall(from_scratch, chain, POLICIES["importance"], Budget(2_000, 1.0, 0), count)
    decoded = sum(each.callcount for each in profile.getstats() if each.code is Content.of.__code__)
    assert decoded <= 1.3 * len(chain)


def test_a_late_result_adds_no_work_to_every_request_after_it() -> None:
    rounds = [message for number in range(1, 1_000) for message in work(number)]
    policy = Policy(strategy=Strategy(name="exchanges", exchanges=12))
    begun = [user("Look."), calling("late"), *conversation("talk", 40)]

    def calls_with(late: list[Sent]) -> int:
        chain = chain_from([*begun, *late, *conversation("talk", 4), user("Look it all up."), *rounds])
        return calls(lambda: from_scratch(chain, policy, Budget(1_000_000, 1.0, 0), count))

    assert calls_with([result("late", "found")]) <= 1.2 * calls_with([result("early", "found")])


def rounds_with_one_lost_result(number: int) -> list[Sent]:
    rounds = [
        message for each in range(number) for message in (calling(f"c{each}"), result(f"c{each}", "wind"))
    ]
    return [user("Look."), calling("lost"), *rounds]


def rounds_that_overlap(number: int) -> list[Sent]:
    """Each call is answered behind the next one, so that all of them are one unit."""
    rounds = [
        message for each in range(number) for message in (calling(f"c{each + 1}"), result(f"c{each}", "w"))
    ]
    return [user("Look."), calling("c0"), *rounds]


@pytest.mark.parametrize("rounds", [rounds_with_one_lost_result, rounds_that_overlap])
def test_an_open_turn_of_three_times_as_many_calls_takes_some_three_times_the_work(
    rounds: Callable[[int], list[Sent]],
) -> None:
    def work(number: int) -> int:
        chain = chain_from(rounds(number))
        return calls(lambda: from_scratch(chain, POLICIES["importance"], Budget(1_000, 1.0, 0), count))

    assert work(600) <= SLACK * 3 * work(200)


@pytest.mark.parametrize("kind", ["mixed", longer("talk"), longer("tools")])
def test_a_past_of_four_hundred_budgets_takes_little_more_work_than_one_epoch(kind: str) -> None:
    chain, policy = long_chain(kind, MANY), POLICIES["importance"]
    budget = Budget(chain.tokens.total // 400, 1.0, 0)

    def cut_at_once() -> None:
        assert draft_epoch(Situation(long_chain(kind, MANY), EMPTY, policy, budget, count), Stage.EMERGENCY)

    assert calls(lambda: from_scratch(chain, policy, budget, count)) <= 1.25 * calls(cut_at_once)


@pytest.mark.parametrize("stage", [Stage.COMPACT, Stage.EMERGENCY])
@pytest.mark.parametrize("name", ["importance", longer("topic"), longer("by count")])
def test_one_epoch_of_three_times_as_many_messages_takes_some_three_times_the_work(
    name: str, stage: Stage
) -> None:
    few, many = (calls_of_epoch(stage, length, POLICIES[name]) for length in (FEW, MANY))
    assert many <= SLACK * 3 * few


RULES = {
    "forbids": "Access to /srv/{}/keys is forbidden.",
    "demands": "You must log every access to /srv/{}/keys.",
    "permits": "You may open gate {} at night.",
    "limits": "The budget for house {} is {} dollars.",
    "changes": "The branch for house {} is now north/{}.",
}


@pytest.mark.parametrize("rule", RULES)
def test_four_times_as_many_rules_of_the_same_words_take_some_four_times_the_work(rule: str) -> None:
    """Each is compared with some of the newest alone."""

    def work(rules: int) -> int:
        said = (
            Constraint(number, Sentence(RULES[rule].format(number, number), 3)) for number in range(rules)
        )
        subject_of.cache_clear()
        return calls(lambda: in_force(said))

    work(1_000)  # what is remembered of its words by the next ones
    assert work(1_000) <= SLACK * 4 * work(250)


def output(number: int) -> str:
    """100 kB of a log, with an order of its own at its beginning, in its middle and at its end."""
    lines = "\n".join(
        f"request {number:04x}{line:06x} was let in at the gate of the harbour" for line in range(900)
    )
    return f"order B{number}-7731\n{lines}\norder M{number}-7731\n{lines}\norder E{number}-7731"


def read_of(number: int) -> Callable[[], Situation]:
    """Reads so many calls with their outputs, of which nothing is known from before."""
    rounds = [
        sent for each in range(number) for sent in (calling(f"c{each}"), result(f"c{each}", output(each)))
    ]
    raws = [encode(sent) for sent in [user("Look."), *rounds]]
    messages = [read_message(Content.of(raw)) for raw in raws]
    hashes = chain_hashes((message.identity for message in messages), root_hash())
    chain = Chain(messages, raws, Sizes.of([1] * len(raws)), hashes, CHAT)

    def work() -> Situation:
        with pytest.MonkeyPatch.context() as known:
            known.setattr("proxy.core.extraction.reading.READINGS", ReadingCache())
            situation = Situation(chain, EMPTY, Policy(), Budget(8_000, 1.0, 0), count)
            assert len(situation.readings) == len(raws)
            return situation

    return work


def test_of_very_much_output_little_more_is_read_than_of_much() -> None:
    """Five times as many outputs of 100 kB; the beginning and the end of each are read all the same."""
    assert growth(read_of, 20, 100) < 3.5
    situation = read_of(100)()
    orders = [
        [fact.value for _, facts in reading.facts for fact in facts if fact.value.endswith("-7731")]
        for reading in situation.readings[2::2]
    ]
    assert orders[0] == ["B0-7731", "E0-7731"]
    assert orders[-1] == ["B99-7731", "E99-7731"]


def test_what_is_planned_is_freed_at_once_and_not_by_the_garbage_collector() -> None:
    """Its texts may be large, and collections are rare."""
    at(1.2, talk(60), Policy(), summary="They met.")
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        at(1.2, talk(60), Policy(), summary="They met.")
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left & {"Situation", "Chain", "Content"}
