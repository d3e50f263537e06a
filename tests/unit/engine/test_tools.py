"""What this process remembers of fresh results is what a fold of the whole chain would say."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from proxy.core.budget import Budget
from proxy.core.injection import InjectedResult
from proxy.core.policy import Policy
from proxy.core.policy_sections import Tool
from proxy.engine.case import Case
from proxy.engine.tools import Tools
from proxy.lru import Memory
from proxy.ports import SessionKey
from proxy.telemetry import Metrics
from tests.property.conversations import Sent, assistant, calling, chain_from, encode, result, user

POLICY = Policy(tools=(Tool(match="look", cache_exchanges=2, serve=True, pure=True),))
ASKED = [user("How high?"), calling("a")]
LOOKED = [*ASKED, result("a", "7 m")]
ANSWERED = [*LOOKED, assistant("Seven."), user("And now?")]


def case(messages: Sequence[Sent], policy: Policy = POLICY, sid: str = "one") -> Case:
    return Case(
        tenant="t",
        key=SessionKey("tag", sid),
        lane="lane",
        model="m",
        chain=chain_from(messages),
        head_count=0,
        policy=policy,
        budget=Budget(1_000, 1.0, 0),
        epochs=(),
        saved=0,
        credentials=(),
        deadline=0.0,
    )


def counted(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = (sample for family in families if "tool_cache" in family.name for sample in family.samples)
    return {
        each.labels["result"]: each.value for each in samples if each.name.endswith("_total") and each.value
    }


async def test_a_turn_finds_what_the_turn_before_it_came_to() -> None:
    tools, cold = Tools(Metrics(), Memory()), Tools(Metrics(), Memory())
    for length in range(1, len(ANSWERED) + 1):
        warm = await tools.of(case(ANSWERED[:length]))
        assert list(warm) == list(await cold.of(case(ANSWERED[:length])))
    assert [each.remaining for each in await tools.of(case(ANSWERED))] == [1]


async def test_a_sibling_branch_keeps_its_own() -> None:
    tools = Tools(Metrics(), Memory())
    await tools.of(case(ANSWERED))
    other = await tools.of(case([*ASKED, result("a", "9 m")]))
    assert [(each.text, each.remaining) for each in other] == [("9 m", 2)]
    retried = await tools.of(case(LOOKED))
    assert [(each.text, each.remaining) for each in retried] == [("7 m", 2)]


async def test_another_session_gets_its_own_bytes_even_where_messages_count_as_the_same() -> None:
    tools = Tools(Metrics(), Memory())
    await tools.of(case(LOOKED))
    (fresh,) = await tools.of(case([*ASKED, result("a", " 7 m ")], sid="other"))
    assert fresh.text == " 7 m "


async def test_another_policy_has_another_cache() -> None:
    tools = Tools(Metrics(), Memory())
    await tools.of(case(LOOKED))
    longer = Policy(tools=(Tool(match="look", cache_exchanges=9),))
    assert [each.remaining for each in await tools.of(case(LOOKED, longer))] == [9]
    assert not await tools.of(case(LOOKED, Policy()))


async def test_what_was_served_counts_as_soon_as_it_is_known() -> None:
    tools, last = Tools(Metrics(), Memory()), case([*ANSWERED, assistant("Seven.")])
    assert not await tools.of(last)
    served = [calling("h"), result("h", "7 m"), assistant("Seven.")]
    (fresh,) = await tools.of(last, {last.chain.hashes[-1]: [encode(each) for each in served]})
    assert (fresh.remaining, fresh.hits) == (1, 1)
    assert not await tools.of(last)


async def test_what_a_caller_hands_in_counts_without_any_rule() -> None:
    given = [InjectedResult("look", "{}", "7 m", 1)]
    tools = Tools(Metrics(), Memory())
    assert len(await tools.of(case(ASKED, Policy()), injected=given)) == 1
    assert not await tools.of(case(ASKED, Policy()))


async def test_a_deleted_session_is_forgotten() -> None:
    tools = Tools(Metrics(), Memory())
    await tools.of(case(LOOKED))
    tools.forget(SessionKey("tag", "one"))
    (fresh,) = await tools.of(case([*ASKED, result("a", "7 m ")]))
    assert fresh.text == "7 m "


async def test_each_result_is_counted_once_however_often_its_request_comes() -> None:
    metrics = Metrics()
    tools = Tools(metrics, Memory())
    for length in (1, 3, 3, 5, 3):
        await tools.of(case(ANSWERED[:length]))
    assert counted(metrics) == {"stored": 1}
    error = [*ANSWERED, calling("b"), result("b", "Error: fog")]
    await tools.of(case(error))
    assert counted(metrics) == {"stored": 1, "error": 1}


async def test_a_long_history_is_folded_like_a_short_one() -> None:
    long = [message for number in range(200) for message in (user(f"{number}?"), assistant("So."))]
    assert [each.text for each in await Tools(Metrics(), Memory()).of(case([*long, *LOOKED]))] == ["7 m"]
