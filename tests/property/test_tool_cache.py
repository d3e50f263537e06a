"""What is fresh follows from the messages before, in whatever pieces they are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.planning.chain import Chain
from proxy.core.policy.sections import Tool
from proxy.core.tool_cache.cache import CACHE_BYTES, ToolCache, ToolRules, key_of
from proxy.core.tool_cache.derive import ChainMessage, Derived, derive, initial, is_error
from tests.support.conversations import Sent, assistant, chain_from, odd_conversations, result, user

TOOLS = ["get_user", "get_order", "set_user", "think", "deploy"]
IDS = ["a", "b", "c"]
READ = Tool(match="get_*", cache_exchanges=2, serve=True, invalidated_by=("set_*",))
policies = st.sampled_from(
    [
        (READ, Tool(match="think", cache_exchanges=1)),
        (READ, Tool(match="*")),
        (Tool(match="*", cache_exchanges=3, serve=True, pure=True),),
    ]
)


@st.composite
def calls(draw: st.DrawFn) -> Sent:
    made = draw(
        st.lists(st.tuples(*map(st.sampled_from, (IDS, TOOLS, ["{}", '{"id": 1}', "{"]))), min_size=1)
    )
    told = [{"id": each, "function": {"name": tool, "arguments": text}} for each, tool, text in made[:3]]
    return {"role": "assistant", "tool_calls": told}


results = st.builds(
    result, st.sampled_from([*IDS, "lost"]), st.sampled_from(["Mia", "Mio", "Error: no", "", None])
)
messages = st.one_of(calls(), calls(), results, results, st.just(user("Go.")), st.just(assistant("Done.")))
histories = st.one_of(
    st.lists(messages, max_size=30),
    st.tuples(st.lists(messages, max_size=10), odd_conversations()).map(lambda parts: [*parts[0], *parts[1]]),
)


def places(chain: Chain) -> Iterator[ChainMessage]:
    return zip(chain.messages, chain.raws, chain.hashes, strict=True)


def whole(chain: Chain, tools: tuple[Tool, ...]) -> Derived:
    return derive(initial(ToolRules(tools)), places(chain), CHAT)


def steps(chain: Chain, tools: tuple[Tool, ...]) -> list[ToolCache]:
    """The cache after each message."""
    onto, found = initial(ToolRules(tools)), list[ToolCache]()
    for place in places(chain):
        onto = derive(onto, [place], CHAT)
        found.append(onto.cache)
    return found


@given(histories, policies, st.data())
def test_fresh_results_derived_piece_by_piece_are_those_of_the_whole(
    history: list[Sent], tools: tuple[Tool, ...], data: st.DataObject
) -> None:
    chain = chain_from(history)
    onto, length = initial(ToolRules(tools)), 0
    while length < len(chain):
        end = data.draw(st.integers(length + 1, len(chain)))
        onto = derive(onto, list(places(chain))[length:end], CHAT)
        length = end
    assert onto == whole(chain, tools)
    assert list(onto.cache) == list(whole(chain, tools).cache)


@given(st.lists(messages, max_size=20), histories, policies)
def test_what_is_fresh_never_hangs_on_what_follows(
    history: list[Sent], following: list[Sent], tools: tuple[Tool, ...]
) -> None:
    before = whole(chain_from(history), tools)
    told = list(before.cache)
    both = [*history, *following]
    assert len(chain_from(both)) == len(both) or not history
    derive(before, list(places(chain_from(both)))[len(history) :], CHAT)
    assert list(before.cache) == told
    if history:
        assert steps(chain_from(both), tools)[len(history) - 1] == before.cache


@given(histories, policies)
def test_all_that_is_fresh_was_said_on_this_very_branch(history: list[Sent], tools: tuple[Tool, ...]) -> None:
    chain = chain_from(history)
    at = dict(zip(chain.hashes, chain.raws, strict=True))
    for fresh in whole(chain, tools).cache:
        assert fresh.text.encode() in at[fresh.message_hash]
        assert fresh.key == key_of(fresh.tool, fresh.arguments)
        assert not is_error(fresh.text)
        assert 0 < fresh.remaining <= fresh.duration == ToolRules(tools).duration(fresh.tool)


@given(histories, policies)
def test_the_weight_is_that_of_what_is_kept(history: list[Sent], tools: tuple[Tool, ...]) -> None:
    cache = whole(chain_from(history), tools).cache
    assert cache.weight == sum(each.size + 1024 for each in cache) <= CACHE_BYTES
    assert all(key == each.key for key, each in cache.entries.items())


@given(histories, policies)
def test_no_exchange_that_goes_on_takes_anything(history: list[Sent], tools: tuple[Tool, ...]) -> None:
    chain = chain_from(history)
    found = steps(chain, tools)
    for place, (before, after) in enumerate(pairwise(found), 1):
        if chain.messages[place].role not in ("assistant", "user"):
            ages = {each.key: each.remaining for each in before}
            assert all(each.remaining >= ages.get(each.key, 0) for each in after)
