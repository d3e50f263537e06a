"""A store that remembers says what the store behind it would say, whatever is done to either of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.adapters.memory import MemoryStore
from proxy.adapters.redis import RedisStore
from proxy.adapters.remembering import RememberingStore, TellingStore
from proxy.lru import Memory
from proxy.ports import Lookup, Recorded, SessionKey
from tests.servers import PATIENCE
from tests.stores import DAY, HandClock, chain, embedded_valkey, epoch, hidden, run, turn
from tests.watching import WatchedStore

T = TypeVar("T")
Step = Callable[[Any], Awaitable[object]]
"""What is done to a store."""

KEYS = [SessionKey("aa", "01"), SessionKey("aa", "02"), SessionKey("bb", "named")]
CHAINS = [
    ("u1", "a1"),
    ("u1", "a1", "u2", "a2"),
    ("u1", "a1", "u2", "a2", "u3", "a3"),
    ("u1", "a1", "u2", "a9"),
    ("v1", "a1"),
    ("u1",),
]
LANES = ["lane", "other"]
keys = st.sampled_from([KEYS[0]] * 6 + KEYS)
chains = st.sampled_from(CHAINS)
few = st.integers(0, 3)


@st.composite
def lookups(draw: st.DrawFn) -> Lookup:
    key, names = draw(keys), draw(chains)
    newest = tuple(reversed(chain(*names, "new")))
    return Lookup(
        tag=key.tag,
        sid=draw(st.sampled_from([key.sid, key.sid, key.sid, None])),
        newest=newest,
        uncounted=newest[: draw(few)],
        lane=draw(st.sampled_from(LANES)),
        seen=(draw(st.sampled_from([key.sid, "02"])), draw(few)),
        hidden_seen=(draw(st.sampled_from([key.sid, "02"])), draw(few)),
        injected=draw(st.sampled_from([b"", b"digest", b"another"])),
    )


@st.composite
def recordings(draw: st.DrawFn) -> Step:
    key, names = draw(keys), draw(chains)
    told = turn(
        *names,
        known=draw(st.integers(0, len(names) - 1)),
        headerless=key.sid != "named",
        complete=draw(st.sampled_from([True, True, False])),
        begun_at=draw(st.sampled_from([None, None, None, b"", chain("u1", "a1")[-1]])),
        model=draw(st.sampled_from(["m", "n"])),
    )
    longer = draw(st.sampled_from([0, 0, 7]))  # an answer that was cut off has fewer tokens than the whole
    told = replace(told, nodes=tuple(replace(node, tokens=node.tokens + longer) for node in told.nodes))
    ttl = draw(st.sampled_from([DAY, DAY, 20.0, 5.0]))
    return lambda store: store.record(key, told, ttl)


@st.composite
def other_writes(draw: st.DrawFn) -> Step:
    key, names, number = draw(keys), draw(chains), draw(few)
    begun = epoch(draw(st.sampled_from(["e1", "e2", "e3"])), lane=draw(st.sampled_from(LANES)))
    calls = hidden(*names, call=draw(st.sampled_from(["one", "two"])))
    digest = draw(st.sampled_from([b"digest", b"another"]))
    answer = chain(*names)[-1]
    ttl = draw(st.sampled_from([DAY, 20.0]))
    choices: list[Step] = [
        lambda store: store.begin_epoch(key, begun, number, ttl),
        lambda store: store.begin_epoch(key, begun, number, ttl),
        lambda store: store.pin(key, [answer], ttl),
        lambda store: store.keep_hidden(key, calls, ttl, begins=number == 0),
        lambda store: store.inject(key, digest, b"text " + digest, ttl),
        lambda store: store.pause(key, paused=number > 1),
        lambda store: store.mark_unsaved(key, answer),
        lambda store: store.keep_summary(key, "address", "text", ttl),
        lambda store: store.stand(key, "compact", 8, 10.0),
        lambda store: store.delete(key),
    ]
    return draw(st.sampled_from(choices))


writes = st.one_of(recordings(), other_writes())
moments = st.sampled_from([1.0, 4.0, 30.0])
steps = st.lists(st.tuples(st.one_of(writes, writes, lookups(), moments), st.booleans()), max_size=30)
"""What is done, and whether it is asked about."""


def probes(key: SessionKey) -> list[Lookup]:
    """Questions about all that is kept of a session, as they come when more and more of it is known."""
    newest = tuple(dict.fromkeys(each for names in CHAINS for each in reversed(chain(*names))))
    return [
        Lookup(
            key.tag,
            key.sid,
            newest,
            newest,
            lane,
            seen=(key.sid, number),
            hidden_seen=(key.sid, number),
            injected=injected,
        )
        for number in (3, 2, 1, 0)
        for lane, injected in zip(LANES, [b"digest", b""], strict=True)
    ]


async def takes_every_step(
    plain: TellingStore, clock: HandClock, script: list[Any], *, ages: bool, begins: bool
) -> None:
    remembering = RememberingStore(plain, clock, Memory())
    if begins:  # what is done is done to a session that its first request has named
        await remembering.find(Lookup(KEYS[0].tag, None, (), (), LANES[0], fresh=KEYS[0].sid))
    for step, is_asked in script:
        if isinstance(step, float):
            clock.time += step if ages else 0.0
        elif isinstance(step, Lookup):
            assert await remembering.find(step) == await plain.find(step)
        else:
            await step(remembering)
        for asked in probes(KEYS[0]) if is_asked else ():
            assert await remembering.find(asked) == await plain.find(asked)
    for asked in (each for key in KEYS for each in probes(key)):
        assert await remembering.find(asked) == await plain.find(asked)


@settings(max_examples=200)
@given(steps, st.booleans())
def test_a_look_up_in_memory_is_answered_as_if_nothing_were_remembered(
    script: list[Any], begins: bool
) -> None:
    clock = HandClock()
    asyncio.run(takes_every_step(MemoryStore(clock), clock, script, ages=True, begins=begins))


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@settings(max_examples=40)
@given(steps, st.booleans())
def test_a_look_up_in_valkey_is_answered_as_if_nothing_were_remembered(
    url: str, script: list[Any], begins: bool
) -> None:
    async def take() -> None:
        plain = RedisStore(url, HandClock(), PATIENCE, 1.0)
        try:
            await takes_every_step(plain, HandClock(), script, ages=False, begins=begins)
        finally:
            await plain.aclose()

    run(url, "FLUSHALL")
    asyncio.run(take())


@contextmanager
def crowded(seed: int) -> Generator[tuple[RememberingStore, WatchedStore]]:
    chance = random.Random(seed)
    clock = HandClock()
    plain = WatchedStore(MemoryStore(clock), pauses=lambda: chance.randrange(4))
    yield RememberingStore(plain, clock, Memory()), plain


@settings(max_examples=200)
@given(st.lists(st.lists(st.one_of(writes, lookups()), max_size=8), max_size=6), st.integers(0, 2**32))
def test_once_a_crowd_has_gone_nothing_is_remembered_that_is_not_so(
    scripts: list[list[Any]], seed: int
) -> None:
    async def act(store: RememberingStore, script: list[Any]) -> None:
        for step in script:
            await (store.find(step) if isinstance(step, Lookup) else step(store))

    async def meet() -> None:
        with crowded(seed) as (remembering, plain):
            await asyncio.gather(*(act(remembering, script) for script in scripts))
            for asked in (each for key in KEYS for each in probes(key)):
                assert await remembering.find(asked) == await plain.find(asked)

    asyncio.run(meet())


@given(st.integers(0, 2**32))
def test_what_was_written_is_found_at_once_by_whoever_wrote_it_in_a_crowd(seed: int) -> None:
    async def talk(store: RememberingStore, branch: int) -> None:
        names = [f"u{branch}"]
        for number in range(4):
            names.append(f"a{branch}-{number}")
            told = turn(*names, known=2 * number)
            assert await store.record(KEYS[0], told, DAY) is Recorded.KEPT
            newest = tuple(reversed(chain(*names, "next")))
            found = await store.find(Lookup("aa", "01", newest, newest, "lane"))
            assert found.known == told.session.tip
            assert len(found.counts) == len(names)
            names.append(f"u{branch}-{number}")

    async def meet() -> None:
        with crowded(seed) as (remembering, _):
            await asyncio.gather(*(talk(remembering, branch) for branch in range(3)))

    asyncio.run(meet())
