"""The oracle itself: what it lets pass, and what it does not. Its histories are written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest

from tests.histories.checker import check, lost_turns
from tests.histories.evidence import GRACE, Kind
from tests.histories.history import (
    END,
    Attempt,
    Forwarded,
    History,
    Kept,
    Message,
    Mode,
    Outcome,
    Tree,
    log,
)
from tests.support.clients import user
from tests.support.upstreams import said

TENANT, SESSION = "Bearer sk", "s"


@dataclass
class Book:
    """Writes a history down, a turn every second."""

    mode: Mode = Mode.FULL
    history: History = field(default_factory=lambda: History(1))
    past: list[Message] = field(default_factory=list[Message])

    def turn(self, text: str = "says", client: int = 0, **changes: Any) -> Attempt:
        """An answered turn of the one client, as it should be; `changes` make it another."""
        number = len(self.history.attempts) + 1
        name = f"h1.c{client}.{number}"
        new = [user(f"{name} {text}")]
        sent = new if self.mode is Mode.APPEND else [*self.past, *new]
        answer = said(f"{name} heard it{END}")
        attempt = Attempt(name, "talk", self.mode, tuple(sent), began=10.0 * number, ended=10.0 * number + 1)
        attempt = replace(attempt, outcome=Outcome.ANSWERED, status=200, cut=0, answer=answer)
        attempt = replace(attempt, header=SESSION, session=SESSION, tenant=TENANT)
        attempt = replace(attempt, **changes)
        self.history.attempts.append(attempt)
        self.history.forwarded.append(Forwarded(name, (*self.past, *new), "", answer))
        self.past += [*new, answer]
        return attempt

    def kept(self, *messages: Message, cut_off: Iterable[int] = ()) -> History:
        """The history, with these messages kept on one branch."""
        nodes: list[Kept] = []
        parent = b"root"
        for place, message in enumerate(messages):
            place_hash = sha256(parent + repr(message).encode()).digest()
            is_answer = message["role"] == "assistant"
            nodes.append(Kept(place_hash, parent, message, is_answer, place not in cut_off))
            parent = place_hash
        tree = Tree({node.hash: node for node in nodes}, parent if nodes else b"", tuple(messages))
        self.history.trees = {(TENANT, SESSION): tree}
        return self.history


def kinds(history: History) -> set[Kind]:
    return {violation.kind for violation in check(history)}


modes = pytest.mark.parametrize("mode", list(Mode))


@modes
def test_a_conversation_that_is_kept_as_it_was_is_right(mode: Mode) -> None:
    book = Book(mode)
    for _ in range(3):
        book.turn()
    assert check(book.kept(*book.past)) == []


@modes
def test_an_answered_turn_that_is_not_there_is_lost(mode: Mode) -> None:
    book = Book(mode)
    book.turn()
    book.turn()
    assert Kind.LOST in kinds(book.kept(*book.past[:2]))


def lossy(**next_answer: Any) -> History:
    """A turn is answered again, its first answer is kept nowhere, and the next answer says this."""
    book = Book()
    book.history.is_calm = False
    book.turn()
    book.turn()
    book.past = book.past[:2]
    book.turn(**next_answer)
    return book.kept(*book.past)


def test_a_loss_may_be_confessed_by_the_next_answer() -> None:
    assert kinds(lossy(degraded=("previous-turn",))) == set()
    assert kinds(lossy(degraded=("store",))) == set()
    assert lost_turns(lossy(degraded=("store",))) == 1


def test_a_loss_that_is_confessed_by_nobody_is_one() -> None:
    assert kinds(lossy()) == {Kind.LOST}
    assert kinds(lossy(degraded=("protected-cut",))) == {Kind.LOST}


def test_an_error_is_no_answer_that_confesses() -> None:
    refused: dict[str, Any] = {"outcome": Outcome.REFUSED, "status": 500, "fate": "500", "answer": None}
    assert Kind.LOST not in kinds(lossy(degraded=("previous-turn",), **refused))  # nobody was answered since
    history = lossy(degraded=("previous-turn",), **refused)
    late = replace(history.attempts[0], id="h1.c0.9", began=90.0, ended=91.0)
    history.attempts.append(late)
    assert Kind.LOST in kinds(history)


def test_who_asks_before_the_loss_can_be_known_is_told_nothing() -> None:
    history = lossy()
    lost, following = history.attempts[-2:]
    following.began = lost.ended + GRACE / 2
    assert Kind.LOST not in kinds(history)


def test_a_killed_worker_confesses_nothing_to_clients_that_send_their_history() -> None:
    history = lossy()
    history.crashes = [history.attempts[1].ended]
    assert Kind.LOST not in kinds(history)


def test_a_killed_worker_is_no_excuse_for_what_was_acknowledged() -> None:
    book = Book(Mode.APPEND)
    book.history.crashes = [book.turn().ended]
    assert Kind.LOST in kinds(book.kept())


@modes
def test_a_turn_that_is_there_twice_in_a_row_is_told(mode: Mode) -> None:
    book = Book(mode)
    book.turn()
    assert Kind.TWICE in kinds(book.kept(*book.past, *book.past))


@modes
def test_a_turn_within_another_is_told(mode: Mode) -> None:
    book = Book(mode)
    book.turn()
    book.turn()
    first, answer, second, other = book.past
    found = kinds(book.kept(first, second, answer, other))
    assert found & {Kind.UNEXPLAINED, Kind.INTERLEAVED}


def test_turns_in_another_order_than_they_were_made_are_told() -> None:
    book = Book(Mode.APPEND)
    book.turn()
    book.turn()
    assert Kind.DISORDER in kinds(book.kept(*book.past[2:], *book.past[:2]))


def test_turns_that_were_made_at_once_stand_in_any_order() -> None:
    book = Book(Mode.APPEND)
    first, second = book.turn(client=0), book.turn(client=1)
    second.began = first.began
    one, other = book.history.forwarded
    answered = (*second.sent, *book.past[3:])
    book.history.forwarded = [
        replace(one, messages=(*answered, *first.sent)),
        replace(other, messages=second.sent),
    ]
    assert kinds(book.kept(*book.past[2:], *book.past[:2])) == set()


def test_an_answer_that_a_retry_hears_of_later_stands_where_it_was_given() -> None:
    book = Book(Mode.APPEND)
    unheard = book.turn(client=0, outcome=Outcome.LEFT)
    book.turn(client=1)
    past = list(book.past)
    book.turn(client=0, retries=unheard.id, sent=unheard.sent, answer=past[1])
    book.history.forwarded.pop()
    assert kinds(book.kept(*past)) == set()


def test_an_answer_without_its_history_is_told() -> None:
    book = Book(Mode.APPEND)
    book.turn()
    second = book.turn()
    history = book.kept(*book.past)
    history.forwarded[-1] = replace(history.forwarded[-1], messages=second.sent)
    assert kinds(history) == {Kind.HISTORY_MISSING}


def test_a_part_of_an_answer_in_a_view_is_told() -> None:
    book = Book(Mode.APPEND)
    cut_off = said("h1.c0.1 hea")
    book.turn(outcome=Outcome.CUT, answer=cut_off, fate="break:3")
    book.past[-1] = cut_off
    book.turn()
    assert Kind.PARTIAL_IN_VIEW in kinds(book.kept(*book.past, cut_off=[1]))


def test_words_of_another_conversation_in_a_request_are_told() -> None:
    book = Book(Mode.APPEND)
    book.turn(talk="another", header="other", session="other")
    book.turn(client=1)
    assert Kind.LEAKED in kinds(book.kept(*book.past))


def test_what_is_forwarded_otherwise_than_it_was_sent_is_told() -> None:
    book = Book()
    book.turn()
    book.history.forwarded[0] = replace(book.history.forwarded[0], messages=(user("h1.c0.1 sang"),))
    assert kinds(book.kept(*book.past)) == {Kind.ALTERED}


def test_twins_that_were_forwarded_in_different_bytes_are_told() -> None:
    book = Book()
    first = book.turn()
    second = replace(first, id="h1.c0.2", twin=first.id)
    book.history.attempts.append(second)
    book.history.forwarded.append(replace(book.history.forwarded[0], attempt=second.id, body=" "))
    assert Kind.DIVERGED in kinds(book.kept(*book.past))


def test_a_refusal_without_a_reason_is_told() -> None:
    book = Book(Mode.APPEND)
    book.turn(outcome=Outcome.REFUSED, status=503, code="history_unavailable", answer=None)
    book.history.forwarded = []
    assert kinds(book.kept()) == {Kind.UNANSWERED}
    book.history.is_calm = False
    assert kinds(book.kept()) == set()


def test_a_log_tells_the_attempts_in_the_order_of_time() -> None:
    book = Book()
    book.turn()
    book.turn(outcome=Outcome.CUT, fate="break:1")
    lines = log(book.kept(*book.past)).splitlines()
    assert [line.split()[2] for line in lines[:4]] == ["h1.c0.1", "h1.c0.1", "h1.c0.2", "h1.c0.2"]
    assert "(upstream: break:1)" in lines[2]
