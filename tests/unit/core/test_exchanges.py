"""The strategy `exchanges`: what rolls, what its note says, and which answers are condensed."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import Draft
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.planning.plan import EMPTY, Plan, apply
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Situation
from proxy.core.planning.strategies import strategy_of
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Ledger, Strategy, Summary
from proxy.core.text.cutting import size
from tests.support.conversations import (
    assistant,
    calling,
    chain_from,
    count,
    result,
    session,
    system,
    turn,
    user,
)
from tests.support.strategies import ROOMY, gone, talk

ROLLING = Policy(strategy=Strategy(name="exchanges", exchanges=3, roll_to=2))


def rolled(exchanges: int, policy: Policy = ROLLING, summary: str | None = None, words: str = "") -> Plan:
    """The plan after so many exchanges, played from the first."""
    said = [m for n in range(exchanges) for m in (user(f"ask {n}"), assistant(f"answer {n}. {words}"))]
    chain = chain_from([*said, user("and now?")])
    *_, last = session(chain, policy, ROOMY, summary)
    return last.plan


def note(plan: Plan) -> str:
    (gap,) = plan.gaps
    return Content.of(gap.note).text


def test_past_so_many_exchanges_the_older_ones_roll_into_a_note_at_any_usage():
    assert rolled(2).gaps == ()
    plan = rolled(3)
    assert [(gap.start, gap.end) for gap in plan.gaps] == [(0, 4)]
    assert "Summary of 4 earlier messages: [user] ask 0\n[assistant] answer 0.\n[user] ask 1" in note(plan)


def test_the_default_rolls_at_the_eleventh_exchange_and_keeps_five():
    policy = Policy(strategy=Strategy(name="exchanges"))
    assert rolled(9, policy).gaps == ()
    assert [(gap.start, gap.end) for gap in rolled(10, policy).gaps] == [(0, 12)]
    assert [(gap.start, gap.end) for gap in rolled(15, policy).gaps] == [(0, 12)]
    assert [(gap.start, gap.end) for gap in rolled(16, policy).gaps] == [(0, 24)]


def test_an_exchange_ends_where_the_next_request_begins():
    rounds = [m for n in range(9) for m in (calling(f"c{n}"), result(f"c{n}", "ok"))]
    assert gone([user("look"), *rounds, assistant("seen"), *talk(1)], UNKNOWN_CONDITIONS, ROLLING) == []
    assert gone(
        [user("look"), user("there"), *rounds, assistant("seen"), *talk(2)], UNKNOWN_CONDITIONS, ROLLING
    ) == [*range(23)]


def test_pins_and_later_system_messages_do_not_roll_and_count_as_no_exchange():
    policy = ROLLING.model_copy(update={"keep": Keep(pins=("^[01] ",))})
    assert gone([*talk(2)[:-1], system("Be brief."), *talk(4)[4:]], UNKNOWN_CONDITIONS, policy) == []
    messages = [*talk(2)[:-1], system("Be brief."), *talk(6)[4:]]
    assert gone(messages, UNKNOWN_CONDITIONS, policy) == [5, 6, 7, 8, 9, 10]


def test_what_was_told_before_stays_above_what_rolls_next():
    told = note(rolled(7))
    assert re.findall(r"\[user\] (ask \d)", told) == [f"ask {n}" for n in range(6)]


def test_a_long_answer_stands_condensed_and_a_long_note_is_compressed():
    long = "lorem ipsum " * 80
    plan = rolled(3, words=long)
    (anchor,) = plan.gaps[0].anchors
    assert anchor.by_code
    assert [size(line) <= len("[assistant] ") + 500 for line in anchor.text.split("\n")] == [True] * 4
    sizes = [size(rolled(n, words=long).gaps[0].anchors[0].text) for n in range(3, 40, 2)]
    assert max(sizes) <= 4000
    assert any(later < earlier for earlier, later in pairwise(sizes))
    assert "[user] ask 37\n[assistant] answer 37. lorem" in note(rolled(40, words=long))


def test_a_model_is_asked_only_where_something_would_be_lost():
    for words, is_wanted in (("", False), ("lorem ipsum " * 80, True)):
        said = [m for n in range(5) for m in (user(f"ask {n}"), assistant(f"answer {n}. {words}"))]
        chain = chain_from([*said, user("and now?")])
        decided = draft_epoch(Situation(chain, EMPTY, ROLLING, ROOMY, count), Stage.CALM)
        assert decided is not None
        assert bool(decided.unsummarised_spans) == is_wanted
        assert decided.waits_for_summaries


def test_a_models_summary_takes_the_place_of_the_truncated_record_if_it_is_short_enough():
    policy = ROLLING.model_copy(update={"summary": Summary(min_gap=2)})
    long = "lorem ipsum " * 80
    (anchor,) = rolled(3, policy, summary="They asked twice.", words=long).gaps[0].anchors
    assert (anchor.text, anchor.by_code) == ("They asked twice.", False)
    (anchor,) = rolled(3, policy, summary="They asked. " * 400, words=long).gaps[0].anchors
    assert anchor.by_code
    assert "[user] ask 0" in anchor.text


def test_where_as_many_stay_as_may_be_there_one_exchange_rolls_at_a_time():
    one_by_one = Policy(strategy=Strategy(name="exchanges", exchanges=3, roll_to=3))
    assert rolled(2, one_by_one).gaps == ()
    assert [rolled(n, one_by_one).gaps[0].span for n in (3, 4, 5)] == [(0, 2), (0, 4), (0, 6)]
    assert re.findall(r"ask \d", note(rolled(5, one_by_one))) == ["ask 0", "ask 1", "ask 2"]


def test_what_code_compresses_keeps_something_of_every_exchange():
    for exchanges in range(21, 62, 8):
        told = note(rolled(exchanges, words="lorem ipsum " * 80))
        assert re.findall(r"\[user\] ask (\d+)", told) == [str(n) for n in range(exchanges - 1)]


def test_what_a_model_wrote_before_stays_above_what_code_compresses():
    policy = ROLLING.model_copy(update={"summary": Summary(min_gap=2)})
    plan, long = EMPTY, "lorem ipsum " * 80
    said = [m for n in range(40) for m in (user(f"ask {n}"), assistant(f"answer {n}. {long}"))]
    for n in range(1, 40):  # the model answers once, and then never again
        prefix = chain_from([*said[: 2 * n], user("and now?")])
        plan = turn(prefix, plan, policy, ROOMY, "They asked twice. " * 9 if n == 3 else None).plan
    told = note(plan)
    assert size(plan.gaps[0].anchors[0].text) <= 4000
    assert "They asked twice. They asked twice." in told
    assert re.findall(r"\[user\] ask (\d+)", told) == [str(n) for n in range(2, 38)]


ACTIVE = Policy(
    strategy=Strategy(name="exchanges", exchanges=3, roll_to=3, condense_active=True), ledger=Ledger(share=0)
)
LONG = "lorem ipsum " * 80


def condensing(exchanges: int, policy: Policy = ACTIVE) -> tuple[list[str], Plan]:
    """The view after so many exchanges with long answers, as texts, and its plan."""
    said = [m for n in range(exchanges) for m in (user(f"ask {n}"), assistant(f"answer {n}. {LONG}"))]
    chain = chain_from([*said, user("and now?")])
    *_, last = session(chain, policy, ROOMY)
    return [Content.of(raw).text for raw in apply(last.plan, chain.raws)], last.plan


def test_when_a_roll_begins_long_answers_that_stay_give_way_to_notes_behind_their_questions():
    view, plan = condensing(3)
    assert [gap.span for gap in plan.gaps] == [(0, 2), (3, 4), (5, 6)]
    assert [view[1], view[3], view[5]] == ["ask 1", "ask 2", "and now?"]
    for n, told in ((1, view[2]), (2, view[4])):
        assert f"[assistant] answer {n}. lorem" in told
        assert "The request above was answered" in told
        assert size(told) < size(LONG)


def test_between_rolls_no_answer_is_condensed():
    policy = ACTIVE.model_copy(
        update={"strategy": ACTIVE.strategy.model_copy(update={"exchanges": 4, "roll_to": 2})}
    )
    assert [gap.span for gap in condensing(4, policy)[1].gaps] == [(0, 6), (7, 8)]
    assert [gap.span for gap in condensing(5, policy)[1].gaps] == [(0, 6), (7, 8)]
    assert [gap.span for gap in condensing(7, policy)[1].gaps] == [(0, 12), (13, 14)]


def test_a_condensed_answer_rolls_with_its_question():
    view, plan = condensing(4)
    assert [gap.span for gap in plan.gaps] == [(0, 4), (5, 6), (7, 8)]
    assert re.findall(r"(?:ask|answer) \d", view[0]) == ["ask 0", "answer 0", "ask 1", "answer 1"]
    assert size(view[0]) < 4000


def test_answers_that_are_pinned_or_short_stay_as_they_are():
    pinned = ACTIVE.model_copy(update={"keep": Keep(pins=("answer 2",))})
    assert [gap.span for gap in condensing(3, pinned)[1].gaps] == [(0, 2), (3, 4)]
    wide = ACTIVE.strategy.model_copy(update={"answer_max": 5000, "answer_to": 900})
    assert [gap.span for gap in condensing(3, ACTIVE.model_copy(update={"strategy": wide}))[1].gaps] == [
        (0, 2)
    ]


@pytest.mark.parametrize(
    "words",
    [
        "The bridge is built of stone, and the mayor has seen it. ",
        "Die Brücke ist aus Stein gebaut, und der Bürgermeister hat sie gesehen. ",
        "Le pont est en pierre, et le maire de la ville est venu le voir. ",
        "El puente es de piedra, y el alcalde de la ciudad lo ha visto. ",
        "橋は石でできていて、市長はそれを見に来ました。",
        "这座桥是用石头建造的,市长已经来看过了。",
    ],
)
def test_a_note_about_an_answer_is_never_longer_than_the_answer(words: str):
    for length in range(200, 1000, 40):
        answer = (words * 30)[:length]
        said = [m for n in range(3) for m in (user(f"{n} {words}"), assistant(f"{n} {answer}"))]
        chain = chain_from([*said, user("and now?")])
        plan = turn(chain, EMPTY, ACTIVE, ROOMY).plan
        for gap in plan.gaps[1:]:
            assert len(gap.note) <= len(chain.raws[gap.start])


def test_a_record_by_code_gives_way_to_a_summary_later():
    gap = rolled(3, words="lorem ipsum " * 80).gaps[0]
    assert not gap.is_summarised


def test_a_note_of_exchanges_that_does_not_fit_the_budget_gives_way_to_a_notice():
    said = [m for n in range(3) for m in (user(f"ask {n}"), assistant(f"{n} " + "lorem ipsum " * 60))]
    chain = chain_from([*said, user("and now?")])
    policy = ROLLING.model_copy(update={"ledger": Ledger(share=0.0)})
    roomy = finish(_drafted(chain, policy, 1_000), {})
    tight = finish(_drafted(chain, policy, 440), {})
    assert "lorem" in note(roomy)
    assert "[4 messages omitted]" in note(tight)


def _drafted(chain: Chain, policy: Policy, tokens: int) -> Draft:
    decided = draft_epoch(Situation(chain, EMPTY, policy, Budget(tokens, 1.0, 0), count), Stage.CALM)
    assert decided is not None
    return decided


# --- several gaps: what stays between the exchanges that roll divides the running summary


def beside_the_time(exchanges: int, words: str, *, told_before: int = 0, every: int = 1) -> Chain:
    """A conversation in which the client tells the time before each question, or before some."""
    said = list[bytes]()
    for n in range(exchanges):
        said += [system(f"It is {n} o'clock.")] if n >= told_before and not n % every else []
        said += [user(f"ask {n}"), assistant(f"answer {n}. {words}")]
    return chain_from([*said, user("and now?")])


def told_by_notes(plan: Plan) -> list[str]:
    return [anchor.text for anchor in plan.anchors]


@pytest.mark.parametrize(("told_before", "every"), [(0, 1), (12, 100), (0, 7)])
@pytest.mark.parametrize("summary", [None, "They spoke of it at length, and it was settled in the end."])
def test_the_notes_of_all_gaps_have_the_bytes_of_one_summary_and_tell_of_each_exchange(
    told_before: int, every: int, summary: str | None
):
    chain = beside_the_time(50, "it was so. " * 40, told_before=told_before, every=every)
    for each in session(chain, ROLLING, ROOMY, summary):
        texts = told_by_notes(each.plan)
        assert sum(map(size, texts)) <= 4000
        assert len(texts) == len(each.plan.gaps)
        if summary is None:
            found = [int(number) for text in texts for number in re.findall(r"\[user\] ask (\d+)", text)]
            assert found == [*range(sum(each.plan.covers(place) for place in chain.exchange_starts))]


def test_a_note_before_a_later_system_message_leaves_what_follows_its_share():
    policy = ROLLING.model_copy(update={"ledger": Ledger(share=0.0)})
    chain = beside_the_time(60, "it was so. " * 20, told_before=20, every=20)
    *_, last = session(chain, policy, ROOMY)
    exchanges = [gap.count // 2 for gap in last.plan.gaps]
    assert exchanges == [20, 20, 18]
    assert all(900 <= size(text) <= 1500 for text in told_by_notes(last.plan))


def test_notes_stay_word_for_word_while_all_fit_together():
    chain = beside_the_time(40, "", told_before=20, every=20)
    plans = [each.plan for each in session(chain, ROLLING, ROOMY)]
    first = {plan.gaps[0].note for plan in plans if len(plan.gaps) > 1}
    assert len(first) == 1
    assert "".join(told_by_notes(plans[-1])).count("[user] ask") == 38


def test_no_model_is_asked_for_a_text_of_fewer_than_a_hundred_bytes():
    for exchanges, is_asked in ((4, True), (60, False)):
        chain = beside_the_time(exchanges, "it was so. " * 80)
        decided = draft_epoch(Situation(chain, EMPTY, ROLLING, ROOMY, count), Stage.CALM)
        assert decided is not None
        assert bool(decided.unsummarised_spans) == is_asked


def test_no_model_is_asked_to_shorten_a_note_that_gives_way_to_others():
    chain = beside_the_time(40, "it was so. " * 40, told_before=12, every=100)
    for each in session(chain, ROLLING, ROOMY):
        assert all(
            not strategy_of("exchanges").wants_summary(
                Situation(chain, each.plan, ROLLING, ROOMY, count), *gap.span
            )
            for gap in each.plan.gaps
        )


def test_no_model_is_asked_to_condense_an_answer_that_would_have_no_room_then():
    for exchanges, are_condensed in ((4, True), (20, False)):
        chain = beside_the_time(exchanges, "it was so. " * 80)
        decided = draft_epoch(Situation(chain, EMPTY, ROLLING, ROOMY, count), Stage.CALM)
        assert decided is not None
        assert decided.unsummarised_spans
        for span in decided.unsummarised_spans:
            assert bool(RunningSummary.of(decided.situation, *span).long_answers) == are_condensed
