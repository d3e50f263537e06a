"""What is kept while there is room, in which order it yields, and what is clipped at last."""

from __future__ import annotations

from random import Random

import pytest

from proxy.core.budget.budget import UNKNOWN_WINDOW, Budget, Window, WindowSource
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import EMPTY, view_tokens
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Stages
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
from tests.support.planned import BALANCED, agent, at, notes, talk, text


def test_the_first_user_message_is_kept():
    assert at(0.95, talk(30)).view[0] == chain_from(talk(30)).raws[0]


def demonstrated(words: int = 1_500) -> list[Sent]:
    """A first user message that is a long demonstration, and a talk after it."""
    before, after = prose("en", words), prose("en", words)
    return [user(f"This is how it is done. {before} The key is K-4711. {after} Now do it."), *talk(10)[1:]]


def first_of(done: Turn) -> str:
    return Content.of(done.view[0]).text


@pytest.mark.parametrize(("keeps", "share"), [(True, 1 / 5), (0.5, 0.5), (0.2, 0.2)])
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


def test_behind_a_demonstration_the_first_message_that_says_what_to_do_is_kept_too():
    shown = user(f"This is how.\n--- DEMONSTRATION ---\n{prose('en', 900)}\n--- END OF DEMONSTRATION ---")
    task = user("Mend the bridge K-7. " + prose("en", 20))
    steps = [m for n in range(30) for m in (assistant(text(n)), user(f"Go on {n}."))]
    for before in ([shown], [shown, assistant("I see."), shown]):
        messages = [*before, task, *steps]
        done, raws = at(0.95, messages), chain_from(messages).raws
        assert first_of(done).startswith("This is how.\n--- DEMONSTRATION")
        assert raws[len(before)] in done.view
    plain = [user(prose("en", 90)), task, *steps]
    assert chain_from(plain).raws[1] not in at(0.95, plain).view


def test_a_long_task_behind_a_demonstration_is_clipped_as_a_first_message_is():
    task = user(f"Mend the bridge K-7. {prose('en', 1_500)} The key is K-4711. {prose('en', 900)} Begin now.")
    done = at(0.95, [user("<example>\nlook\n</example>"), assistant("I see."), task, *talk(20)[1:]])
    assert done.begun is not None
    clipped = next(text for text in (Content.of(raw).text for raw in done.view) if text.startswith("Mend"))
    assert count(clipped) <= done.begun.situation.budget.share(1 / 5)
    assert "K-4711" in notes(done.plan)[-1]


@pytest.mark.parametrize("usage", [0.95, 1.05, 1.5])
def test_a_long_example_and_a_long_task_behind_it_are_both_clipped_and_neither_is_cut(usage: float):
    shown = user(f"<example>\n{prose('en', 3_000)}\n</example>")
    task = user(f"Mend it. {prose('en', 1_500)} The key is K-4711. {prose('en', 1_500)} Begin now.")
    done = at(usage, [shown, assistant("I see."), task, *talk(20)[1:]])
    assert [edit.position for edit in done.plan.replacements] == [0, 2]
    assert not any(map(done.plan.covers, (0, 2)))
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
    longer = chain_from([*demonstrated(), assistant("Done."), user(text(9, 2_000))])
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


@pytest.mark.parametrize("length", [30, 60], ids=["answers shorter than a notice", "longer ones"])
def test_where_pins_are_too_many_the_oldest_yield_and_the_newest_stay(length: int):
    words, policy = "what is to be done about the bridge? " * 3, Policy(keep=Keep(pins=("^Pinned",)))
    messages = [m for n in range(24) for m in (user(f"Pinned {n}: {words}"), assistant(text(n, length)))]
    chain, budget = chain_from([*messages, user("and now?")]), Budget(1_000, 1.0, 0)
    views = [[Content.of(raw).text for raw in done.view] for done in session(chain, policy, budget)]
    pinned = [sum(each.startswith("Pinned") for each in view) for view in views]
    assert min(pinned[6:]) >= 6
    assert pinned[-1] < 24


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


def test_the_first_user_message_does_not_yield_to_a_last_one_that_alone_is_over_the_budget():
    messages = [user("0 first " + prose("en", 40)), *talk(30)[1:], assistant("ok"), user(text(7, 2_500))]
    chain, policy = chain_from(messages), Policy()
    budget = Budget(2_000, 1.0, 0, last_user_tokens=chain.last_user_tokens)
    done = turn(chain, EMPTY, policy, budget)
    assert done.view[0] == chain.raws[0]
    assert done.view[-1] == chain.raws[-1]
    assert done.plan.spans == ((1, 62),)
    longer = chain_from([*messages, assistant("Read."), user("And now?")])
    after = turn(longer, done.plan, policy, Budget(2_000, 1.0, 0, last_user_tokens=longer.last_user_tokens))
    assert after.view[0] == chain.raws[0]
    assert after.tokens <= 2_000


def test_nor_has_it_yielded_to_such_a_message_once_that_is_of_the_past():
    messages = [user("0 first"), *talk(4)[1:-1], user(text(7, 2_500))]
    chain = chain_from([*messages, assistant("Read."), user("And now?")])
    budget = Budget(2_000, 1.0, 0, last_user_tokens=chain.last_user_tokens)
    plan, _ = from_scratch(chain, Policy(), budget, count)
    assert [plan.covers(place) for place in (0, 8)] == [False, True]


@pytest.mark.parametrize(("seed", "tokens"), [(1, 1_300), (3, 1_500), (5, 1_300)])
def test_the_details_of_a_ledger_yield_before_the_first_user_message(seed: int, tokens: int):
    sizes, messages = Random(seed), [user("Mend PROJ-48151 in the harbour's repository.")]
    for number in range(60):
        if number % 7 == 6:
            messages += [assistant("Done so far."), user(f"Go on with part {number}.")]
        calls = [f"c{number}_{place}" for place in range(1 + number % 3)]
        messages.append(calling(*calls, arguments=f'{{"path": "src/mod_{number}.py"}}'))
        for call in calls:
            names = " ".join(f"f{call}_{name}" for name in range(20))
            messages.append(result(call, f"{names} {prose('en', sizes.choice((20, 40, 150, 250)), number)}"))
    turns = [*session(chain_from(messages), BALANCED, Budget(tokens, 1.0, 0))]
    assert [done.tokens for done in turns if done.tokens > tokens] == []
    assert not any(done.plan.covers(0) for done in turns)


def yielding(words: int = 1_400) -> tuple[list[Sent], Turn, Budget]:
    """A conversation whose first user message has yielded to its last one."""
    messages = [user("0 first " + prose("en", 200)), *talk(12)[1:], assistant("ok"), user(text(7, words))]
    chain = chain_from(messages)
    budget = Budget(chain.tokens[-1] + 100, 1.0, 0, last_user_tokens=chain.last_user_tokens)
    done = turn(chain, EMPTY, Policy(), budget)
    assert done.plan.covers(0)
    assert done.tokens <= budget.limit
    return messages, done, budget


def test_a_first_user_message_that_had_to_yield_comes_back_at_the_next_epoch_with_room_for_it():
    messages, done, budget = yielding()
    longer = chain_from([*messages, assistant("Read."), user("And now?")])
    after = turn(longer, done.plan, Policy(), budget)
    assert after.view[0] == longer.raws[0]
    assert after.plan.spans == ((1, len(messages)),)
    assert after.tokens <= budget.limit
    assert (
        turn(
            chain_from([*messages, assistant("Read."), user("And now?")]), after.plan, Policy(), budget
        ).begun
        is None
    )


def test_it_stays_away_as_long_as_there_is_no_room_for_it_or_the_policy_does_not_keep_it():
    messages, done, budget = yielding()
    as_large = chain_from([*messages, assistant("Read."), user(text(8, 1_400))])
    assert turn(as_large, done.plan, Policy(), budget).plan.covers(0)
    longer = chain_from([*messages, assistant("Read."), user("And now?")])
    assert turn(longer, done.plan, Policy(keep=Keep(first_user=False)), budget).plan.covers(0)


@pytest.mark.parametrize(("beside", "is_told"), [(None, True), (50_000, True), (150, False)])
def test_beside_a_last_user_message_that_alone_is_over_the_budget_the_ledger_stays_if_the_window_allows(
    beside: int | None, is_told: bool
):
    talked = [*talk(12)[1:-1], user("Which?"), assistant("The key is K-4711.")]
    chain = chain_from([user("Do it."), *talked, user(text(7, 2_500))])
    last = chain.last_user_tokens
    known = Window(last + beside, WindowSource.POLICY) if beside else UNKNOWN_WINDOW
    done = turn(chain, EMPTY, Policy(), Budget(2_000, 1.0, 0, known, last))
    assert done.plan.spans == ((1, len(talked) + 1),)
    assert ("K-4711" in notes(done.plan)[-1]) is is_told


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


def test_results_that_are_still_to_be_answered_keep_half_of_what_there_is_room_for():
    steps = [calling("a", "b"), result("a", prose("en", 120)), result("b", prose("en", 120, 7))]
    messages = [user(prose("en", 150)), *steps]
    done = turn(chain_from(messages), EMPTY, BALANCED, Budget(300, 1.0, 0), None)
    clipped = [Content.of(edit.raw).text for edit in done.plan.replacements]
    assert len(clipped) == 2
    assert all(len(text) > 60 and "left out" in text for text in clipped)
    assert done.tokens <= 300


def test_what_stands_between_a_call_that_is_cut_and_its_late_result_is_cut_in_its_turn():
    begun = [user("Start the job."), calling("job"), result("job", "Started."), *talk(20)]
    cut = at(0.95, begun).plan
    assert cut.covers(1)
    waited = cut.gaps[-1].end
    later = chain_from([*begun, assistant("It runs."), *talk(6), result("job", "Done."), *talk(8)])
    budget = Budget(int(view_tokens(cut, later.tokens) / 0.95), 1.0, 0)
    done = turn(later, cut, BALANCED, budget)
    assert done.plan.covers(waited)
