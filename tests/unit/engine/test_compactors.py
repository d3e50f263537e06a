"""Which compactor takes a gap, and what a third party's gets: it imports nothing of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.upstream import HttpxUpstream
from proxy.core.policy.sections import Compactor as Named
from proxy.core.policy.sections import Summary
from proxy.core.policy.values import Registry
from proxy.core.summaries.compaction import Entry, GapUnit
from proxy.core.summaries.source import Block, Piece, Source
from proxy.engine.models.asking import CallOptions, Unanswered
from proxy.engine.summaries import compactors
from proxy.engine.summaries.compactors import Compacting, Compactor, CompactorJob, first_for
from tests.support.asking import asking
from tests.support.stores import DAY, KEY, HandClock, turn
from tests.support.upstreams import COUNTER, Model, completion, plainly, running, said

TEXT = "We built the bridge of stone. " * 30
UNITS = (GapUnit(0, (Entry("user", TEXT),)),)


class Theirs:
    """A third party's."""

    def __init__(self, *, can: bool = True) -> None:
        self.can = can
        self.context: Any = None

    def can_compact(self, units: Sequence[Any]) -> bool:
        return self.can

    async def compact(self, units: Sequence[Any], context: Any) -> str:
        self.context = context
        first = units[0].entries[0]
        answer = await context.ask("Shorten it.", first.text, max_tokens=50, temperature=0.1)
        return f"{answer} {context.system_context}".strip()


class Broken(Theirs):
    def can_compact(self, units: Sequence[Any]) -> bool:
        raise RuntimeError("boom")

    async def compact(self, units: Sequence[Any], context: Any) -> str:
        raise RuntimeError("boom")


class Late(Theirs):
    """Its own server takes too long, or is given up."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def compact(self, units: Sequence[Any], context: Any) -> str:
        raise self.error


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry: Registry = Registry("working_flow")
    monkeypatch.setattr(compactors, "COMPACTORS", registry)
    return registry


def test_the_first_that_can_takes_the_gap(installed: Registry) -> None:
    theirs = Theirs()
    for name, each in {"no": Theirs(can=False), "broken": Broken(), "theirs": theirs}.items():
        installed.add(name, each)
    policy = [Named.model_construct(name=name) for name in ("no", "working_flow", "broken", "theirs")]
    assert first_for(policy, UNITS) is theirs
    assert first_for(policy[:2], UNITS) is None
    assert first_for((), UNITS) is None
    assert first_for(policy, ()) is None


def job(compactor: Compactor) -> CompactorJob:
    return CompactorJob(
        address="address",
        session="t.tag.sid",
        terms="terms",
        source=Source(Piece((Block("user", TEXT),)), COUNTER.count(TEXT), TEXT),
        caller=CallOptions("gpt-test", [(b"authorization", b"Bearer sk-secret")], 5.0),
        rules=Summary(),
        max_tokens=100,
        key=KEY,
        ttl=DAY,
        room=1_000,
        compactor=compactor,
        units=UNITS,
    )


async def compacted(model: Model, compactor: Compactor) -> str | None:
    store = InProcessStore(HandClock())
    await store.record(KEY, turn("u1", "a1", head=(b'{"role":"system","content":"Be brief."}',)), DAY)
    upstream = HttpxUpstream(model.url, connect_timeout=5, read_timeout=5)
    try:
        return await Compacting(asking(upstream), store, COUNTER).text(job(compactor))
    finally:
        await upstream.aclose()


async def test_a_compactor_may_ask_the_model_and_knows_nothing_of_the_caller() -> None:
    theirs = Theirs()
    async with running(Model()) as model:
        model.replies.append(said("The bridge was built of stone."))
        text = await compacted(model, theirs)
    assert text == "The bridge was built of stone. Be brief."
    assert model.chats[0].value("authorization") == b"Bearer sk-secret"
    assert model.bodies()[0]["max_tokens"] == 50
    for member in ("task_goal", "system_context", "ask"):
        assert "sk-secret" not in str(getattr(theirs.context, member))
    assert theirs.context.language == "en"


@pytest.mark.parametrize(
    ("compactor", "answer"),
    [
        (Broken(), "fine"),
        (Theirs(), "It was order 99887766."),
        (Theirs(), "so it is " * 200),
        (Theirs(), ""),
        (Late(TimeoutError()), "fine"),
        (Late(asyncio.CancelledError()), "fine"),
    ],
)
async def test_what_fails_or_is_not_true_is_left_to_the_summary(compactor: Compactor, answer: str) -> None:
    async with running(Model()) as model:
        model.replies.append(said(answer))
        assert await compacted(model, compactor) is None
    assert completion(said(answer))


async def test_where_the_model_fails_no_summary_is_asked_of_it_either() -> None:
    async with running(Model()) as model:
        model.replies.append(plainly(503, (), b""))
        with pytest.raises(Unanswered):
            await compacted(model, Theirs())
