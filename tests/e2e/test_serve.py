"""`unabridged serve` as anybody would start it: its store, its workers, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from proxy.cli import main
from tests.processes import Serving, environment, serving
from tests.servers import PATIENCE
from tests.upstreams import Chat, Model, tokens_of, write_policy

Refused = Callable[..., tuple[int, str]]

BUDGET = 'extends = "default"\nbudget.tokens = {}\n'


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


def store_of(data: Path) -> Path:
    return data / "valkey" / "valkey.sock"


async def is_gone(data: Path) -> bool:
    """Whether the store comes to listen no more."""
    async with asyncio.timeout(PATIENCE * 2):
        while answers(store_of(data)):  # noqa: ASYNC110 - another process ends
            await asyncio.sleep(0.02)
    return True


def answers(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(socket_path))
        except OSError:
            return False
    return True


async def test_ctrl_c_ends_it_in_order_and_a_restart_finds_its_sessions_again(
    model: Model, data: Path, chats: Callable[..., Chat]
) -> None:
    async with serving(data, "--upstream", model.url) as served:
        chat = chats(served.url, X_Unabridged_Session="kept")
        assert (await chat.ask("Hello")).status_code == 200
        assert await served.end(signal.SIGINT) == 0
        assert not answers(store_of(data))
    async with serving(data, "--upstream", model.url) as served:
        assert await names_at(served, data) == ["kept"]
        assert await served.end(signal.SIGTERM) == 0
        assert not answers(store_of(data))


async def names_at(served: Serving, data: Path) -> list[str]:
    token = (data / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as client:
        answer = (await client.get(f"{served.url}/unabridged/v1/sessions")).json()
    return [each["name"] for each in answer["sessions"]]


async def test_a_second_serve_on_the_same_data_names_store_and_kill_9_leaves_no_orphan(
    data: Path, refused: Refused
) -> None:
    async with serving(data, ready=False) as served:
        assert answers(store_of(data))
        code, said = refused()
        assert code == 1
        assert "--store" in said
        await served.end(signal.SIGKILL)
        assert await is_gone(data)


@pytest.mark.parametrize("by", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL])
async def test_several_workers_share_the_store_follow_an_edit_and_end_with_their_supervisor(
    model: Model, data: Path, by: signal.Signals
) -> None:
    policy = write_policy(data, "mine", BUDGET.format(1000))
    async with serving(data, "--workers", "2", "--upstream", model.url, "--policy", str(policy)) as served:
        assert await budgets_in(served, "shared") == {1000}
        assert await names_at(served, data) == ["shared"]
        write_policy(data, "mine", BUDGET.format(900))
        async with asyncio.timeout(PATIENCE * 2):
            while await budgets_in(served, "edited") != {900}:  # noqa: ASYNC110 - other processes look
                await asyncio.sleep(0.02)
        await served.end(by)
        assert await is_gone(data)
        async with asyncio.timeout(PATIENCE * 2):
            while await listens(served.url):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)


async def budgets_in(served: Serving, session: str) -> set[int]:
    """What a session gets on connections of their own, enough of them to meet every worker."""
    found: set[int] = set()
    for place in range(12):
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            chat = Chat(served.url, client=client)
            chat.headers["X-Unabridged-Session"] = session
            found.add(tokens_of(await chat.ask(f"Question {place}"))["budget"])
    return found


async def listens(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    except OSError:
        return False
    writer.close()
    return True


# --- what does not start ---


@pytest.fixture
def refused(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a `serve` that does not begin, in this process; its exit code, and the line it says."""
    for name in set(os.environ) - set(environment(data)):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UNABRIDGED_DATA_DIR", str(data))

    def run(*flags: str) -> tuple[int, str]:
        code = main(["serve", "--port", "0", *flags])
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("unabridged: ")
        assert said.err.count("\n") == 1
        return code, said.err

    return run


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--host", "0.0.0.0"], "UNABRIDGED_ADMIN_TOKEN"),
        (["--store", "redis://127.0.0.1:1"], "UNABRIDGED_SECRET"),
        (["--store", "127.0.0.1:6379"], "--store must be a URL"),
        (["--port", "eighty"], "--port must be a whole number"),
    ],
)
def test_what_is_unsafe_or_wrong_does_not_start(refused: Refused, flags: list[str], reason: str) -> None:
    code, said = refused(*flags)
    assert code == 2
    assert reason in said


@pytest.mark.parametrize("flags", [["--policy", "nonsense"], ["--policies", "nonsense"]])
def test_a_policy_that_cannot_be_used_does_not_start(refused: Refused, flags: list[str]) -> None:
    code, said = refused("--store", "memory://", *flags)
    assert code == 2
    assert said.startswith("unabridged: nonsense: ")


def test_a_taken_port_is_said(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = refused("--port", port, "--store", "memory://")
    assert code == 1
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said


async def test_neither_the_token_nor_a_password_is_shown(data: Path) -> None:
    flags = ["--host", "127.0.0.1", "--store", "redis://:hush@127.0.0.1:1"]
    secrets = {"UNABRIDGED_SECRET": "naming", "UNABRIDGED_ADMIN_TOKEN": "opensesame"}
    async with serving(data, *flags, ready=False, **secrets) as served:
        told = json.dumps(served.told)
    assert served.told["store"] == "redis://127.0.0.1:1"
    assert not [word for word in ("hush", "naming", "opensesame") if word in told]
