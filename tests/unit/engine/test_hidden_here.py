"""What a process knows of a session's answers with hidden calls."""

from __future__ import annotations

from proxy.cache import Memory
from proxy.core.conversation.records import HiddenCalls
from proxy.engine.sessions.session_cache import CachedSession, SessionCache
from proxy.ports import Found, SessionKey

KEY = SessionKey("aa", "01")


def hidden(answer: str, said: str = "x") -> HiddenCalls:
    return HiddenCalls(hash=answer.encode(), messages=(said.encode(),), tokens=1, at=1.0)


def told(*answers: HiddenCalls, sid: str | None = KEY.sid, was_here: bool = False) -> Found:
    return Found(sid=sid, hidden=answers, was_here=was_here)


A, B = hidden("a"), hidden("b")


def test_later_ones_are_added_to_those_that_were_read() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, is_whole=True)
    assert len(here.stored_hidden) == 1
    here.learn_hidden(told(B), KEY.sid, is_whole=False)
    assert here.hidden == {b"a": A, b"b": B}
    assert len(here.stored_hidden) == 2


def test_what_this_process_gave_is_known_before_the_store_tells() -> None:
    here = CachedSession()
    here.hide(A)
    assert len(here.stored_hidden) == 0
    assert here.hidden == {b"a": A}


def test_what_the_store_took_first_counts() -> None:
    here = CachedSession()
    here.hide(hidden("a", "ours"))
    first = hidden("a", "another worker's")
    here.learn_hidden(told(first), KEY.sid, is_whole=True)
    assert here.hidden == {b"a": first}


def test_all_of_them_take_the_place_of_what_was_read() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, is_whole=True)
    here.learn_hidden(told(A, B), KEY.sid, is_whole=True)
    assert here.hidden == {b"a": A, b"b": B}
    assert len(here.stored_hidden) == 2


def test_what_ended_there_has_ended_here() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, is_whole=True)
    here.learn_hidden(told(sid=None, was_here=True), KEY.sid, is_whole=False)
    assert here.hidden == {}
    assert len(here.stored_hidden) == 0


def test_a_store_that_does_not_know_the_session_yet_is_asked_for_all() -> None:
    here = CachedSession()
    here.learn_hidden(told(A), KEY.sid, is_whole=True)
    here.learn_hidden(told(sid=None), KEY.sid, is_whole=False)
    assert here.hidden == {b"a": A}
    assert len(here.stored_hidden) == 0


def test_a_deleted_session_leaves_nothing() -> None:
    cache = SessionCache(Memory())
    here = cache.of(KEY)
    here.hide(A)
    cache.forget(KEY)
    assert here.hidden == cache.of(KEY).hidden == {}, "nor with a request that goes on"
