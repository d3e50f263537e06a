"""When two answers say the same, what one knew that the other could not, and how sure that is."""

from __future__ import annotations

import json
from dataclasses import astuple

import pytest

from proxy.core.dialects.dialect import Content
from proxy.core.dialects.registry import CHAT
from proxy.core.proof.comparison import Comparison, compared, strings_of, used
from proxy.core.proof.evidence import Arm, Evidence, Missed, Signal, difference_of, share_of
from tests.support.upstreams import Message, calling, said


def read(message: Message) -> Content:
    return CHAT.read(json.dumps(message).encode())


def likeness(one: str, other: str) -> Comparison:
    return compared(read(said(one)), read(said(other)))


class TestComparison:
    def test_the_same_text_is_the_same_answer(self) -> None:
        assert likeness("It is open until ten.", "It is open until ten.") == (True, 1.0)
        assert likeness("", "") == (True, 1.0)

    def test_other_words_are_another_answer(self) -> None:
        assert not likeness("The bridge is open until ten.", "I cannot say that.").agrees

    def test_a_few_other_words_are_not(self) -> None:
        one = "The bridge on the northern road is open until ten in the evening."
        assert likeness(one, "The bridge on the northern road is open until ten every evening.").agrees

    def test_another_code_is_another_answer_whatever_stands_around_it(self) -> None:
        one = "The booking code that you gave me at the beginning of our talk was KX-77120-B."
        assert not likeness(one, one.replace("KX-77120-B", "QF-10034-A")).agrees

    def test_the_same_calls_are_the_same_however_their_arguments_are_written(self) -> None:
        one = calling(("c1", "look", '{"at": 1, "of": "x"}'), ("c2", "count", "{}"))
        other = calling(("c3", "count", " {} "), ("c4", "look", '{"of":"x","at":1.0}'))
        assert compared(read(one), read(other)) == (True, 1.0)

    @pytest.mark.parametrize(
        "other",
        [
            calling(("c1", "look", '{"at": 2}')),
            calling(("c1", "leap", '{"at": 1}')),
            calling(("c1", "look", '{"at": 1}'), ("c2", "look", '{"at": 1}')),
            said("look at 1"),
        ],
        ids=["other arguments", "another tool", "once more", "words"],
    )
    def test_other_calls_are_another_answer(self, other: Message) -> None:
        assert not compared(read(calling(("c1", "look", '{"at": 1}'))), read(other)).agrees

    def test_it_is_counted_by_arm_outcome_and_tenth(self) -> None:
        assert Comparison(agrees=True, likeness=1.0).evidence(Arm.WHOLE).counts() == {
            "whole:same": 1,
            "whole:like:9": 1,
        }
        assert Comparison(agrees=False, likeness=0.35).evidence(Arm.CONTROL).counts() == {
            "control:different": 1,
            "control:like:3": 1,
        }


class TestUsed:
    WHOLE = read(said("It is KX-77120-B, for /srv/bridge/plan.txt."))
    CUT = ((7, "KX-77120-B again"), (2, "KX-77120-B and /srv/bridge/plan.txt"))

    def test_what_neither_view_nor_answer_has_is_of_the_newest_message_that_has_it(self) -> None:
        found = used(self.WHOLE, read(said("Nobody said.")), "Hello", self.CUT)
        assert sorted(found) == [("/srv/bridge/plan.txt", 2), ("KX-77120-B", 7)]

    def test_what_the_view_has_was_not_lacking(self) -> None:
        view = strings_of(
            b'{"messages": [{"content": [{"text": "KX-77120-B"}]}], "of": "/srv/bridge/plan.txt"}'
        )
        assert used(self.WHOLE, read(said("Nobody said.")), view, self.CUT) == []

    def test_nor_was_what_the_answer_to_the_view_has(self) -> None:
        assert used(self.WHOLE, self.WHOLE, "Hello", self.CUT) == []

    def test_what_no_message_has_was_made_up(self) -> None:
        assert used(self.WHOLE, read(said("Nobody said.")), "Hello", ()) == []


class TestEvidence:
    def test_of_nothing_nothing_is_said(self) -> None:
        none = Evidence()
        assert share_of(0, 0) is None
        assert (none.agreement(Arm.WHOLE), none.difference, none.missed) == (None, None, [])
        assert none.counts() == {}

    def test_shares_have_wilsons_interval(self) -> None:
        found = share_of(8, 10)
        assert found is not None
        assert [round(each, 4) for each in astuple(found)] == [0.8, 0.4902, 0.9433]

    def test_differences_have_newcombes_interval(self) -> None:
        one, other = share_of(56, 70), share_of(48, 80)  # his own example
        assert one is not None
        assert other is not None
        assert [round(each, 4) for each in astuple(difference_of(one, other))] == [0.2, 0.0524, 0.3339]

    def test_one_arm_alone_proves_nothing(self) -> None:
        assert Evidence.of([{"whole:different": 5}]).difference is None

    def test_counts_are_read_by_kind_class_and_signal(self) -> None:
        counts = {
            "rerun:result:disposable": 3,
            "shown:rerun:result:disposable": 5,
            "shown:said_again:user:compressible": 1,
            "cut:result:disposable": 40,
            "of a newer release:x:y": 2,
        }
        assert Evidence.of([counts]).missed == [
            Missed("result", "disposable", Signal.RERUN, 3, 5),
            Missed("user", "compressible", Signal.SAID_AGAIN, 0, 1),
        ]
        assert Evidence.of([counts]).cut == {("result", "disposable"): 40}

    def test_counts_are_written_as_they_were_read(self) -> None:
        counts = {
            "whole:same": 3,
            "control:different": 1,
            "whole:like:9": 4,
            "unproven:busy": 2,
            "used:assistant:critical": 1,
            "shown:rerun:result:disposable": 5,
            "cut:user:compressible": 7,
            "spent": 11,
            "tokens": 400,
        }
        assert Evidence.of([counts]).counts() == counts

    def test_evidence_adds_up(self) -> None:
        total = Evidence.of([{"whole:same": 1, "spent": 5}, {"whole:same": 2, "whole:different": 1}])
        assert (total.pairs(Arm.WHOLE), total.spent) == (4, 5)
        assert total.agreement(Arm.WHOLE) == share_of(3, 4)

    def test_an_interval_holds_its_value_at_the_ends_too(self) -> None:
        none, all_of_them = share_of(0, 5), share_of(5, 5)
        assert none is not None
        assert all_of_them is not None
        assert (none.low, none.value, all_of_them.value, all_of_them.high) == (0, 0, 1, 1)
