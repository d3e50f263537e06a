"""Units: a tool call and its results stay together, whatever a client sends."""

from __future__ import annotations

from proxy.core.conversation.messages import Message, last_user
from proxy.core.conversation.units import Unit, open_from, request_points, units_of
from proxy.core.dialects.registry import CHAT
from proxy.core.persistent import Incremental, Sizes
from proxy.core.planning.chain import Chain, ChainCache
from proxy.core.planning.plan import Gap, Plan, Replacement

U, A, S = (Message(role, b"") for role in ("user", "assistant", "system"))


def calls(*ids: str) -> Message:
    return Message("assistant", b"", calls=ids)


def result(*calls: str) -> Message:
    return Message("tool", b"", result_of=calls)


def spans(*messages: Message) -> list[tuple[int, int]]:
    return [(unit.start, unit.end) for unit in units_of(messages)]


def test_nothing_has_no_units():
    assert spans() == []


def test_a_plain_message_is_a_unit():
    assert spans(U, A, U, S) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_call_and_all_of_its_results_are_one_unit():
    assert spans(U, calls("a", "b"), result("b"), result("a"), A) == [(0, 1), (1, 4), (4, 5)]


def test_results_in_one_message_are_in_one_unit_with_all_that_they_answer():
    several = Message("user", b"", result_of=("a", "b"))  # beside which the user may say something
    assert spans(U, calls("a", "b"), several, A) == [(0, 1), (1, 3), (3, 4)]
    assert spans(U, calls("a"), calls("b"), several, A) == [(0, 1), (1, 4), (4, 5)]


def test_a_message_of_which_one_result_has_no_call_is_odd():
    assert spans(U, calls("a"), result("a", "b"), A, U) == [(0, 1), (1, 3), (3, 4), (4, 5)]


def test_each_round_is_a_unit():
    assert spans(U, calls("a"), result("a"), calls("b"), result("b"), A) == [(0, 1), (1, 3), (3, 5), (5, 6)]


def test_a_repeated_id_belongs_to_the_nearest_caller_before():
    assert spans(U, calls("a"), result("a"), calls("a"), result("a")) == [(0, 1), (1, 3), (3, 5)]


def test_a_late_result_joins_its_caller_and_all_between():
    assert spans(U, calls("a"), U, result("a"), A) == [(0, 1), (1, 4), (4, 5)]


def test_interleaved_calls_are_one_unit():
    assert spans(U, calls("a"), calls("b"), result("a"), result("b"), U) == [(0, 1), (1, 5), (5, 6)]


def test_a_result_without_a_call_is_one_unit_with_its_neighbours_up_to_the_next_answer():
    assert spans(U, A, result("lost"), S, A, U) == [(0, 1), (1, 4), (4, 5), (5, 6)]


def test_a_result_that_names_no_call_has_none():
    assert spans(U, result(), A, U) == [(0, 2), (2, 3), (3, 4)]


def test_a_chain_may_begin_with_a_result():
    assert spans(result("lost"), A, U) == [(0, 1), (1, 2), (2, 3)]


def test_a_call_without_its_result_is_one_unit_up_to_the_next_message_that_asks_or_answers():
    assert spans(U, calls("a", "b"), result("a"), S, A, U) == [(0, 1), (1, 4), (4, 5), (5, 6)]
    assert spans(U, calls("a", "b"), result("a"), S, U, A) == [(0, 1), (1, 4), (4, 5), (5, 6)]


def test_a_unit_counts_its_messages():
    assert Unit(2, 5).count == 3


# --- what is open


def open_unit(*messages: Message) -> int:
    return open_from(messages, units_of(messages))


def test_the_last_unit_is_open():
    assert open_unit(U, A, U) == 2
    assert open_unit(U, calls("a"), result("a")) == 1
    assert open_unit() == 0


def test_a_trailing_prefill_keeps_open_what_it_hangs_on():
    assert open_unit(U, A, U, A) == 2
    assert open_unit(U, calls("a"), result("a"), A) == 1
    assert open_unit(A) == 0


def test_the_last_user_message_is_found_behind_tool_rounds():
    assert last_user([U, A, U, calls("a"), result("a")]) == 2
    assert last_user([S, A]) is None


def test_requests_were_made_before_each_assistant_message_and_now():
    assert request_points([U, A, U, calls("a"), result("a"), A, U]) == [1, 3, 5, 7]
    assert request_points([A, U]) == [2]


# --- what edits must spare


def chain_of(messages: list[Message], known: Incremental[Unit] | None = None) -> Chain:
    raws = [b"%d" % place for place in range(len(messages))]
    return Chain(messages, raws, Sizes.of(()), (), CHAT, ChainCache(known or Incremental[Unit]()))


def cutting(start: int, end: int) -> Plan:
    return Plan((Gap(start, end),))


def test_edits_spare_a_request_that_stands_after_them():
    assert chain_of([U, A, U]).keeps_open_part(cutting(0, 2))


def test_edits_do_not_spare_a_last_user_message_that_they_cut_or_clip():
    assert not chain_of([U, A, U]).keeps_open_part(cutting(0, 3))
    assert not chain_of([U, A, U]).keeps_open_part(Plan((), (Replacement(2, b"", 0),)))


def test_edits_do_not_spare_a_last_user_message_that_they_cut_even_where_rounds_stand_after_it():
    rounds = [U, calls("a"), result("a"), calls("b"), result("b")]
    assert not chain_of(rounds).keeps_open_part(cutting(0, 3))


def test_edits_spare_the_open_round_of_an_agent():
    rounds = [U, calls("a"), result("a"), calls("b"), result("b")]
    assert chain_of(rounds).keeps_open_part(cutting(1, 3))
    assert not chain_of(rounds).keeps_open_part(cutting(1, 5))


def test_no_edits_spare_everything():
    assert chain_of([U]).keeps_open_part(Plan())
    assert chain_of([]).keeps_open_part(Plan())


def test_units_that_are_known_give_way_where_a_late_result_answers_an_early_call():
    messages, known = [calls("a"), U, result("a")], Incremental[Unit]()
    for length in (2, 3):
        assert chain_of(messages[:length], known).units == units_of(messages[:length])
