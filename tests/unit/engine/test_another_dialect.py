"""A request of another dialect goes the whole way to the upstream's door, and is stored as what it is."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.app import Dependencies, build_engine
from proxy.cache import CacheMemory
from proxy.config import Settings
from proxy.core.conversation.records import Session
from proxy.core.formats.json import dumps, loads
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Exchange, Incoming
from proxy.engine.intake.naming import Envelope, Naming
from proxy.engine.pipeline import Pipeline
from tests.support.conversations import prose
from tests.support.lines import LINES
from tests.support.upstreams import COUNTER
from tests.support.world import outside

RULE = "You must never delete the staging database db-4711."
LOOKED = (
    ("a", "", {"h": ["height", "{}"], "l": ["length", "{}"]}),
    ("u", "And hurry, please.", {"h": "7 m", "l": "90 m"}),
    ("a", "Seven and ninety metres."),
)
SAID = [
    ("s", "You are a guide."),
    ("u", RULE),
    ("a", "Understood."),
    *((who, f"{prose('en', 60, place)} {place}") for place in range(20) for who in "ua"),
    ("u", "How high and how long is it?"),
    *LOOKED,
    ("u", "And now?"),
]
BODY = b"\n".join([b"gpt-4o", *map(dumps, SAID)])


def pipeline(world: Dependencies) -> Pipeline:
    return build_engine(Settings(upstream="http://127.0.0.1:9/v1"), world, LINES).pipeline


async def prepared(pipeline: Pipeline) -> Exchange:
    headers = {b"x-unabridged-budget": b"800", b"x-unabridged-session": b"s"}
    envelope = Envelope.read(Naming("secret", CacheMemory()), "/lines", headers, [])
    return await pipeline.prepare(Incoming(envelope, BODY, Policy(), 0.0))


async def test_its_body_is_planned_cut_and_noted_in_its_own_words() -> None:
    exchange = await prepared(pipeline(outside(COUNTER)))
    model, *lines = exchange.body.split(b"\n")
    sent, came = [loads(line) for line in lines], [loads(dumps(each)) for each in SAID]
    notes: list[Any] = [each for each in sent if each not in came]
    assert model == b"gpt-4o"
    assert sent[0] == came[0]
    assert sent[-1] == came[-1]
    assert [each for each in came if each in sent] == [each for each in sent if each not in notes]
    assert len(notes) == len(exchange.decision.plan.gaps) > 0
    assert all(who == "u" and text.startswith("<note ") for who, text in notes)
    assert any(RULE in text for _, text in notes) or came[1] in sent
    calls, results, *_ = (loads(dumps(each)) in sent for each in LOOKED)
    assert calls == results


async def test_its_session_says_in_which_dialect_it_is_stored() -> None:
    world = outside(COUNTER)
    engine = pipeline(world)
    exchange = await prepared(engine)
    await engine.recorder.announce(exchange)
    session = await world.store.session(exchange.request.session.key)
    assert session is not None
    assert session.dialect == "lines"
    nodes = await world.store.nodes(exchange.request.session.key)
    assert {node.raw for node in nodes.values()} == set(map(dumps, SAID[1:]))


def test_a_session_of_chat_completions_is_stored_as_before_there_were_others() -> None:
    plain = Session(name="s", tenant="t", created=1.0, updated=2.0)
    stored = msgspec.msgpack.encode(plain)
    assert msgspec.msgpack.decode(stored).keys() == {"name", "tenant", "created", "updated"}
    assert msgspec.msgpack.decode(stored, type=Session).dialect == "chat"
