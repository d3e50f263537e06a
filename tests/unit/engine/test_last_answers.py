"""When requests with a session's heads were last answered: what the provider still has of each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.conversation.records import Session
from proxy.core.persistent import PersistentList
from proxy.engine.sessions.session_cache import (
    CachedLane,
    CachedSession,
    HeadUse,
    LastAnswers,
    SessionState,
    head_hash,
)
from proxy.ports import LookupResult
from tests.support.stores import KEY

AGENT, OTHER = (b'{"role":"system","content":"You plan."}',), (b'{"role":"system","content":"You code."}',)
CHAIN = PersistentList([b"u1", b"a1", b"u2", b"a2", b"u3"])
STORED = Session(name="s", tenant="t", lane="lane", head=AGENT, head_tokens=9, created=1.0, updated=100.0)


def state(stored: Session | None = None, known: bytes | None = b"a2", **used: HeadUse) -> SessionState:
    """A session in which this process answered requests with heads of 9 tokens; the store may know more.

    The newest message of the chain that the session holds is the ``known`` one.
    """
    lane, heads = CachedLane("lane"), {"agent": AGENT, "other": OTHER}
    for name, use in used.items():
        lane.learn_head(head_hash(heads[name], 9), use)
    return SessionState(
        "t", KEY, lane=lane, found=LookupResult(session=stored, known=known if stored else None)
    )


def test_agents_that_share_a_session_do_not_hide_each_other():
    found = state(replace(STORED, head=OTHER), agent=HeadUse(90.0, 3, b"u2"), other=HeadUse(99.0, 1, b"x"))
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False) == LastAnswers(100.0, 90.0, 3)
    assert found.last_answers(OTHER, 9, CHAIN, is_suffix=False) == LastAnswers(100.0, 100.0, 4)


def test_a_head_that_nobody_has_sent_is_new_and_so_is_one_with_other_tools():
    found = state(STORED, agent=HeadUse(99.0, 3, b"u2"))
    assert found.last_answers(OTHER, 9, CHAIN, is_suffix=False) == LastAnswers(100.0, None, 4)
    assert found.last_answers(AGENT, 8, CHAIN, is_suffix=False) == LastAnswers(100.0, None, 4)


def test_the_head_of_the_last_turn_is_known_whichever_worker_answered_it():
    assert state(STORED).last_answers(AGENT, 9, CHAIN, is_suffix=False) == LastAnswers(100.0, 100.0, 4)
    earlier = state(STORED, agent=HeadUse(50.0, 1, b"u1"))
    assert earlier.last_answers(AGENT, 9, CHAIN, is_suffix=False) == LastAnswers(100.0, 100.0, 4)
    assert state(replace(STORED, lane="another")).last_answers(
        AGENT, 9, CHAIN, is_suffix=False
    ) == LastAnswers(None, None, 4)


def test_what_a_head_sent_on_another_branch_tells_nothing_of_this_one():
    found = state(agent=HeadUse(90.0, 3, b"another u2"))
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False) == LastAnswers(90.0, 90.0, 0)
    found = state(STORED, agent=HeadUse(90.0, 3, b"another u2"))
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False).sent == 4


@pytest.mark.parametrize(("known", "sent"), [(None, 0), (b"u1", 1), (b"a1", 2), (b"a2", 4)])
def test_what_a_client_has_changed_was_not_sent_before(known: bytes | None, sent: int) -> None:
    found = state(STORED, known=known)
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False).sent == sent


def test_what_this_process_has_sent_counts_before_its_turn_is_written() -> None:
    found = state(STORED, known=b"a1", agent=HeadUse(101.0, 3, b"u2"))
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False).sent == 3
    unwritten = state(agent=HeadUse(101.0, 3, b"u2"))
    assert unwritten.last_answers(AGENT, 9, CHAIN, is_suffix=False).sent == 3


def test_while_the_store_is_away_all_may_have_been_sent() -> None:
    found = replace(state(agent=HeadUse(90.0, 3, b"another u2")), is_store_away=True)
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=False).sent == len(CHAIN)


def test_of_heads_with_a_clock_the_newest_are_remembered():
    lane = CachedLane("lane")
    for minute in range(1_000):
        lane.learn_head(head_hash((b"It is %d." % minute,), 9), HeadUse(float(minute), 1, b"u1"))
    assert len(lane.heads) < 100
    assert lane.answered == 999.0
    assert head_hash((b"It is 999.",), 9) in lane.heads


def test_of_a_client_that_dropped_its_oldest_messages_nothing_was_sent_before_unless_it_goes_on() -> None:
    found = state(STORED)
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=True).sent == 0
    found.lane.learn_head(head_hash(AGENT, 9), HeadUse(90.0, 3, CHAIN[2]))
    assert found.last_answers(AGENT, 9, CHAIN, is_suffix=True).sent == 3


def test_a_session_was_last_answered_by_whichever_worker_and_in_whichever_lane() -> None:
    assert state().last_answer is None
    assert state(agent=HeadUse(90.0, 3, b"u2")).last_answer == 90.0
    assert state(replace(STORED, lane="another"), agent=HeadUse(90.0, 3, b"u2")).last_answer == 100.0
    other = CachedLane("another")
    other.learn_head(head_hash(AGENT, 9), HeadUse(110.0, 3, b"u2"))  # its turn is not written yet
    found = replace(state(STORED), cached=CachedSession(lanes={"another": other}))
    assert found.last_answer == 110.0
