"""Values that are not ours, or damaged: StoreUnavailable, and nothing that hides what is whole."""

from __future__ import annotations

import pytest

from proxy.adapters.stores.redis import RedisStore, keys
from proxy.errors import StoreUnavailable
from proxy.ports import LookupResult, Recorded, SessionKey
from tests.support.calls import CALLS, PLANTED
from tests.support.stores import DAY, KEY, Server, chain, epoch, found, hidden, keys_without_ttl, turn


class TestValuesThatAreNotOurs:
    @pytest.mark.parametrize(
        ("part", "refused"),
        [
            ("session", "session"),
            ("nodes", "record"),
            ("counts", "find"),
            ("lanes", "begin_epoch"),
            ("partial", "record cut off"),
            ("summaries", "summaries"),
            ("epochs", "epochs"),
            ("hidden", "hidden"),
            ("hides", "keep_hidden"),
            ("tips", "find by chain"),
            ("sessions", "sessions"),
            ("memory", "remembered since"),
            ("items", "remembered"),
            ("archive", "archive"),
            ("log", "change"),
            ("threads", "note"),
            ("channels", "channels"),
            ("index", "scopes"),
        ],
    )
    async def test_a_key_of_another_type_is_store_unavailable_and_nothing_else(
        self, part: str, refused: str, store: RedisStore, valkey: Server
    ) -> None:
        valkey.run("SET", PLANTED[part], "planted")
        outcomes = await _outcomes(store)
        assert isinstance(outcomes[refused], StoreUnavailable)
        await store.ping()

    @pytest.mark.parametrize(
        "junk", [b"", b"\x01", b"\x01\xc1", b"\x01\xa3abc", b"\x02\x80", b"junk", b"\xff"]
    )
    async def test_a_damaged_value_is_store_unavailable_and_nothing_else(
        self, junk: bytes, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "one", "text", DAY)
        await store.keep_hidden(KEY, hidden("u1", "a1"), DAY)
        for fieldname in ("record", "created", "turns"):
            valkey.run("HSET", PLANTED["session"], fieldname, junk)
        for part in ("nodes", "counts"):
            valkey.run("HSET", PLANTED[part], chain("u1")[0], junk)
        valkey.run("HSET", PLANTED["summaries"], "one", junk)
        valkey.run("LSET", PLANTED["epochs"], 0, junk)
        valkey.run("LSET", PLANTED["hidden"], 0, junk)
        outcomes = await _outcomes(store)
        assert isinstance(outcomes["find"], StoreUnavailable)
        assert all(
            isinstance(each, StoreUnavailable) for each in outcomes.values() if isinstance(each, Exception)
        )
        await store.ping()

    async def test_a_damaged_session_is_whole_again_after_its_next_turn(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["session"], "record", "junk")
        valkey.run("HSET", PLANTED["nodes"], chain("u1")[0], "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        assert await found(store, "u1", "a1") == LookupResult(has_ended=True)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert (await found(store, "u1", "a1")).session is not None
        assert len(await store.nodes(KEY)) == 2

    async def test_what_was_handed_in_can_be_handed_in_again_where_it_was_damaged(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.inject(KEY, b"digest", b"{}", DAY)
        valkey.run("HSET", PLANTED["session"], "injection", "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        healed = await found(store, "u1", "a1")
        assert (healed.injected, healed.session is not None) == (b"", True)
        assert await store.inject(KEY, b"digest", b"[]", DAY) == b"[]"

    async def test_damaged_counts_cost_no_message(self, store: RedisStore, valkey: Server) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["counts"], chain("u1")[0], "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        stored = await store.history(KEY)
        assert stored.session is not None
        assert len(stored.nodes) == 2

    async def test_what_comes_after_damage_ends_with_its_session(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["counts"], chain("u1")[0], "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert keys_without_ttl(valkey.url) == []

    async def test_what_comes_after_a_loss_ends_with_its_session(
        self, store: RedisStore, valkey: Server
    ) -> None:
        for part in (":counts", ":nodes", ""):  # as a server that is full may drop one
            await store.record(KEY, turn("u1", "a1"), DAY)
            valkey.run("DEL", f"u1:{{aa}}:01{part}")
            await store.record(KEY, turn("u1", "a1", f"u2{part}", "a2", known=2), DAY)
            assert keys_without_ttl(valkey.url) == []

    async def test_lost_messages_are_written_again_by_the_next_turn_with_its_history(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("DEL", PLANTED["nodes"])
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY) is Recorded.TORN
        assert (await found(store, "u1", "a1", "u2", "a2", "u3")).known is None
        whole = turn("u1", "a1", "u2", "a2", "u3", "a3")
        assert await store.record(KEY, whole, DAY) is Recorded.KEPT
        assert len(await store.nodes(KEY)) == 6

    async def test_lost_messages_are_written_again_although_something_else_was_written_first(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("DEL", PLANTED["nodes"])
        await store.record(KEY, turn("Make a title.", "A title"), DAY)
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY) is Recorded.TORN
        assert (await found(store, "u1", "a1", "u2", "a2", "u3")).known is None
        texts = "u1", "a1", "u2", "a2", "u3", "a3"
        assert await store.record(KEY, turn(*texts), DAY) is Recorded.KEPT
        assert await store.record(KEY, turn(*texts, "u4", "a4", known=6), DAY) is Recorded.KEPT
        stored = await store.history(KEY)
        assert stored.session is not None
        assert stored.session.tip == chain(*texts, "u4", "a4")[-1]
        assert stored.nodes.keys() >= {*chain(*texts, "u4", "a4")}

    async def test_messages_whose_session_is_lost_are_of_one_that_was_here(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("DEL", PLANTED["session"], PLANTED["session"] + keys.WAS)
        assert (await store.history(KEY)).was_here

    async def test_damaged_hidden_calls_cost_no_message_and_give_way_to_others(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.keep_hidden(KEY, hidden("u1", "a1"), DAY)
        valkey.run("LSET", PLANTED["hidden"], 0, "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        assert len(await store.nodes(KEY)) == 2
        await store.keep_hidden(KEY, hidden("u1", "a1"), DAY)
        assert await store.hidden(KEY) == (hidden("u1", "a1"),)

    @pytest.mark.parametrize("part", ["", keys.LINE])
    async def test_one_session_of_another_type_hides_no_other(
        self, store: RedisStore, valkey: Server, part: str
    ) -> None:
        other = SessionKey(KEY.tag, "02")
        for key in (KEY, other):
            await store.record(key, turn("u1", "a1"), DAY)
        name = PLANTED["session"] + part
        valkey.run("DEL", name)
        valkey.run("SET", name, "a string")
        valkey.run("EXPIRE", name, 100)
        assert [key for key, _ in (await store.sessions(10)).sessions] == [other]

    async def test_a_value_of_another_version_is_not_read_as_ours(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.keep_summary(KEY, "one", "text", DAY)
        stored: bytes = valkey.run("HGET", PLANTED["summaries"], "one")
        valkey.run("HSET", PLANTED["summaries"], "one", b"\x02" + stored[1:])
        with pytest.raises(StoreUnavailable):
            await store.summaries(KEY, ["one"])

    async def test_one_damaged_session_does_not_hide_the_others(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["session"], "record", "junk")
        other = type(KEY)("aa", "02")
        await store.record(other, turn("u1", "a1"), DAY)
        assert [key for key, _ in (await store.sessions(10)).sessions] == [other]

    async def test_a_member_of_the_listing_that_is_not_ours_is_dropped(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("ZADD", "u1:sessions", 9e9, b"\xff\xfe")
        assert [key for key, _ in (await store.sessions(10)).sessions] == [KEY]


async def _outcomes(store: RedisStore) -> dict[str, object]:
    """What each call answered or raised. Anything but StoreUnavailable goes through."""
    outcomes: dict[str, object] = {}
    for name, call in CALLS.items():
        try:
            outcomes[name] = await call(store)
        except StoreUnavailable as error:
            outcomes[name] = error
    return outcomes
