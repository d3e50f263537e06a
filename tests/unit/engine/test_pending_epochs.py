"""When it is thought about again whether an epoch pays."""

from __future__ import annotations

import pytest

from proxy.cache import CacheMemory
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
    pending = PendingEpochs(CacheMemory())
    pending.note_lacking(request(), "one", lacking)
    assert not pending.has_grown(request(), "one")
    assert not pending.has_grown(request(words(sooner)), "one")
    assert pending.has_grown(request(words(later)), "one")


def test_it_is_thought_about_again_after_an_epoch_on_another_branch_and_where_it_never_was() -> None:
    pending = PendingEpochs(CacheMemory())
    assert pending.has_grown(request(), "one")
    pending.note_lacking(request(), "one", 5_000)
    assert pending.has_grown(request(), "two")
    assert pending.has_grown(request(talk=BEFORE[1:] + BEFORE[:1]), "one")
    assert pending.has_grown(request(talk=BEFORE[:5]), "one")


def test_branches_that_go_on_by_turns_do_not_forget_each_others_summaries_and_sums() -> None:
    pending, branches = PendingEpochs(CacheMemory()), [[user("left")], [user("right")]]
    for number, branch in enumerate(branches):
        pending.prepare(request(*branch), "one", ((number, number + 5),))
        pending.note_lacking(request(*branch), "one", 5_000 + number)
    for number, branch in enumerate(branches):
        later = request(*branch, words(10))
        assert pending.is_prepared(later, "one")
        assert not pending.is_prepared(later, "two")
        assert pending.prepared(later) == ((number, number + 5),)
        assert (pending.lacking(later), pending.has_grown(later, "one")) == (5_000 + number, False)
    pending.drop(request(*branches[0]))
    assert pending.has_grown(request(*branches[0]), "one")
    assert not pending.has_grown(request(*branches[1]), "one")


def test_of_many_branches_the_newest_are_remembered() -> None:
    pending, branches = PendingEpochs(CacheMemory()), [[user(str(number))] for number in range(20)]
    for branch in branches:
        pending.prepare(request(*branch), "one", ((0, 5),))
    known = [pending.is_prepared(request(*branch), "one") for branch in branches]
    assert known == [False] * 12 + [True] * 8


def test_of_two_branches_a_request_goes_on_from_the_longer_one() -> None:
    pending = PendingEpochs(CacheMemory())
    pending.prepare(request(user("left")), "one", ((0, 6),))
    pending.prepare(request(talk=BEFORE[:5]), "one", ())  # an earlier message is answered anew
    assert pending.prepared(request(user("left"), words(10))) == ((0, 6),)
