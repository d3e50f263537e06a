"""Which results are fresh at a place of a conversation, and which calls they answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from proxy.core.conversation.extension import InjectedResult
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.policy.sections import Tool
from proxy.core.tool_cache.cache import CACHE_BYTES, RESULT_BYTES, ToolCache, ToolRules
from proxy.core.tool_cache.derive import derive, initial
from tests.support.conversations import Sent, assistant, chain_from, encode, result, user

READ = Tool(match="get_*", cache_exchanges=3, serve=True, invalidated_by=("set_*",))
PURE = Tool(match="calculate", cache_exchanges=2, serve=True, pure=True)
KNOWN = Tool(match="think")
POLICY = (READ, PURE, KNOWN)


def call(tool: str, arguments: object = None, call_id: str = "") -> Sent:
    return calls((tool, arguments, call_id))


def calls(*made: tuple[str, object, str]) -> Sent:
    """An assistant message; without an id a call is named by its tool."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call_id or tool,
                "type": "function",
                "function": {"name": tool, "arguments": _text(arguments)},
            }
            for tool, arguments, call_id in made
        ],
    }


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {})


def fetched(tool: str, text: object, arguments: object = None) -> list[Sent]:
    """A call and its result."""
    return [call(tool, arguments), result(tool, text)]


def exchange(*rounds: Sequence[Sent], answer: str = "Done.") -> list[Sent]:
    return [user("Go on."), *(message for each in rounds for message in each), assistant(answer)]


def after(
    messages: Sequence[Sent],
    tools: Sequence[Tool] = POLICY,
    hidden: Mapping[int, Sequence[Sent]] | None = None,
    injected: Sequence[InjectedResult] = (),
    events: Counter[str] | None = None,
) -> ToolCache:
    """The cache at the end of a conversation; ``hidden`` by position."""
    chain = chain_from(messages)
    stand_ins = {
        chain.hashes[place]: [encode(each) for each in sequence] for place, sequence in (hidden or {}).items()
    }
    places = zip(chain.messages, chain.raws, chain.hashes, strict=True)
    return derive(initial(ToolRules(tuple(tools)), injected), places, CHAT, stand_ins, events).cache


def told(cache: ToolCache) -> dict[str, str]:
    return {each.tool: each.text for each in cache}


def test_a_result_answers_the_same_call_with_its_exact_text():
    cache = after([user("Who?"), *fetched("get_user", '{"name":  "Mia"}', {"id": 5, "full": True})])
    fresh = cache.answer("get_user", '{"full": true, "id": 5.0}')
    assert fresh is not None
    assert (fresh.text, fresh.call_id, fresh.remaining, fresh.hits) == ('{"name":  "Mia"}', "get_user", 3, 0)
    assert cache.answer("get_user", '{"id": 6}') is None
    assert cache.answer("get_other", '{"id": 5, "full": true}') is None


def test_what_is_kept_and_not_to_be_served_answers_nothing():
    cache = after([user("Who?"), *fetched("get_user", "Mia")], [Tool(match="get_*", cache_exchanges=1)])
    assert told(cache) == {"get_user": "Mia"}
    assert not cache.may_answer("get_user")
    assert cache.answer("get_user", "{}") is None


def test_a_call_is_held_back_only_where_something_of_its_tool_is_fresh():
    cache = after([user("Who?"), *fetched("get_user", "Mia", {"id": 5})])
    assert cache.may_answer("get_user")
    assert not cache.may_answer("get_order")
    assert not cache.may_answer("calculate")


def test_a_result_lives_for_as_many_exchanges_as_the_policy_says():
    history = exchange(fetched("get_user", "Mia"))
    lives: list[int] = []
    for _ in range(4):
        lives += [each.remaining for each in after(history)]
        history += exchange()
    assert lives == [2, 1]


def test_an_exchange_that_is_still_going_on_takes_nothing():
    history = [user("Go."), *fetched("get_user", "Mia")]
    for number in range(5):
        history += fetched("calculate", "7", {"n": number})
    assert {each.remaining for each in after(history) if each.tool == "get_user"} == {3}


def test_answers_one_after_the_other_end_one_exchange():
    once = exchange(fetched("get_user", "Mia"))
    assert [each.remaining for each in after([*once, assistant("And more."), assistant("And more.")])] == [2]


def test_words_before_a_call_and_the_answer_after_it_end_one_exchange():
    history = [user("Go."), assistant("I look."), *fetched("get_user", "Mia"), assistant("It is Mia.")]
    assert [each.remaining for each in after(history)] == [3]  # ended by the words before the call
    assert [each.remaining for each in after([*history, *exchange()])] == [2]


def test_an_exchange_without_an_answer_ends_at_the_next_request():
    given_up = [user("Go."), *fetched("get_user", "Mia"), user("No, stop.")]
    assert [each.remaining for each in after(given_up)] == [2]
    assert [each.remaining for each in after([*given_up, user("Hello?"), assistant("Yes.")])] == [1]


def test_the_same_call_seen_again_refreshes_and_its_new_result_counts():
    history = [*exchange(fetched("get_user", "Mia")), *exchange(), *exchange(fetched("get_user", "Mio"))]
    (fresh,) = after(history)
    assert (fresh.text, fresh.remaining, fresh.hits) == ("Mio", 2, 1)


def test_errors_are_never_kept_and_end_what_the_same_call_brought_before():
    events: Counter[str] = Counter()
    history = [user("Go."), *fetched("get_user", "Mia"), *fetched("get_user", '{"error": "gone"}')]
    assert not after(history, events=events)
    assert events == {"stored": 1, "error": 1, "invalidated": 0}


def test_a_write_empties_what_it_touches_at_the_call_already():
    history = [user("Go."), *fetched("get_user", "Mia"), *fetched("calculate", "7")]
    assert told(after([*history, call("set_user")])) == {"calculate": "7"}


def test_a_write_is_never_kept_itself_whatever_pattern_it_matches():
    every = [Tool(match="*", cache_exchanges=3, serve=True, invalidated_by=("set_*",))]
    cache = after([user("Go."), *fetched("set_user", "done"), *fetched("get_user", "Mia")], every)
    assert told(cache) == {"get_user": "Mia"}


def test_a_tool_of_which_the_policy_knows_nothing_empties_all_that_is_served():
    kept = Tool(match="list_*", cache_exchanges=3)
    history = [
        user("Go."),
        *fetched("get_user", "Mia"),
        *fetched("calculate", "7"),
        *fetched("list_all", "a, b"),
    ]
    assert told(after([*history, call("deploy")], [*POLICY, kept])) == {"list_all": "a, b"}
    assert len(after([*history, call("think")], [*POLICY, kept])) == 3


def test_a_read_beside_the_write_that_touches_it_is_not_kept():
    for order in (1, -1):
        made = [("get_user", "{}", "a"), ("set_user", "{}", "b")][::order]
        assert not after([user("Go."), calls(*made), result("a", "Mia"), result("b", "ok")])


def test_a_read_that_is_answered_after_a_later_write_is_not_kept():
    history = [user("Go."), call("get_user", call_id="a"), call("set_user", call_id="b"), result("a", "Mia")]
    assert not after(history)


def test_parallel_calls_bring_a_result_each():
    made = calls(("get_user", {"id": 1}, "a"), ("get_user", {"id": 2}, "b"), ("calculate", "1+1", "c"))
    cache = after([user("Go."), made, result("c", "2"), result("b", "Mio"), result("a", "Mia")])
    answers = [cache.answer("get_user", f'{{"id": {number}}}') for number in (1, 2)]
    assert [answer and answer.text for answer in answers] == ["Mia", "Mio"]
    assert cache.answer("calculate", " 1+1 ") is not None


def test_a_result_belongs_to_the_nearest_call_before_it_with_its_id():
    history = [
        user("Go."),
        *[call("get_user", {"id": 1}, "x"), result("x", "Mia")],
        *[call("get_user", {"id": 2}, "x"), result("x", "Mio"), result("x", "late")],
    ]
    assert [each.text for each in after(history)] == ["Mia", "Mio"]


def test_an_id_that_one_message_has_twice_says_nothing():
    made = calls(("get_user", {"id": 1}, "x"), ("get_user", {"id": 2}, "x"))
    assert not after([user("Go."), made, result("x", "Mia"), result("x", "Mio")])


def test_a_legacy_function_result_is_kept_like_any_other():
    legacy: Sent = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "get_user", "arguments": "{}"},
    }
    cache = after([user("Go."), legacy, {"role": "function", "name": "get_user", "content": "Mia"}])
    assert told(cache) == {"get_user": "Mia"}


def test_a_result_in_text_parts_is_kept_and_one_with_a_picture_is_not():
    text, picture = {"type": "text", "text": "Mia"}, {"type": "image_url", "image_url": {"url": "data:,"}}
    assert told(after([user("Go."), *fetched("get_user", [text])])) == {"get_user": "Mia"}
    assert not after([user("Go."), *fetched("get_user", [text, picture])])
    assert not after([user("Go."), *fetched("get_user", None)])


def test_arguments_that_are_no_json_are_the_same_only_in_the_same_bytes():
    cache = after([user("Go."), *fetched("get_user", "Mia", "{broken")])
    assert cache.answer("get_user", "{broken") is not None
    assert cache.answer("get_user", "{broken}") is None


@pytest.mark.parametrize("member", [None, "", [], {}], ids=repr)
def test_an_argument_that_is_empty_is_not_one_that_is_missing(member: object):
    cache = after([user("Go."), *fetched("get_user", "Mia", {"id": 5, "fields": member})])
    assert cache.answer("get_user", _text({"fields": member, "id": 5})) is not None
    assert cache.answer("get_user", '{"id": 5}') is None


def test_a_call_without_arguments_may_be_written_in_two_ways():
    cache = after([user("Go."), *fetched("get_user", "Mia", "{}")])
    assert cache.answer("get_user", "") is not None


def test_a_result_that_is_too_large_is_not_kept_and_ends_what_was():
    history = [user("Go."), *fetched("get_user", "Mia"), *fetched("get_user", "é" * (RESULT_BYTES // 2))]
    assert not after(history)
    assert len(after([user("Go."), *fetched("get_user", "a" * (RESULT_BYTES - 2))])) == 1


def test_all_results_together_are_bounded_and_the_oldest_go():
    size, history = RESULT_BYTES // 2, [user("Go.")]
    for number in range(2 * CACHE_BYTES // RESULT_BYTES + 5):
        history += fetched("get_user", f"{number:03}" + "x" * size, {"id": number})
    cache = after(history)
    assert cache.weight <= CACHE_BYTES
    assert sum(each.size for each in cache) > CACHE_BYTES - 2 * size
    assert [each.text[:3] for each in cache][-1] == f"{2 * CACHE_BYTES // RESULT_BYTES + 4:03}"
    assert all(each.text[:3] != "000" for each in cache)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": 7},
        {"tool_calls": 1},
        {"role": "tool"},
        {"role": "tool", "tool_call_id": 5},
        calls(("", "", "")),
    ],
    ids=str,
)
def test_no_history_is_too_odd_to_derive_fresh_results_from(message: Sent):
    history = [message, *exchange([message], fetched("get_user", "Mia"), [message]), message]
    assert isinstance(after(history), ToolCache)


def test_a_call_that_was_served_refreshes_and_is_no_call_of_the_client():
    served = {5: [call("get_user", call_id="h"), result("h", "Mia"), assistant("It is Mia.")]}
    history = [*exchange(fetched("get_user", "Mia")), user("Again?"), assistant("It is Mia.")]
    (fresh,) = after(history, hidden=served)
    assert (fresh.remaining, fresh.hits, fresh.call_id) == (2, 1, "get_user")


def test_a_search_of_the_proxy_itself_empties_nothing():
    searched = {5: [call("recall", {"query": "Mia"}, "h"), result("h", "[3] Mia"), assistant("Mia.")]}
    history = [*exchange(fetched("get_user", "Mia")), user("Who?"), assistant("Mia.")]
    assert told(after(history, hidden=searched)) == {"get_user": "Mia"}


def test_beside_a_served_call_the_clients_own_counts_as_ever():
    mixed = calls(("get_user", {}, "h"), ("set_user", {}, "s"))
    history = [*exchange(fetched("get_user", "Mia")), user("Change it."), call("set_user", call_id="s")]
    assert not after(history, hidden={5: [mixed, result("h", "Mia")]})


def test_an_id_that_a_later_round_uses_again_is_another_call():
    rounds = [call("get_user", call_id="c"), result("c", "Mia"), call("set_user", call_id="c")]
    history = [*exchange(fetched("get_user", "Mia")), user("Change it."), call("set_user", call_id="c")]
    assert not after(history, hidden={5: rounds})


def test_of_calls_with_one_id_and_one_result_all_count_as_the_clients():
    mixed = calls(("calculate", {}, "c"), ("set_user", {}, "c"))
    first = exchange(fetched("get_user", "Mia"), fetched("calculate", "42"))
    history = [*first, user("Change it."), call("set_user", call_id="c")]
    assert not after(history, hidden={7: [mixed, result("c", "42")]})


def test_what_a_caller_hands_in_is_fresh_before_the_first_message():
    given = [
        InjectedResult("get_user", '{"id": 5}', "Mia", 1, "c9"),
        InjectedResult("get_order", "{}", '{"error": "no"}'),
    ]
    cache = after([user("Who?")], injected=given)
    fresh = cache.answer("get_user", '{"id":5}')
    assert fresh is not None
    assert (fresh.text, fresh.duration, fresh.call_id, fresh.message_hash) == ("Mia", 1, "c9", b"")
    assert len(cache) == 1
    assert not after(exchange(), injected=given)


def test_what_is_left_after_a_call_depends_on_who_answers_it():
    cache = after([*exchange(fetched("get_user", "Mia")), *exchange()])
    (served,) = cache.after_serving("get_user", "{}")
    assert (served.remaining, served.hits) == (3, 1)
    assert list(cache.after_call("get_user")) == list(cache)
    assert not cache.after_call("set_user")
    assert [each.remaining for each in cache] == [1]
