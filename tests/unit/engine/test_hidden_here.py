"""What a process knows of a session's answers with hidden calls."""

from __future__ import annotations

from proxy.cache import Memory
from proxy.core.conversation.records import HiddenCalls
from proxy.engine.sessions.attachments import HiddenCallCache
from proxy.ports import Found, SessionKey

KEY = SessionKey("aa", "01")


def hidden(answer: str, said: str = "x") -> HiddenCalls:
    return HiddenCalls(hash=answer.encode(), messages=(said.encode(),), tokens=1, at=1.0)


def told(*answers: HiddenCalls, sid: str | None = KEY.sid, was_here: bool = False) -> Found:
    return Found(sid=sid, hidden=answers, was_here=was_here)


A, B = hidden("a"), hidden("b")


def test_later_ones_are_added_to_those_that_were_read() -> None:
    here = HiddenCallCache(Memory())
    here.known(KEY, told(A), is_whole=True)
    assert here.seen(KEY) == 1
    assert here.known(KEY, told(B), is_whole=False) == {b"a": A, b"b": B}
    assert here.seen(KEY) == 2


def test_what_this_process_gave_is_known_before_the_store_tells() -> None:
    here = HiddenCallCache(Memory())
    here.add(KEY, A)
    assert here.seen(KEY) == 0
    assert here.known(KEY, None, is_whole=False) == {b"a": A}


def test_what_the_store_took_first_counts() -> None:
    here = HiddenCallCache(Memory())
    here.add(KEY, hidden("a", "ours"))
    first = hidden("a", "another worker's")
    assert here.known(KEY, told(first), is_whole=True) == {b"a": first}


def test_all_of_them_take_the_place_of_what_was_read() -> None:
    here = HiddenCallCache(Memory())
    here.known(KEY, told(A), is_whole=True)
    assert here.known(KEY, told(A, B), is_whole=True) == {b"a": A, b"b": B}
    assert here.seen(KEY) == 2


def test_what_ended_there_has_ended_here() -> None:
    here = HiddenCallCache(Memory())
    here.known(KEY, told(A), is_whole=True)
    assert here.known(KEY, told(sid=None, was_here=True), is_whole=False) == {}
    assert here.seen(KEY) == 0


def test_a_store_that_does_not_know_the_session_yet_is_asked_for_all() -> None:
    here = HiddenCallCache(Memory())
    here.known(KEY, told(A), is_whole=True)
    assert here.known(KEY, told(sid=None), is_whole=False) == {b"a": A}
    assert here.seen(KEY) == 0


def test_a_deleted_session_leaves_nothing() -> None:
    here = HiddenCallCache(Memory())
    here.add(KEY, A)
    here.forget(KEY)
    assert here.known(KEY, None, is_whole=False) == {}
