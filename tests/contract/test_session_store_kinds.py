"""What is promised of one kind of SessionStore alone: memory, or servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proxy.adapters.stores import open_store
from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.keys import REMEMBERED
from proxy.errors import SettingsError, StoreUnavailable
from proxy.ports import LookupResult, SessionKey
from tests.support.certificates import Authority
from tests.support.network import relaying
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    STRANGER,
    HandClock,
    chain,
    epoch,
    found,
    hidden,
    run,
    turn,
)


class TestMemory:
    async def test_forgets_the_sessions_used_longest_ago(self, clock: HandClock) -> None:
        store = InProcessStore(clock, most=2)
        for i, key in enumerate([KEY, OTHER, STRANGER]):
            await store.record(key, turn("u1", f"a{i}", headerless=True), DAY)
        assert await found(store, "u1", "a0", "u2", sid=None) == LookupResult()
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == OTHER.sid

    async def test_holds_nothing_of_sessions_that_ended(self, clock: HandClock) -> None:
        store = InProcessStore(clock)
        for _ in range(3):
            await store.record(KEY, turn("u1", "a1", headerless=True), ttl=10)
            await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), ttl=20)
            clock.time += 30
            assert await store.session(KEY) is None
        assert not store._sessions  # pyright: ignore[reportPrivateUsage]
        assert not store._tips  # pyright: ignore[reportPrivateUsage]


class TestServers:
    async def test_find_is_one_round_trip(self, server_url: str, clock: HandClock) -> None:
        async with relaying(Path(server_url.removeprefix("unix://"))) as relay:
            store = open_store(relay.url, clock, timeout=2.0, rest=1.0)
            await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
            await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
            await found(store, "u1")  # loads the script
            for sid in (KEY.sid, None):
                relay.trips = 0
                assert (await found(store, "u1", "a1", "u2", sid=sid)).epochs == (epoch("e1"),)
                assert relay.trips == 1
            await store.aclose()

    async def test_keys_of_a_session_share_one_hash_tag(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "one", "text", DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", complete=False), DAY)
        await store.aclose()
        names = {name.decode() for name in run(server_url, "KEYS", "*")}
        parts = ["", ":counts", ":epochs:lane", ":lanes", ":nodes", ":partial", ":summaries", ":was"]
        assert names == {"u1:sessions", "u1:{aa}:tips", *(f"u1:{{aa}}:01{part}" for part in parts)}

    async def test_that_there_was_a_session_is_known_after_it_whatever_has_renewed_it(
        self, server_url: str, clock: HandClock
    ) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("u1", "a1"), ttl=1.0)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        await store.aclose()
        left = [run(server_url, "PTTL", f"u1:{{aa}}:01{part}") for part in (":was", "")]
        assert left[0] - left[1] > 1_000 * (REMEMBERED - 60.0)

    async def test_tips_of_sessions_that_ended_are_swept(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("hi", "a", headerless=True), DAY)
        for i in range(40):
            await store.record(SessionKey("aa", f"{i:02}"), turn("hi", f"a{i}", headerless=True), ttl=0.01)
        await asyncio.sleep(0.05)
        for i in range(60):
            await store.record(KEY, turn("hi", f"a-{i}", headerless=True), DAY)
        await store.aclose()
        assert run(server_url, "HLEN", "u1:{aa}:tips") < 61 + 20


WRITES: dict[str, Callable[[RedisStore], Awaitable[object]]] = {
    "begin_epoch": lambda store: store.begin_epoch(KEY, epoch("e1"), 0, DAY),
    "pin": lambda store: store.pin(KEY, chain("u1"), DAY),
    "keep_hidden": lambda store: store.keep_hidden(KEY, hidden("u1", "a1"), DAY),
    "inject": lambda store: store.inject(KEY, b"digest", b"text", DAY),
    "mark_unsaved": lambda store: store.mark_unsaved(KEY, chain("u1", "a1")[-1]),
    "mark_ended": lambda store: store.mark_ended(KEY),
    "pause": lambda store: store.pause(KEY, paused=True),
    "delete": lambda store: store.delete(KEY),
    "keep_summary": lambda store: store.keep_summary(KEY, "one", "text", 20.0),
    "compact": lambda store: store.take_place(KEY, "compact-1", 8, 20.0),
    "move": lambda store: store.move(KEY.tag, "cc", "t"),
}
"""All that changes what is found of a session, or how long it is there, but for turns."""


class TestRevision:
    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_it_is_another_one_after_any_write_but_a_turn(
        self, write: Callable[[RedisStore], Awaitable[object]], server_url: str, clock: HandClock
    ) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0, linger=0.0)
        await store.ping()  # makes all connections that are needed
        before = store.revision()
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await found(store, "u1", "a1")
        assert store.revision() == before
        await write(store)
        assert store.revision() != before
        await store.aclose()

    async def test_appended_turns_in_their_line_leave_it(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0, linger=0.0)
        await store.ping()
        before = store.revision()
        await store.take_place(KEY, "turn-1", 8, 20.0)
        await store.leave(KEY, "turn-1")
        assert store.revision() == before
        await store.aclose()

    async def test_it_is_another_one_after_a_fault(self, clock: HandClock, tmp_path: Path) -> None:
        store = RedisStore(f"unix://{tmp_path}/nobody", clock, 2.0, 1.0, linger=0.0)
        before = store.revision()
        with pytest.raises(StoreUnavailable):
            await found(store, "u1")
        assert store.revision() != before

    async def test_there_is_none_where_others_may_write(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        assert store.revision() is None
        await store.aclose()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://x?db=foo", "`db` must be the number of a database, such as 0"),
        ("redis://x?db=", "`db` must be the number of a database, such as 0"),
        ("redis+cluster://x?db=1&db=foo", "`db` must be the number of a database, such as 0"),
        ("redis://x?client_name=a%20b", "`client_name` must be visible ASCII characters without spaces"),
        ("unix:///x?password=", "`password` must not be empty"),
        ("redis://x?ssl_cert_reqs=none", "`ssl_cert_reqs` is for rediss://, which is TLS"),
        ("rediss://x?ssl_cert_reqs=y", "`ssl_cert_reqs` must be none, optional or required"),
        ("rediss+cluster://x?ssl_check_hostname=maybe", "`ssl_check_hostname` must be true or false"),
        ("rediss://x?ssl_ca_certs=/nowhere", "`ssl_ca_certs` names what is not there, or cannot be read"),
        ("rediss://x?ssl_keyfile=%00", "`ssl_keyfile` must be a path"),
        ("redis://x/bridges", "what follows the host must be the number of a database, such as /0"),
        ("redis://x/4?db=5", "the number of a database follows the host or is `db`, not both"),
        ("redis://x/1/2", "what follows the host must be the number of a database, such as /0"),
        ("redis://:hu/sh@x", "what follows the host must be the number of a database, such as /0"),
    ],
)
def test_a_part_of_the_url_that_is_wrong_is_told_with_what_it_must_be(
    clock: HandClock, url: str, said: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        open_store(url, clock, 1.0, 1.0)
    assert str(refused.value) == f"The store's URL is not valid: {said}"


def test_a_client_certificate_whose_key_cannot_be_used_is_refused_at_the_start(
    clock: HandClock, tmp_path: Path
) -> None:
    signed, others = (Authority(tmp_path).sign(name, password=b"hush") for name in ("client", "others"))
    alone = f"rediss://x?ssl_certfile={signed.certificate}"
    both, mixed = (f"{alone}&ssl_keyfile={each.key}" for each in (signed, others))
    for url, said in (
        (both, "`ssl_keyfile` has no key of the certificate that can be used without `ssl_password`"),
        (f"{both}&ssl_password=no", "`ssl_keyfile` has no key of the certificate that `ssl_password` opens"),
        (
            f"{mixed}&ssl_password=hush",
            "`ssl_keyfile` has no key of the certificate that `ssl_password` opens",
        ),
        (alone, "`ssl_certfile` has no key of the certificate that can be used without `ssl_password`"),
        (f"rediss://x?ssl_keyfile={signed.key}", "`ssl_keyfile` needs `ssl_certfile` too"),
    ):
        with pytest.raises(SettingsError) as refused:
            open_store(url, clock, 1.0, 1.0)
        assert str(refused.value) == f"The store's URL is not valid: {said}"
    assert open_store(f"{both}&ssl_password=hush", clock, 1.0, 1.0)


@pytest.mark.parametrize(
    "name", ["size", "socket_timeout", "retry_on_error", "retry", "protocol", "timeouts"]
)
def test_what_no_operator_may_say_of_a_connection_is_no_parameter(clock: HandClock, name: str) -> None:
    for scheme in ("redis", "rediss", "redis+cluster", "unix"):
        with pytest.raises(SettingsError, match=f"valid: there is no parameter `{name}`; there are db, "):
            open_store(f"{scheme}:///x?{name}=3", clock, 1.0, 1.0)


@pytest.mark.parametrize("password", ["5?hush", "5?hush=1", "5?hush&5"])
def test_half_of_a_password_is_not_shown_as_a_parameter(clock: HandClock, password: str) -> None:
    with pytest.raises(SettingsError) as refused:
        open_store(f"redis://:{password}@h:6379", clock, 1.0, 1.0)
    assert "hush" not in str(refused.value)


async def test_a_url_may_name_user_database_and_certificates(clock: HandClock, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    for url in (
        "redis://x?db=3&username=u&password=p%20w&client_name=proxy",
        "unix:///x?db=1",
        f"rediss://x?ssl_ca_certs={tmp_path}/ca.pem&ssl_cert_reqs=optional&ssl_check_hostname=False",
    ):
        await open_store(url, clock, 1.0, 1.0).aclose()
