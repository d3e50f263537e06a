"""When it is thought about again whether an epoch pays."""

from __future__ import annotations

import pytest

from proxy.cache import Memory
from proxy.core.budget.budget import Budget
from proxy.engine.flow import Request
from proxy.engine.planning.planning_cache import PendingEpochs
from tests.support.conversations import Sent, chain_from, prose, user
from tests.support.requests import a_request

BEFORE = [user(prose("en", 100, n)) for n in range(10)]


def request(*said: Sent, talk: list[Sent] = BEFORE) -> Request:
    return a_request(chain_from([*talk, *said]), Budget(10_000, 1.0, 0))


def words(tokens: int) -> Sent:
    """A message of about so many tokens."""
    return user("a" * 4 * tokens)


@pytest.mark.parametrize(
    ("lacking", "sooner", "later"), [(1, 150, 250), (300, 250, 350), (5_000, 450, 550)], ids=str
)
def test_it_is_thought_about_again_when_what_was_lacking_has_come_or_a_twentieth_of_the_room(
    lacking: int, sooner: int, later: int
) -> None:
    pending = PendingEpochs(Memory())
    pending.note_lacking(request(), "one", lacking)
    assert not pending.has_grown(request(), "one")
    assert not pending.has_grown(request(words(sooner)), "one")
    assert pending.has_grown(request(words(later)), "one")


def test_it_is_thought_about_again_after_an_epoch_on_another_branch_and_where_it_never_was() -> None:
    pending = PendingEpochs(Memory())
    assert pending.has_grown(request(), "one")
    pending.note_lacking(request(), "one", 5_000)
    assert pending.has_grown(request(), "two")
    assert pending.has_grown(request(talk=BEFORE[1:] + BEFORE[:1]), "one")
    assert pending.has_grown(request(talk=BEFORE[:5]), "one")
