"""`unabridged doctor` before real stores: well, far from well, and the embedded one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.app import SystemClock
from proxy.cli.doctor.findings import of_clock
from tests.support.cluster import three_nodes
from tests.support.doctor import Doctor, Told
from tests.support.processes import serving as serving_proxy
from tests.support.stores import free_port, serving, valkey_command
from tests.support.upstreams import Model

LASTING = ("--appendonly", "yes")


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(tmp_path / "data", capsys)


async def told_of(doctor: Doctor, model: Model, *options: str, before: tuple[str, ...] = ()) -> Told:
    """What is told of a server that was started with these options, and given a command."""
    with serving(valkey_command(), *options) as server:
        if before:
            server.run(*before)
        return await doctor(upstream=model.url, store=server.url)


async def test_a_store_that_keeps_all_is_well(doctor: Doctor, model: Model) -> None:
    told = await told_of(doctor, model, *LASTING)
    assert (told.code, told.worst) == (0, [])
    assert told.of("store")[1].startswith("Valkey ")
    assert told.of("store persistence")[1] == "an append-only file"
    assert told.of("store clock")[1] == "within 30 s of ours"


@pytest.mark.parametrize(
    ("options", "check", "words"),
    [
        ((), "store persistence", "none"),
        (("--save", "60", "1"), "store persistence", "snapshots"),
        ((*LASTING, "--maxmemory-policy", "allkeys-lru"), "store eviction", "allkeys-lru"),
        ((*LASTING, "--maxmemory", "1mb"), "store memory", "of 1"),
    ],
)
async def test_what_would_lose_sessions_is_a_warning(
    doctor: Doctor, model: Model, options: tuple[str, ...], check: str, words: str
) -> None:
    with serving(valkey_command(), *options) as server:
        told = await doctor(upstream=model.url, store=server.url)
    state, message = told.of(check)
    assert (state, words in message) == ("warn", True)


@pytest.mark.parametrize(
    ("rights", "check"),
    [
        (("-@scripting",), "store scripts"),
        (("-time",), "store scripts"),
        (("-@write",), "store writes"),
        (("resetkeys", "~other:*"), "store writes"),
    ],
)
async def test_a_user_who_may_not_do_what_is_needed_is_told(
    doctor: Doctor, model: Model, rights: tuple[str, ...], check: str
) -> None:
    before = ("ACL", "SETUSER", "default", *rights)
    told = await told_of(doctor, model, *LASTING, before=before)
    state, message = told.of(check)
    assert (told.code, state) == (1, "fail")
    assert "its user may not do that (NOPERM)" in message


async def test_a_user_who_may_not_use_transactions_is_told(doctor: Doctor, model: Model) -> None:
    told = await told_of(doctor, model, *LASTING, before=("ACL", "SETUSER", "default", "-multi"))
    assert (told.code, told.of("store scripts")[0]) == (1, "fail")


async def test_the_rights_that_the_documentation_lists_are_enough(doctor: Doctor, model: Model) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (rights,) = re.findall(r"^ACL SETUSER unabridged on >password (.*)$", page, re.MULTILINE)
    before = ("ACL", "SETUSER", "default", "reset", "on", "nopass", *rights.split())
    told = await told_of(doctor, model, *LASTING, before=before)
    assert (told.code, told.worst) == (0, [("store persistence", "warn")])


async def test_a_full_store_is_told_as_such_and_not_as_a_matter_of_rights(
    doctor: Doctor, model: Model
) -> None:
    told = await told_of(doctor, model, *LASTING, before=("CONFIG", "SET", "maxmemory", "1"))
    (found,) = (each for each in told.checks if each["state"] == "fail")
    assert (found["check"], found["message"]) == (
        "store writes",
        "The store refuses: its memory is full (OOM).",
    )
    assert found["advice"].startswith("mend the store: until then chats go on without their sessions, or")


async def test_a_user_who_may_not_ask_what_a_server_is_learns_the_rest(doctor: Doctor, model: Model) -> None:
    before = ("ACL", "SETUSER", "default", "-info", "-config")
    told = await told_of(doctor, model, *LASTING, before=before)
    assert told.of("store scripts")[0] == "ok"
    assert (told.code, told.worst) == (0, [("store persistence", "warn")])
    assert told.of("store persistence")[1] == "it does not tell whether it writes to disk"


async def test_a_store_that_is_not_there_is_told(doctor: Doctor, model: Model) -> None:
    told = await doctor(upstream=model.url, store="redis://:hunter2@127.0.0.1:1")
    assert (told.code, told.worst) == (1, [("store", "fail")])
    assert "connection refused" in told.of("store")[1]
    assert "hunter2" not in str(told)


async def test_a_store_with_an_option_that_there_is_not_is_told(doctor: Doctor, model: Model) -> None:
    told = await doctor(upstream=model.url, store="redis://:hunter2@127.0.0.1:1?size=5")
    assert (told.code, told.worst) == (1, [("store", "fail")])
    assert "The store's URL is not valid" in told.of("store")[1]
    assert "`size`" in told.of("store")[1]
    assert "hunter2" not in str(told)


async def test_a_store_of_another_secret_is_told(doctor: Doctor, model: Model) -> None:
    with serving(valkey_command(), *LASTING) as server:
        others = Keyring(["another secret of theirs"], lambda: False)
        store = RedisStore(server.url, SystemClock(), 2.0, 1.0, others)
        assert await store.meet()
        await store.aclose()
        told = await doctor(upstream=model.url, store=server.url)
        assert (told.code, told.worst) == (1, [("store secret", "fail")])


async def test_a_server_that_is_no_cluster_is_told_with_how_it_is_named(doctor: Doctor, model: Model) -> None:
    port = free_port()
    with serving(valkey_command(), *LASTING, "--bind", "127.0.0.1", "--port", str(port)):
        told = await doctor(upstream=model.url, store=f"redis+cluster://127.0.0.1:{port}")
    assert (told.code, told.worst) == (1, [("store", "fail")])
    assert told.of("store")[1].endswith(": it is not a cluster")


async def test_a_part_of_a_cluster_is_told_with_how_a_cluster_is_named(doctor: Doctor, model: Model) -> None:
    with three_nodes() as cluster:
        told = await doctor(upstream=model.url, store=cluster.url.replace("+cluster", ""))
    assert told.code == 1
    assert "it is part of a cluster, whose URL begins with redis+cluster:// (MOVED)" in str(told.checks)


async def test_a_cluster_is_looked_at_by_the_node_that_is_named(doctor: Doctor, model: Model) -> None:
    with three_nodes() as cluster:
        told = await doctor(upstream=model.url, store=cluster.url)
    assert (told.code, told.worst) == (0, [("store persistence", "warn")])
    assert told.of("store scripts")[0] == "ok"


async def test_it_leaves_nothing_in_a_store(doctor: Doctor, model: Model) -> None:
    with serving(valkey_command(), *LASTING) as server:
        await doctor(upstream=model.url, store=server.url)
        assert set(server.run("KEYS", "*")) <= {b"u1:probe"}
        assert server.run("PTTL", "u1:probe") <= 1000


async def test_the_embedded_store_is_started_for_a_look_and_found_where_a_server_runs_it(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    told = await doctor(upstream=model.url, store="")
    assert (told.code, told.worst) == (0, [])
    assert "started for this look" in told.of("store")[1]
    async with serving_proxy(tmp_path / "data", "--upstream", model.url):
        told = await doctor(upstream=model.url, store="")
        assert (told.code, told.worst) == (0, [])
        assert "where a server runs it" in told.of("store")[1]


async def test_an_embedded_store_of_another_secret_is_told_also_once_a_server_has_started_with_it(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for secret in ("", "another secret of nobody's\n".replace(" ", "-")):
        if secret:
            (data / "secret").write_text(secret)
            told = await doctor(upstream=model.url, store="")
            assert (told.code, told.worst) == (1, [("store secret", "fail")])
        async with serving_proxy(data, "--upstream", model.url) as server:
            await server.end()
    told = await doctor(upstream=model.url, store="")
    assert (told.code, told.worst) == (1, [("store secret", "fail")])


async def test_a_secret_of_the_embedded_store_that_is_gone_is_told_and_none_is_made(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    async with serving_proxy(data, "--upstream", model.url) as server:
        await server.end()
    (data / "secret").unlink()
    told = await doctor(upstream=model.url, store="")
    state, message = told.of("store secret")
    assert (told.code, state) == (1, "fail")
    assert f"{data / 'secret'} is gone" in message
    assert not (data / "secret").exists()


def test_a_clock_that_is_minutes_off_is_told() -> None:
    assert of_clock("store clock", 2.0).state == "ok"
    assert of_clock("store clock", -60.0)[1:3] == ("warn", "60 s behind ours")
    assert of_clock("store clock", 600.0)[1:3] == ("fail", "10 min ahead of ours")


async def test_a_data_directory_that_cannot_be_used_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: Model
) -> None:
    data = tmp_path / ("x" * 300)
    told = await Doctor(data, capsys)(upstream=model.url, store="", XDG_CONFIG_HOME=str(tmp_path))
    state, message = told.of("store")
    assert state == "fail"
    assert f"{data}/valkey" in message
    assert "File name too long" in message
