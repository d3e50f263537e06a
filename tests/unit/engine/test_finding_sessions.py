"""Sessions as operators name them."""

from __future__ import annotations

import pytest

from proxy.app import build_engine
from proxy.config import Settings
from proxy.core.dialects.registry import DIALECTS
from proxy.core.policy.policy import Policy
from proxy.engine.admin.inspection import Inspection
from proxy.errors import NotFound
from proxy.ports import SessionKey
from tests.support.stores import DAY, turn
from tests.support.upstreams import COUNTER
from tests.support.world import outside


async def test_that_only_the_sessions_used_last_were_searched_for_a_name_is_said() -> None:
    world = outside(COUNTER)
    inside = build_engine(Settings(upstream="http://127.0.0.1:9/v1"), world)
    find = Inspection(DIALECTS, world.store, COUNTER, lambda _: Policy(), inside.summary_jobs, searched=2)
    keys = [SessionKey(f"a{number}", "00") for number in range(3)]

    async def used(number: int) -> None:
        called = turn("u1", name=f"chat-{number}", updated=float(number))
        await world.store.record(keys[number], called, DAY)

    await used(0)
    with pytest.raises(NotFound, match=r"no such session\.$"):
        await find.find("chat-9")
    await used(1)
    await used(2)
    assert (await find.find("chat-2")).session.name == "chat-2"
    with pytest.raises(NotFound, match="among the 2 used last; others are found by their whole id"):
        await find.find("chat-0")
    assert (await find.find(keys[0].id_for("t"))).session.name == "chat-0"
