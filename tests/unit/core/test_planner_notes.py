"""What stands in a gap: summaries, notices, quotes, and what the note says of the request before it."""

from __future__ import annotations

import json
import math

import pytest

from proxy.adapters.tokens import TiktokenCounter
from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.gaps import gap_with_note
from proxy.core.planning.ledger import add_ledger
from proxy.core.planning.plan import EMPTY, Gap, Plan
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Stages, Summary
from tests.support.conversations import (
    Sent,
    Turn,
    assistant,
    calling,
    chain_from,
    count,
    encode,
    result,
    session,
    system,
    turn,
    user,
)
from tests.support.planned import BALANCED, agent, at, notes, talk, text


def gap_of(messages: int, failed: bool = False, summary: str = "") -> str:
    """The note of a gap of so many messages between two that stay."""
    middle = [assistant(text(n, 30)) for n in range(messages)]
    chain = chain_from([user("first"), *middle, user("last")])
    budget = Budget(math.ceil(sum(chain.tokens) / 0.95), 1.0, 0)
    policy = Policy(keep=Keep(recent=0.0), stages=Stages(target=0.0))
    decided = draft_epoch(Situation(chain, EMPTY, policy, budget, count), Stage.COMPACT)
    assert decided is not None
    assert decided.spans == ((1, messages + 1),)
    assert decided.unsummarised_spans == (((1, messages + 1),) if messages >= 5 else ())
    given = {(1, messages + 1): None if failed else summary} if failed or summary else {}
    (note,) = notes(finish(decided, given))
    return note


def test_a_gap_of_four_messages_gets_a_notice():
    assert "[4 messages omitted]" in gap_of(4)


def test_a_gap_of_five_messages_wants_a_summary():
    assert "Summary of 5 earlier messages: Stones." in gap_of(5, summary="Stones.")


def test_a_gap_whose_summary_failed_says_removed():
    assert "[6 messages removed]" in gap_of(6, failed=True)


def test_a_gap_whose_summary_was_not_waited_for_says_omitted():
    assert "[6 messages omitted]" in gap_of(6)


def test_a_gap_after_a_request_says_that_it_was_handled():
    assert "The request above was answered in these messages." in gap_of(5)


def test_a_gap_after_the_request_under_way_does_not_say_that_it_was_handled():
    done = at(0.95, agent(30))
    assert done.begun is not None
    (note,) = notes(done.plan)
    assert "answered" not in note
    assert "request above" in note


def test_a_gap_behind_a_system_message_after_a_request_says_that_it_was_handled():
    messages = [user("first"), system("Be brief."), *(assistant(text(n)) for n in range(9)), user("last")]
    done = at(0.95, messages, Policy(keep=Keep(recent=0.0), stages=Stages(target=0.2)))
    assert "The request above was answered" in notes(done.plan)[0]


def test_a_request_that_goes_with_its_answer_is_quoted():
    policy = Policy(keep=Keep(recent=0.0, pins=("^pinned",)))
    messages = [user("first"), assistant("pinned")]
    for n in range(12):
        messages += [user(f"please lay stone number {n}"), assistant(text(n, 80))]
    done = at(0.95, [*messages, user("last")], policy)
    assert done.begun is not None
    quoted = [quote for gap in done.begun.outline.gaps for quote in gap.quotes]
    assert quoted
    for quote in quoted:
        assert quote.startswith("please lay stone number ")
        assert any(f"“{quote}”" in note for note in notes(done.plan))
        assert user(quote) not in [json.loads(raw) for raw in done.view]


def test_a_request_that_was_made_again_and_again_is_quoted_once():
    asked = ["lay a stone", "go on", "go on", "lay a stone", "go on", "go on", "go on", "go on"]
    work = [m for n, each in enumerate(asked) for m in (user(each), assistant(text(n, 80)))]
    done = at(0.95, [user("first"), assistant("Yes."), *work, user("last")], Policy(keep=Keep(recent=0.0)))
    (note,) = notes(done.plan)
    assert note.count("“go on”") == note.count("“lay a stone”") == 1


def test_what_people_said_is_quoted_before_what_they_only_asked():
    said = [
        "We decided against the ferry.",
        "Subletting is out of the question.",
        "部屋は静かな方がいいです。",
    ]
    asked = [
        *said,
        *(f"What is stone number {n} for, and who laid it there in the first place?" for n in range(60)),
    ]
    work = [m for n, each in enumerate(asked) for m in (user(each), assistant(text(n, 20)))]
    done = at(0.95, [user("first"), assistant("Yes."), *work, user("last")], Policy(keep=Keep(recent=0.0)))
    quoted = [quote for gap in done.plan.gaps for quote in gap.quotes]
    assert quoted[: len(said)] == said
    assert 0 < len(quoted[len(said) :]) < 20


@pytest.mark.parametrize(
    "said",
    [
        "最近は暑くてマスクをつけるのが大変だと思います、{}番目です。",
        "Stone number {} is to go to the left of the old gate",
    ],
)
def test_quotes_take_the_same_share_of_the_room_in_every_language(said: str):
    work = [m for n in range(150) for m in (user(said.format(n)), assistant(text(n, 20)))]
    chain, tokens = (
        chain_from([user("first"), assistant("Yes."), *work, user("last")]),
        TiktokenCounter().count,
    )
    situation = Situation(
        chain, EMPTY, Policy(keep=Keep(recent=0.0)), Budget(chain.tokens.total, 1.0, 0), tokens
    )
    decided = draft_epoch(situation, Stage.COMPACT)
    assert decided is not None
    (gap,) = decided.outline.gaps
    assert 0.05 < sum(map(tokens, gap.quotes)) / situation.budget.room <= 0.06


def test_a_request_without_words_is_not_quoted():
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/stone.png"}}
    messages = [user("first"), assistant("Yes.")]
    for n in range(12):
        messages += [{"role": "user", "content": [picture]}, assistant(text(n, 80))]
    done = at(0.95, [*messages, user("last")], Policy(keep=Keep(recent=0.0)))
    assert notes(done.plan)
    assert not any("Earlier requests" in note for note in notes(done.plan))


def test_a_note_speaks_the_conversations_language():
    messages = [user("橋を作ってください"), *(assistant(text(n, 60, "ja")) for n in range(9)), user("次は?")]
    done = at(0.95, messages, Policy(keep=Keep(recent=0.0)))
    assert "件のメッセージを省略]" in notes(done.plan)[0]


def test_a_note_of_work_alone_speaks_the_language_of_the_order_long_before():
    order, answer = user("Bitte baue die Brücke und nimm dafür Stein."), assistant("Das mache ich.")
    work = [m for n in range(9) for m in (calling(f"c{n}"), result(f"c{n}", text(n)))]
    chain = chain_from([order, answer, *work])
    gap = gap_with_note(Situation(chain, EMPTY, BALANCED, Budget(4_000, 1.0, 0), count), (10, 14), (), ())
    assert "[4 Nachrichten ausgelassen]" in Content.of(gap.note).text


def test_a_notes_role_is_the_policys():
    policy = BALANCED.model_copy(update={"summary": Summary(role="system")})
    done = at(0.95, talk(30), policy)
    assert {json.loads(gap.note)["role"] for gap in done.plan.gaps} == {"system"}


def test_a_summary_stays_in_its_note():
    chain, budget = chain_from(talk(80)), Budget(2500, 1.0, 0)
    done = [each for each in session(chain, BALANCED, budget, "They built a bridge.") if each.begun]
    assert len(done) >= 2
    assert all("They built a bridge." in notes(each.plan)[0] for each in done)


def test_a_gap_that_grows_without_a_new_summary_keeps_what_the_old_one_said():
    chain, budget = chain_from(talk(80)), Budget(2500, 1.0, 0)
    plan, notes_seen = EMPTY, list[str]()
    for length in range(1, len(chain) + 1, 2):
        done = turn(
            chain.prefix(length), plan, BALANCED, budget, None if notes_seen else "They built a bridge."
        )
        plan = done.plan
        if done.begun is not None:
            notes_seen += [note for note in notes(plan) if "They built a bridge." in note]
    first, *later = notes_seen
    assert later
    counted = int(first.split("Summary of ")[1].split()[0])
    for note in later:
        assert f"Summary of {counted} earlier messages: They built a bridge." in note
    assert "messages omitted]" in later[-1]


# --- where the budget has no room for a note


def beside_the_last(messages: list[Sent], left: int) -> Turn:
    """A request whose last user message leaves so many tokens of the budget."""
    chain = chain_from(messages)
    budget = Budget(chain.last_user_tokens + left, 1.0, 0, last_user_tokens=chain.last_user_tokens)
    done = turn(chain, EMPTY, Policy(), budget)
    assert done.tokens <= chain.last_user_tokens + left
    return done


LAST = user(text(0, 1_000))


@pytest.mark.parametrize("left", [0, 10, 30])
def test_where_the_last_message_leaves_no_room_for_a_note_nothing_stands_for_what_is_cut(left: int):
    done = beside_the_last([*talk(10)[:-1], LAST], left)
    assert done.view == [encode(LAST)]
    assert done.plan.cut == 20


def test_where_it_leaves_no_room_for_quotes_a_note_goes_without_them():
    (short,) = notes(beside_the_last([*talk(10)[:-1], LAST], 40).plan)
    (whole,) = notes(beside_the_last([*talk(10)[:-1], LAST], 150).plan)
    assert "[20 messages omitted]" in short
    assert "[20 messages omitted]" in whole
    assert "“" in whole
    assert "“" not in short


def test_what_is_shorter_than_a_note_about_it_goes_too_where_it_has_no_room():
    assert beside_the_last([user("Hi."), assistant("Hello."), LAST], 0).view == [encode(LAST)]


def test_where_an_agents_request_leaves_no_room_for_a_note_its_newest_step_stays():
    messages = [user("Hi."), assistant("Hello."), LAST, *agent(10)[1:]]
    done = beside_the_last(messages, 40)
    assert done.view[:2] == [encode(message) for message in (LAST, messages[-2])]
    assert len(done.view) == 3


def test_what_was_cut_without_a_note_is_told_by_the_next_note():
    messages = [*talk(10)[:-1], LAST]
    done = beside_the_last(messages, 0)
    after = [*messages, assistant("Read."), user("And now?")]
    budget = Budget(done.tokens, 1.0, 0)
    again = turn(chain_from(after), done.plan, Policy(keep=Keep(first_user=False)), budget)
    assert "[21 messages omitted]" in notes(again.plan)[0]
    roomy = turn(chain_from(after), done.plan, Policy(), Budget(2_000, 1.0, 0))
    assert roomy.begun is None
    assert roomy.view == [encode(message) for message in after[20:]]


def test_a_ledger_waits_for_a_gap_with_a_note():
    chain = chain_from([*talk(10)[:-1], LAST])
    plan = Plan((Gap(0, 20),))
    situation = Situation(chain, plan, Policy(), Budget(10_000, 1.0, 0), count)
    assert add_ledger(situation, plan) == plan


def test_a_request_whose_answer_was_cut_while_it_was_the_newest_is_quoted_once_it_is_cut():
    steps = [m for n in range(60) for m in (calling(f"c{n}"), result(f"c{n}", text(n, 80)))]
    talked = [m for n in range(20) for m in (user(f"And now stone {n}?"), assistant(text(n, 80)))]
    task = "Build the bridge over the northern river."
    messages = [user("Hello"), assistant("Good day."), user(task), *steps, assistant("Done."), *talked]
    done = [*session(chain_from([*messages, user("last")]), BALANCED, Budget(1_500, 1.0, 0))]
    views = [[Content.of(raw).text for raw in each.view] for each in done[2:]]
    assert task not in views[-1]
    assert all(any(task in each for each in view) for view in views)
