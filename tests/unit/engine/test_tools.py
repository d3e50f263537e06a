"""What this process remembers of fresh results is what the whole chain would say, read anew."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.conversation.extension import InjectedResult
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Tool
from proxy.engine.answers.tool_cache import ToolCaches
from proxy.engine.flow import Request
from proxy.engine.sessions.session_cache import SessionState
from proxy.ports import SessionKey
from proxy.telemetry import Metrics
from tests.support.conversations import Sent, assistant, calling, chain_from, encode, result, user
from tests.support.requests import a_request

POLICY = Policy(tools=(Tool(match="look", cache_exchanges=2, serve=True, pure=True),))
ASKED = [user("How high?"), calling("a")]
LOOKED = [*ASKED, result("a", "7 m")]
ANSWERED = [*LOOKED, assistant("Seven."), user("And now?")]


def request(messages: Sequence[Sent], policy: Policy = POLICY, sid: str = "one") -> Request:
    session = SessionState("t", SessionKey("tag", sid))
    return a_request(chain_from(messages), Budget(1_000, 1.0, 0), policy=policy, session=session)


def counted(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = (sample for family in families if "tool_cache" in family.name for sample in family.samples)
    return {
        each.labels["result"]: each.value for each in samples if each.name.endswith("_total") and each.value
    }


async def test_a_turn_finds_what_the_turn_before_it_came_to() -> None:
    tools, cold = ToolCaches(Metrics(), CacheMemory()), ToolCaches(Metrics(), CacheMemory())
    for length in range(1, len(ANSWERED) + 1):
        warm = await tools.of(request(ANSWERED[:length]))
        assert list(warm) == list(await cold.of(request(ANSWERED[:length])))
    assert [each.remaining for each in await tools.of(request(ANSWERED))] == [1]


async def test_a_sibling_branch_keeps_its_own() -> None:
    tools = ToolCaches(Metrics(), CacheMemory())
    await tools.of(request(ANSWERED))
    other = await tools.of(request([*ASKED, result("a", "9 m")]))
    assert [(each.text, each.remaining) for each in other] == [("9 m", 2)]
    retried = await tools.of(request(LOOKED))
    assert [(each.text, each.remaining) for each in retried] == [("7 m", 2)]


async def test_another_session_gets_its_own_bytes_even_where_messages_count_as_the_same() -> None:
    tools = ToolCaches(Metrics(), CacheMemory())
    await tools.of(request(LOOKED))
    (fresh,) = await tools.of(request([*ASKED, result("a", " 7 m ")], sid="other"))
    assert fresh.text == " 7 m "


async def test_another_policy_has_another_cache() -> None:
    tools = ToolCaches(Metrics(), CacheMemory())
    await tools.of(request(LOOKED))
    longer = Policy(tools=(Tool(match="look", cache_exchanges=9),))
    assert [each.remaining for each in await tools.of(request(LOOKED, longer))] == [9]
    assert not await tools.of(request(LOOKED, Policy()))


async def test_what_was_served_counts_as_soon_as_it_is_known() -> None:
    tools, last = ToolCaches(Metrics(), CacheMemory()), request([*ANSWERED, assistant("Seven.")])
    assert not await tools.of(last)
    served = [calling("h"), result("h", "7 m"), assistant("Seven.")]
    (fresh,) = await tools.of(last, {last.chain.hashes[-1]: [encode(each) for each in served]})
    assert (fresh.remaining, fresh.hits) == (1, 1)
    assert not await tools.of(last)


async def test_what_a_caller_hands_in_counts_without_any_rule() -> None:
    given = [InjectedResult("look", "{}", "7 m", 1)]
    tools = ToolCaches(Metrics(), CacheMemory())
    assert len(await tools.of(request(ASKED, Policy()), injected=given)) == 1
    assert not await tools.of(request(ASKED, Policy()))


async def test_a_deleted_session_is_forgotten() -> None:
    tools = ToolCaches(Metrics(), CacheMemory())
    await tools.of(request(LOOKED))
    tools.forget(SessionKey("tag", "one"))
    (fresh,) = await tools.of(request([*ASKED, result("a", "7 m ")]))
    assert fresh.text == "7 m "


async def test_each_result_is_counted_once_however_often_its_request_comes() -> None:
    metrics = Metrics()
    tools = ToolCaches(metrics, CacheMemory())
    for length in (1, 3, 3, 5, 3):
        await tools.of(request(ANSWERED[:length]))
    assert counted(metrics) == {"stored": 1}
    error = [*ANSWERED, calling("b"), result("b", "Error: fog")]
    await tools.of(request(error))
    assert counted(metrics) == {"stored": 1, "error": 1}


async def test_fresh_results_of_a_long_history_are_derived_like_those_of_a_short_one() -> None:
    long = [message for number in range(200) for message in (user(f"{number}?"), assistant("So."))]
    assert [
        each.text for each in await ToolCaches(Metrics(), CacheMemory()).of(request([*long, *LOOKED]))
    ] == ["7 m"]
