"""The planner on conversations that can be followed by eye."""

from __future__ import annotations

import json
import math

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import EMPTY, Plan, apply, view_tokens
from proxy.core.planning.planner import draft, finish
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
    from_scratch,
    oddities,
    prose,
    result,
    session,
    system,
    turn,
    user,
)

BALANCED = Policy(stages=Stages(target=0.7), summary=Summary(max_tokens=150))


def text(number: int, words: int = 60, language: str = "en") -> str:
    return f"{number} {prose(language, words, number)}"


def talk(exchanges: int, words: int = 60, language: str = "en") -> list[Sent]:
    said = [
        message
        for n in range(exchanges)
        for message in (user(text(n, words // 3, language)), assistant(text(n, words, language)))
    ]
    return [*said, user("and now?")]


def agent(rounds: int, words: int = 60) -> list[Sent]:
    """One user message and many tool rounds."""
    steps = [m for n in range(rounds) for m in (calling(f"c{n}"), result(f"c{n}", text(n, words)))]
    return [user("Build the bridge."), *steps]


def at(usage: float, messages: list[Sent], policy: Policy = BALANCED, summary: str | None = None) -> Turn:
    """One request at this usage."""
    chain = chain_from(messages)
    return turn(chain, EMPTY, policy, Budget(math.ceil(sum(chain.tokens) / usage), 1.0, 0), summary)


def notes(plan: Plan) -> list[str]:
    return [Content.of(gap.note).text for gap in plan.gaps]


# --- stages


@pytest.mark.parametrize("usage", [0.1, 0.59, 0.7, 0.79])
def test_below_trim_nothing_is_cut(usage: float):
    assert at(usage, talk(20)).plan == EMPTY


@pytest.mark.parametrize("usage", [0.85, 0.95, 1.2, 3.0])
def test_from_trim_on_an_epoch_takes_the_view_to_the_goal(usage: float):
    done = at(usage, talk(30))
    assert done.begun is not None
    budget = done.begun.situation.budget
    assert done.tokens <= budget.share(0.7)
    assert not done.begun.yielded


def test_a_conversation_goes_through_every_stage():
    chain, budget = chain_from(talk(40)), Budget(2500, 1.0, 0)
    stages: list[Stage] = []
    for length in range(1, len(chain) + 1, 2):
        done = turn(chain.prefix(length), EMPTY, BALANCED, budget)
        stages.append(done.stage)
    assert list(dict.fromkeys(stages)) == [
        Stage.CALM,
        Stage.WARN,
        Stage.TRIM,
        Stage.COMPACT,
        Stage.EMERGENCY,
    ]


@pytest.mark.parametrize("head", [0, 1_000])
@pytest.mark.parametrize("summary", [None, "They built a bridge. " * 8])
@pytest.mark.parametrize(
    ("tokens", "trim", "compact", "target"),
    [(8_000, 0.8, 0.9, 0.7), (6_000, 0.6, 0.75, 0.5), (12_000, 0.9, 0.95, 0.8), (20_000, 0.8, 0.9, 0.5)],
    ids=["balanced", "conservative", "aggressive", "default"],
)
@pytest.mark.parametrize("messages", [talk(400), agent(300)], ids=["chat", "agent"])
def test_an_epoch_begins_at_trim_and_ends_within_five_points_of_its_goal(
    messages: list[Sent],
    tokens: int,
    trim: float,
    compact: float,
    target: float,
    summary: str | None,
    head: int,
):
    stages = Stages(warn=0.4, trim=trim, compact=compact, target=target)
    policy = Policy(stages=stages, summary=Summary(max_tokens=150))
    budget = Budget(tokens, 1.0, head)
    goal = head + target * (tokens - head)
    least = goal + 0.1 * (tokens - head)  # an epoch frees a tenth of the room
    begun = [each for each in session(chain_from(messages), policy, budget, summary) if each.begun]
    assert len(begun) >= 2
    for each in begun:
        before = head + view_tokens(each.before, each.chain.tokens)
        assert trim * tokens <= before <= max(trim * tokens, least) + 0.05 * tokens
        assert abs(head + each.tokens - goal) <= 0.05 * tokens


@pytest.mark.parametrize("asked", [40, 60, 80])
@pytest.mark.parametrize(
    ("trim", "compact", "target"),
    [(0.8, 0.9, 0.7), (0.6, 0.75, 0.5), (0.9, 0.95, 0.8), (0.8999, 0.9, 0.5)],
    ids=["balanced", "conservative", "aggressive", "at compact, where room is kept for a summary"],
)
def test_so_it_does_where_requests_are_long_and_are_quoted_and_little_is_exact(
    trim: float, compact: float, target: float, asked: int
):
    said = [each for n in range(100) for each in (user(text(n, asked)), assistant(text(n, 60)))]
    stages = Stages(warn=0.4, trim=trim, compact=compact, target=target)
    policy, budget = Policy(stages=stages), Budget(4_000, 1.0, 0)
    lived = session(chain_from([*said, user("and now?")]), policy, budget, "They built a bridge.")
    begun = [each for each in lived if each.begun]
    assert len(begun) >= 5
    for each in begun:
        assert abs(each.tokens - target * 4_000) <= 0.05 * 4_000


def test_after_an_epoch_a_session_is_calm_again_and_fills_up_anew():
    chain, budget = chain_from(talk(60)), Budget(2500, 1.0, 0)
    begun = [done for done in session(chain, BALANCED, budget) if done.begun is not None]
    assert len(begun) >= 2
    assert all(done.stage in (Stage.TRIM, Stage.COMPACT) for done in begun)
    assert all(done.tokens < 0.8 * 2500 for done in begun)


@pytest.mark.parametrize("policy", [Policy(), BALANCED])
def test_a_session_of_300_turns_keeps_fitting_and_is_seldom_rewritten(policy: Policy):
    chain, budget = chain_from(talk(300)), Budget(6000, 1.0, 200)
    done = list(session(chain, policy, budget))
    assert len(done) == 301
    assert all(budget.head + each.tokens <= budget.limit for each in done)
    epochs = sum(each.begun is not None for each in done)
    between = (policy.stages.trim - policy.stages.target) * budget.room
    assert 3 <= epochs <= sum(chain.tokens) / between + 1


def test_an_agent_of_300_rounds_keeps_fitting_with_one_user_message():
    chain, budget = chain_from(agent(300)), Budget(6000, 1.0, 200)
    done = list(session(chain, Policy(), budget))
    assert all(budget.head + each.tokens <= budget.limit for each in done)
    assert all(not oddities(each.view) for each in done)
    assert all(each.view[0] == chain.raws[0] for each in done)
    assert 3 <= sum(each.begun is not None for each in done) <= 60


def test_mixed_patterns_keep_fitting():
    messages = [
        *talk(10)[:-1],
        *agent(15),
        assistant("Done."),
        system("Answer briefly."),
        *talk(10, language="ja")[:-1],
        user([{"type": "text", "text": text(7)}, {"type": "image_url", "image_url": {"url": "u"}}]),
        assistant(text(3, 200)),
        *agent(10, words=200),
    ]
    budget = Budget(4000, 1.25, 100)
    for each in session(chain_from(messages), Policy(), budget):
        assert budget.head + each.tokens <= budget.limit
        assert not oddities(each.view)


def test_of_a_chain_of_errors_the_newest_are_kept():
    messages = [user("Build the bridge.")]
    for n in range(40):
        messages += [calling(f"c{n}"), result(f"c{n}", f"error {text(n, 40)}"), *talk(1)[1:2]]
        messages += [user(f"try again {n}")]
    done = at(0.95, messages)
    kept = [Content.of(raw).text for raw in done.view]
    assert any(each.startswith("error 39 ") for each in kept)
    results = [each for each in kept if each.startswith("error")]
    chat = [each for each in kept if each.startswith("0 ")]
    assert len(results) > len(chat)


# --- gaps


def gap_of(messages: int, failed: bool = False, summary: str = "") -> str:
    """The note of a gap of so many messages between two that stay."""
    middle = [assistant(text(n, 30)) for n in range(messages)]
    chain = chain_from([user("first"), *middle, user("last")])
    budget = Budget(math.ceil(sum(chain.tokens) / 0.95), 1.0, 0)
    policy = Policy(keep=Keep(recent=0.0), stages=Stages(target=0.0))
    decided = draft(Situation(chain, EMPTY, policy, budget, count), Stage.COMPACT)
    assert decided is not None
    assert decided.spans == ((1, messages + 1),)
    assert decided.wanted == (((1, messages + 1),) if messages >= 5 else ())
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
    assert "The request above was handled in these messages." in gap_of(5)


def test_a_gap_after_the_request_under_way_does_not_say_that_it_was_handled():
    done = at(0.95, agent(30))
    assert done.begun is not None
    (note,) = notes(done.plan)
    assert "handled" not in note
    assert "request above" in note


def test_a_gap_behind_a_system_message_after_a_request_says_that_it_was_handled():
    messages = [user("first"), system("Be brief."), *(assistant(text(n)) for n in range(9)), user("last")]
    done = at(0.95, messages, Policy(keep=Keep(recent=0.0), stages=Stages(target=0.2)))
    assert "The request above was handled" in notes(done.plan)[0]


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


def test_a_note_speaks_the_conversations_language():
    messages = [user("橋を作ってください"), *(assistant(text(n, 60, "ja")) for n in range(9)), user("次は?")]
    done = at(0.95, messages, Policy(keep=Keep(recent=0.0)))
    assert "件のメッセージを省略]" in notes(done.plan)[0]


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


# --- protections


def test_the_first_user_message_is_kept():
    assert at(0.95, talk(30)).view[0] == chain_from(talk(30)).raws[0]


def demonstrated(words: int = 1_500) -> list[Sent]:
    """A first user message that is a long demonstration, and a talk after it."""
    before, after = prose("en", words), prose("en", words)
    return [user(f"This is how it is done. {before} The key is K-4711. {after} Now do it."), *talk(10)[1:]]


def first_of(done: Turn) -> str:
    return Content.of(done.view[0]).text


@pytest.mark.parametrize(("keeps", "share"), [(True, 1 / 3), (0.5, 0.5), (0.2, 0.2)])
@pytest.mark.parametrize("usage", [0.85, 0.95])
def test_a_first_user_message_has_its_share_of_the_room_and_is_clipped_to_it(
    keeps: bool | float, share: float, usage: float
):
    policy = BALANCED.model_copy(update={"keep": Keep(first_user=keeps)})
    done = at(usage, demonstrated(), policy)
    assert done.begun is not None
    budget, text = done.begun.situation.budget, first_of(done)
    assert text.startswith("This is how it is done. ")
    assert text.endswith(" Now do it.")
    assert 0.8 * budget.share(share) <= count(text) <= budget.share(share)
    assert "K-4711" not in text
    assert "K-4711" in notes(done.plan)[-1]


def test_a_first_user_message_within_its_share_is_left_as_it_is():
    policy = BALANCED.model_copy(update={"keep": Keep(first_user=1.0)})
    assert first_of(at(0.85, demonstrated(), policy)) == demonstrated()[0]["content"]
    assert first_of(at(0.85, demonstrated(100))) == demonstrated(100)[0]["content"]


def test_a_last_user_message_is_never_clipped_even_when_it_is_the_first():
    messages = [demonstrated(800)[0], *agent(20)[1:]]
    done = at(0.95, messages)
    assert done.plan.gaps
    assert done.view[0] == chain_from(messages).raws[0]


def test_a_first_user_message_that_is_pinned_is_never_clipped_for_its_share():
    policy = BALANCED.model_copy(update={"keep": Keep(pins=("K-4711",))})
    assert first_of(at(0.85, demonstrated(), policy)) == demonstrated()[0]["content"]


def test_a_clip_alone_brings_a_note_for_what_it_leaves_out():
    messages = [demonstrated()[0], assistant(text(0)), user("And now?")]
    done = at(0.85, messages)
    assert [gap.span for gap in done.plan.gaps] == [(1, 2)]
    assert "K-4711" in notes(done.plan)[0]


def test_a_clipped_first_message_stays_as_it_is_until_its_share_is_less():
    done = at(0.85, demonstrated())
    longer = chain_from([*demonstrated(), assistant("Done."), user(text(9, 1_400))])
    again = turn(longer, done.plan, BALANCED, budget_of(done))
    assert again.begun is not None
    assert first_of(again) == first_of(done)


def budget_of(done: Turn) -> Budget:
    assert done.begun is not None
    return done.begun.situation.budget


def test_the_newest_units_are_kept():
    chain, done = chain_from(talk(30)), at(0.95, talk(30))
    assert done.view[-6:] == list(chain.raws[-6:])


def test_pinned_messages_are_kept():
    policy = BALANCED.model_copy(update={"keep": Keep(pins=("^7 ",))})
    done = at(1.5, talk(30), policy)
    assert {14, 15} <= {place for place in range(61) if not done.plan.covers(place)}


def test_of_identical_system_messages_the_newest_is_kept():
    messages = talk(30)
    messages.insert(4, system("Be brief."))
    messages.insert(12, system("Be brief."))
    done = at(1.0, messages, Policy(keep=Keep(recent=0.1), stages=Stages(target=0.2)))
    assert not done.plan.covers(12)
    assert done.plan.covers(4)


def test_protections_yield_in_their_order():
    messages = [user("0 first " + prose("en", 40)), *talk(30)[1:]]
    chain = chain_from(messages)
    policy = Policy(keep=Keep(recent=0.5, pins=("^9 ",)))
    lost: list[str] = []
    for tokens in range(1500, 20, -20):
        done = turn(chain, EMPTY, policy, Budget(tokens, 1.0, 0))
        for name, place in (("recent", 59), ("first", 0), ("pin", 19)):
            clipped = any(edit.position == place for edit in done.plan.replacements)
            if (clipped or done.plan.covers(place)) and name not in lost:
                lost.append(name)
    assert lost == ["recent", "first", "pin"]


# --- clipping


def test_a_result_too_large_for_the_budget_is_clipped_in_the_open_unit():
    messages = [*talk(3)[:-1], user("look"), calling("a"), result("a", text(1, 5000))]
    budget = Budget(2000, 1.0, 0)
    done = turn(chain_from(messages), EMPTY, Policy(), budget)
    assert done.tokens <= 2000
    (edit,) = done.plan.replacements
    assert edit.position == 8
    assert Content.of(edit.raw).result_of == ("a",)
    assert not oddities(done.view)


def test_large_parallel_results_are_all_clipped_where_they_must():
    ids = ["a", "b", "c"]
    messages = [user("look"), calling(*ids), *(result(call, text(n, 5000)) for n, call in enumerate(ids))]
    done = turn(chain_from(messages), EMPTY, Policy(), Budget(2000, 1.0, 0))
    assert done.tokens <= 2000
    assert not oddities(done.view)


def test_a_result_of_several_large_parts_is_clipped_to_fit():
    parts = [{"type": "text", "text": text(n, 3000)} for n in range(4)]
    messages = [user("look"), calling("a"), result("a", parts)]
    done = turn(chain_from(messages), EMPTY, Policy(), Budget(2000, 1.0, 0))
    assert done.tokens <= 2000


def test_a_first_request_of_several_parts_is_clipped_as_far_as_it_must_be():
    parts = [{"type": "text", "text": prose("loud", words)} for words in (1, 38, 60)]
    messages = [user(parts), assistant(""), user(""), assistant(""), user(prose("en", 180))]
    budget = Budget(404, 1.0, 3)
    done = turn(chain_from(messages), EMPTY, Policy(), budget)
    assert [edit.position for edit in done.plan.replacements] == [0]
    assert budget.head + done.tokens <= 404


def test_a_clip_stays_in_the_next_request():
    messages = [user("look"), calling("a"), result("a", text(1, 5000))]
    budget = Budget(2000, 1.0, 0)
    first = turn(chain_from(messages), EMPTY, Policy(), budget)
    longer = chain_from([*messages, assistant("Seen."), user("and now?")])
    second = turn(longer, first.plan, Policy(), budget)
    assert second.view[: len(first.view)] == first.view


# --- fold


def test_a_chain_that_never_was_full_folds_to_nothing():
    assert from_scratch(chain_from(talk(5)), BALANCED, Budget(100_000, 1.0, 0), count) == (EMPTY, 0)


def test_a_first_request_far_over_the_budget_is_folded_until_it_fits():
    chain, budget = chain_from(talk(200)), Budget(3000, 1.0, 100)
    plan, epochs = from_scratch(chain, BALANCED, budget, count)
    assert view_tokens(plan, chain.tokens) <= budget.room
    assert epochs > 3
    assert apply(plan, chain.raws)[-1] == chain.raws[-1]


def test_a_fold_is_what_the_requests_themselves_would_have_come_to_at_compact():
    chain, budget = chain_from(talk(80)), Budget(3000, 1.0, 100)
    policy = BALANCED.model_copy(update={"stages": Stages(trim=0.899999, target=0.7)})
    lived = list(session(chain, policy, budget))[-1]
    plan, epochs = from_scratch(chain, policy, budget, count)
    assert epochs == 8  # of as many it writes every ledger
    assert plan == lived.plan


def test_emergency_without_anything_to_cut_changes_nothing():
    chain = chain_from([user(text(1, 900))])
    done = turn(chain, EMPTY, Policy(), Budget(100, 1.0, 0))
    assert (done.stage, done.plan) == (Stage.EMERGENCY, EMPTY)


def test_an_empty_chain_is_planned_as_it_is():
    chain = chain_from([system("only a head")])
    assert from_scratch(chain, Policy(), Budget(10, 1.0, 50), count)[0] == EMPTY


def test_results_that_are_still_to_be_answered_keep_half_of_what_there_is_room_for():
    steps = [calling("a", "b"), result("a", prose("en", 120)), result("b", prose("en", 120, 7))]
    messages = [user(prose("en", 150)), *steps]
    done = turn(chain_from(messages), EMPTY, BALANCED, Budget(300, 1.0, 0), None)
    clipped = [Content.of(edit.raw).text for edit in done.plan.replacements]
    assert len(clipped) == 2
    assert all(len(text) > 60 and "left out" in text for text in clipped)
    assert done.tokens <= 300
