"""Notes that stand: an epoch leaves those before its first edit as they are, with their ledgers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from proxy.core.budget.budget import Budget
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import Gap, Plan
from proxy.core.policy.policy import Policy
from tests.support.conversations import (
    Sent,
    Turn,
    assistant,
    calling,
    chain_from,
    count,
    prose,
    result,
    session,
    user,
)
from tests.support.ledgers import BARE, at_length, filler

BUDGET = Budget(3000, 1.0, 100)
MOST = 0.4 * BUDGET.room
"""Counted tokens that details may have in all ledgers of a view."""
BOATS = 24


def log(first: int, boats: int = BOATS) -> Sent:
    """An answer that names boats, each with a file of its own."""
    named = " ".join(f"/srv/quay/boat{number:04}.txt" for number in range(first, first + boats))
    return assistant(f"{prose('en', 60)} {named}")


def logged(exchanges: int, boats: int = BOATS) -> list[Sent]:
    """A conversation in which every answer names other boats."""
    pairs = ((user(f"And quay {n}?"), log(n * boats, boats)) for n in range(exchanges))
    return [*(each for pair in pairs for each in pair), user("and now?")]


def epochs(messages: list[Sent], policy: Policy | None = None) -> list[Turn]:
    chosen = policy or Policy(keep=BARE)
    turns = session(chain_from(messages), chosen, BUDGET, None)
    return [turn for turn in turns if turn.begun is not None]


def carrying(plan: Plan) -> list[Gap]:
    return [gap for gap in plan.gaps if gap.ledger]


def test_an_epoch_adds_a_note_and_leaves_the_notes_before_it_byte_for_byte() -> None:
    first, second, *_ = epochs(logged(40, boats=4))
    assert second.plan.gaps[:-1] == first.plan.gaps
    assert all(gap.ledger for gap in second.plan.gaps)
    assert second.plan.gaps[-1].start == first.plan.gaps[-1].end


def test_a_ledger_has_only_what_those_before_it_lack() -> None:
    for turn in epochs(logged(60)):
        names = [name for gap in turn.plan.gaps for name in gap.ledger.split() if "boat" in name]
        assert len(names) == len(set(names))
        assert names


def test_ledgers_that_are_full_are_written_anew_as_one() -> None:
    plans = [turn.plan for turn in epochs(logged(120))]
    sizes = [len(carrying(plan)) for plan in plans]
    assert max(sizes) > 1
    anew = [later for earlier, later in pairwise(sizes) if later < earlier]
    assert anew
    assert set(anew) == {1}
    assert all(count(plan.ledger) <= MOST for plan in plans)
    assert all(len(plan.gaps) == 1 for plan, size in zip(plans, sizes, strict=True) if size == 1)


def test_notes_without_much_in_their_ledgers_do_not_pile_up() -> None:
    talk = [user("Boat K77X waits."), *(each for number in range(200) for each in filler(number))]
    for turn in epochs([*talk, user("and now?")]):
        beside = sum(gap.tokens - count(gap.ledger) for gap in turn.plan.gaps[1:])
        assert beside < 0.15 * BUDGET.limit


def test_a_rule_that_was_withdrawn_stands_in_no_ledger() -> None:
    talk = [each for number in range(60) for each in filler(number)]
    told = [at_length("Never open the bridge at night."), assistant("Noted."), *talk]
    told += [at_length("You may open the bridge at night again."), assistant("Noted."), *talk]
    plans = [turn.plan for turn in epochs([*told, user("and now?")])]
    assert "Never open the bridge at night." in plans[0].ledger
    assert "Never open the bridge at night." not in plans[-1].ledger


def test_a_state_that_a_newer_one_replaced_stands_in_no_ledger() -> None:
    messages: list[Sent] = []
    for number in range(80):
        call = f"c{number}"
        messages += [
            user(f"And now, {prose('en', 60, number)}?"),
            calling(call, arguments='{"boat": "K77X"}'),
            result(call, f'{{"boat_id": "K77X", "moored_at": "quay-{number:03}"}}'),
            assistant(prose("en", 60, number)),
        ]
    for turn in epochs([*messages, user("and now?")]):
        assert turn.plan.ledger.count("quay-") <= 1


@pytest.mark.parametrize(
    "rules",
    [
        {"tools": [{"match": "look", "cache_exchanges": 3}]},
        {"retention": [{"match": {"content": "secret"}, "class": "ephemeral"}]},
    ],
)
def test_where_what_a_ledger_has_may_expire_there_is_always_one(rules: dict[str, object]) -> None:
    policy = Policy.model_validate({"keep": BARE, **rules})
    assert {len(carrying(turn.plan)) for turn in epochs(logged(60), policy)} == {1}


def test_in_a_chat_of_small_requests_notes_are_merged_since_reading_one_afresh_costs_less() -> None:
    said = [user("Boat K77X waits at quay 12 for Anna Berg."), assistant("Noted.")]
    talk = [(user(f"{prose('en', 6, n)}?"), assistant(prose("en", 9, n))) for n in range(600)]
    plans = [
        turn.plan for turn in epochs([*said, *(each for pair in talk for each in pair), user("and now?")])
    ]
    assert len(plans) > 2
    assert {len(plan.gaps) for plan in plans} == {1}


def test_a_note_behind_another_says_what_became_of_the_request_above_both() -> None:
    steps = [
        each
        for number in range(60)
        for each in (
            calling(f"c{number}", arguments=f'{{"path": "/srv/quay/boat{number:04}.txt"}}'),
            result(f"c{number}", prose("en", 60, number)),
        )
    ]
    messages = [user("Paint the boats."), *steps, assistant("All painted."), *filler(1), user("and now?")]
    policy = Policy.model_validate({"keep": {"recent": 0.1, "first_user": True}})
    plans = [turn.plan for turn in epochs(messages, policy)]
    behind = [gap for plan in plans for gap in plan.gaps[1:] if plan.gaps[0].end == plan.gaps[1].start]
    assert behind
    assert all("the request above" in Content.of(gap.note).text for gap in behind)


def test_the_files_of_a_listing_are_not_told_again_while_a_note_names_their_directory() -> None:
    listing = "\n".join(f"/srv/quay/boat{number:04}.txt" for number in range(160))
    listed = [user("Which boats?"), calling("c0"), result("c0", listing), assistant("Many.")]
    talk = [each for number in range(60) for each in filler(number)]
    told = [turn.plan for turn in epochs([*listed, *talk, user("and now?")]) if len(turn.plan.gaps) > 1]
    assert told
    for plan in told:
        names = [name for name in plan.ledger.split() if "boat" in name]
        assert "/srv/quay/: boat" in plan.ledger
        assert len(names) == len({*names})
