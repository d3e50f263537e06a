"""Random writes to a store: turns of a few chains, and all other calls that write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.ports import SessionKey, SessionStore
from tests.support.stores import DAY, chain, epoch, hidden, turn

Step = Callable[[SessionStore], Awaitable[object]]
"""One write to a store."""

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
        lambda store: store.begin_epoch(key, begun, number, ttl, begins=number < 2),
        lambda store: store.begin_epoch(key, begun, number, ttl, begins=number < 2),
        lambda store: store.pin(key, [answer], ttl),
        lambda store: store.keep_hidden(key, calls, ttl, begins=number == 0),
        lambda store: store.inject(key, digest, b"text " + digest, ttl),
        lambda store: store.pause(key, paused=number > 1),
        lambda store: store.mark_unsaved(key, answer),
        lambda store: store.keep_summary(key, "address", "text", ttl),
        lambda store: store.take_place(key, "compact", 8, 10.0),
        lambda store: store.leave(key, "compact"),
        lambda store: store.delete(key),
    ]
    return draw(st.sampled_from(choices))


writes = st.one_of(recordings(), other_writes())
moments = st.sampled_from([1.0, 4.0, 30.0])
