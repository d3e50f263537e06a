"""When it is thought about again whether an epoch pays."""

from __future__ import annotations

import pytest

from proxy.core.budget import Budget
from proxy.core.policy import Policy
from proxy.engine.case import Case
from proxy.engine.drafts import Drafts
from proxy.lru import Memory
from tests.property.conversations import Sent, chain_from, prose, user
from tests.stores import KEY

BEFORE = [user(prose("en", 100, n)) for n in range(10)]


def case(*said: Sent, talk: list[Sent] = BEFORE) -> Case:
    return Case(
        tenant="t",
        key=KEY,
        lane="lane",
        model="m",
        chain=chain_from([*talk, *said]),
        head_count=0,
        policy=Policy(),
        budget=Budget(10_000, 1.0, 0),
        epochs=(),
        saved=0,
        credentials=(),
        deadline=0.0,
    )


def words(tokens: int) -> Sent:
    """A message of about so many tokens."""
    return user("a" * 4 * tokens)


@pytest.mark.parametrize(
    ("lacking", "sooner", "later"), [(1, 150, 250), (300, 250, 350), (5_000, 450, 550)], ids=str
)
def test_it_is_thought_about_again_when_what_was_lacking_has_come_or_a_twentieth_of_the_room(
    lacking: int, sooner: int, later: int
) -> None:
    drafts = Drafts(Memory())
    drafts.reckon(case(), "one", lacking)
    assert not drafts.has_grown(case(), "one")
    assert not drafts.has_grown(case(words(sooner)), "one")
    assert drafts.has_grown(case(words(later)), "one")


def test_it_is_thought_about_again_after_an_epoch_on_another_branch_and_where_it_never_was() -> None:
    drafts = Drafts(Memory())
    assert drafts.has_grown(case(), "one")
    drafts.reckon(case(), "one", 5_000)
    assert drafts.has_grown(case(), "two")
    assert drafts.has_grown(case(talk=BEFORE[1:] + BEFORE[:1]), "one")
    assert drafts.has_grown(case(talk=BEFORE[:5]), "one")
