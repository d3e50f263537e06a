"""What a process knows of a session's answers with hidden calls."""

from __future__ import annotations

import pytest

from proxy.cache import CacheMemory
from proxy.core.conversation.records import HiddenCalls
from proxy.engine.sessions.session_cache import CachedSession, EpochLog, SessionCache
from proxy.ports import LookupResult, SessionKey
from tests.support.stores import epoch, turn

KEY = SessionKey("aa", "01")


def hidden(answer: str, said: str = "x") -> HiddenCalls:
    return HiddenCalls(hash=answer.encode(), messages=(said.encode(),), tokens=1, at=1.0)


def told(*answers: HiddenCalls, sid: str | None = KEY.sid) -> LookupResult:
    return LookupResult(sid=sid, hidden=answers)


A, B = hidden("a"), hidden("b")


def test_later_ones_are_added_to_those_that_were_read() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, held=0)
    assert here.hidden_saved == 1
    here.learn_hidden(told(B), KEY.sid, held=1)
    assert here.hidden == {b"a": A, b"b": B}
    assert here.hidden_saved == 2


def test_what_this_process_gave_is_known_before_the_store_tells() -> None:
    here = CachedSession()
    here.hide(A)
    assert here.hidden_saved == 0
    assert here.hidden == {b"a": A}


def test_what_the_store_took_first_counts() -> None:
    here = CachedSession()
    here.hide(hidden("a", "ours"))
    first = hidden("a", "another worker's")
    here.learn_hidden(told(first), KEY.sid, held=0)
    assert here.hidden == {b"a": first}


def test_all_of_them_take_the_place_of_what_was_read() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, held=0)
    here.learn_hidden(told(A, B), KEY.sid, held=0)
    assert here.hidden == {b"a": A, b"b": B}
    assert here.hidden_saved == 2


@pytest.mark.parametrize(
    "found",
    [LookupResult(has_ended=True), LookupResult(sid=KEY.sid, session=turn("u1", created=2.0).session)],
)
def test_what_ended_there_has_ended_here_even_if_it_was_begun_anew(found: LookupResult) -> None:
    cache = SessionCache(CacheMemory())
    begun = LookupResult(sid=KEY.sid, session=turn("u1", created=1.0).session)
    here, lane = cache.of_lane(KEY, "lane")
    assert cache.follows(KEY, here, begun)
    here.learn_hidden(told(A), KEY.sid, held=0)
    cache.keep_log(KEY, "lane", EpochLog((epoch("e1"),), 1))
    assert cache.follows(KEY, here, begun)
    assert (here.hidden, lane.epoch_log) == ({b"a": A}, EpochLog((epoch("e1"),), 1))
    assert not cache.follows(KEY, here, found)
    assert here.hidden == {}
    assert cache.of_lane(KEY, "lane")[1].epoch_log is None


def test_the_epochs_of_a_session_that_the_store_has_lost_are_to_be_written_again() -> None:
    cache = SessionCache(CacheMemory())
    here, lane = cache.of_lane(KEY, "lane")
    assert cache.follows(KEY, here, LookupResult(sid=KEY.sid, session=turn("u1").session))
    cache.keep_log(KEY, "lane", EpochLog((epoch("e1"),), 1))
    assert cache.follows(KEY, here, LookupResult(sid=KEY.sid))
    assert lane.epoch_log == EpochLog((epoch("e1"),), 0)


@pytest.mark.parametrize("begun", [5.0, 7.0], ids=["here", "elsewhere"])
def test_one_that_the_store_has_lost_goes_on_only_where_it_was_begun_anew(begun: float) -> None:
    cache = SessionCache(CacheMemory())
    here, _ = cache.of_lane(KEY, "lane")
    assert cache.follows(KEY, here, LookupResult(sid=KEY.sid, session=turn("u1", created=1.0).session))
    cache.keep_log(KEY, "lane", EpochLog((epoch("e1"),), 1))
    assert [here.begin_anew(5.0), here.begin_anew(6.0)] == [5.0, 5.0]
    again = LookupResult(sid=KEY.sid, session=turn("u1", created=begun).session)
    is_here = begun == 5.0
    assert cache.follows(KEY, here, again) is is_here
    assert cache.of_lane(KEY, "lane")[1].epoch_log == (EpochLog((epoch("e1"),)) if is_here else None)


def test_a_store_that_does_not_know_the_session_yet_is_asked_for_all() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, held=0)
    here.learn_hidden(told(sid=None), KEY.sid, held=1)
    assert here.hidden == {b"a": A}
    assert here.hidden_saved == 0


def test_a_deleted_session_leaves_nothing() -> None:
    cache = SessionCache(CacheMemory())
    here = cache.of(KEY)
    here.hide(A)
    cache.forget(KEY)
    assert here.hidden == cache.of(KEY).hidden == {}, "nor with a request that goes on"
