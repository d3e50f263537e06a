"""`unabridged serve` as anybody would start it: its store, its workers, and how they end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.cli import main
from tests.support.clients import Chat, Chats, tokens_of, write_policy
from tests.support.processes import LOG, Serving, environment, serving
from tests.support.servers import PATIENCE, eventually, until
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model

Refused = Callable[..., tuple[int, str]]

BUDGET = 'extends = "default"\nbudget.tokens = {}\n'


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


def store_of(data: Path) -> Path:
    return data / "valkey" / "valkey.sock"


def log_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / LOG).read_text().splitlines()]


def workers_that_said(data: Path, message: str) -> set[int]:
    return {line["worker"] for line in log_of(data) if line["message"] == message}


async def is_gone(data: Path) -> bool:
    """Whether the store comes to listen no more."""
    await eventually(lambda: not answers(store_of(data)))
    return True


def answers(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(socket_path))
        except OSError:
            return False
    return True


async def test_ctrl_c_ends_it_in_order_and_a_restart_finds_its_sessions_again(
    model: Model, data: Path, chats: Chats
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
    write_policy(data, "mine", BUDGET.format(1000))
    file = data / "config.toml"
    rule = '[[use]]\nmodel = "x"\npolicy = "off"\n'
    file.write_text(f'workers = 2\nupstream = "{model.url}"\npolicy = "mine.toml"\n{rule}')
    pages = ["https://a.example", "https://b.example"]
    flags = [word for page in pages for word in ("--cors-origin", page)]
    async with serving(data, "--config", str(file), *flags) as served:
        assert await allowed_pages(served, [*pages, "https://c.example"]) == pages
        assert await budgets_in(served, "shared") == {1000}
        assert await names_at(served, data) == ["shared"]
        write_policy(data, "mine", BUDGET.format(900))
        await until({900}, lambda: budgets_in(served, "edited"))
        await eventually(lambda: len(workers_that_said(data, "policies were read anew")) >= 2)
        file.write_text('policy = "balanced"\n')
        await eventually(lambda: len(workers_that_said(data, "the settings file was read anew")) >= 2)
        await served.end(by)
        assert await is_gone(data)
        await until(False, lambda: listens(served.url))


async def test_a_worker_that_is_killed_is_replaced_and_the_log_says_so(model: Model, data: Path) -> None:
    async with serving(data, "--upstream", model.url, "--workers", "2") as served:
        killed = workers_of(served)[0]
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: any(line.get("pid") == killed for line in log_of(data)))
        (told,) = [line for line in log_of(data) if line["level"] == "warning"]
        assert told["message"] == "a worker ended, and another takes its place"
        assert told["by"] == "SIGKILL"
        await served.becomes(200)
        assert len(workers_of(served)) == 2
        assert await served.end() == 0


async def test_a_new_worker_begins_under_the_policy_in_force_while_its_file_has_an_error(
    model: Model, data: Path
) -> None:
    write_policy(data, "mine", BUDGET.format(1000))
    file = data / "config.toml"
    file.write_text(f'workers = 2\nupstream = "{model.url}"\npolicy = "mine.toml"\n')
    async with serving(data, "--config", str(file)) as served:
        write_policy(data, "mine", BUDGET.format(900))
        await eventually(lambda: len(workers_that_said(data, "policies were read anew")) >= 2)
        write_policy(data, "mine", "budget = 0")
        refused = "a policy cannot be used as it is now"
        await eventually(lambda: len(workers_that_said(data, refused)) >= 2)
        before = workers_that_said(data, refused)
        for worker in workers_of(served):
            os.kill(worker, signal.SIGKILL)
        await eventually(lambda: workers_that_said(data, refused) - before)
        await served.becomes(200)
        assert await budgets_in(served, "shared") == {900}


def workers_of(served: Serving) -> list[int]:
    command = ["pgrep", "-P", str(served.process.pid), "-f", "spawn_main"]
    return [*map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())]


async def allowed_pages(served: Serving, pages: list[str]) -> list[str]:
    """Those that may ask, whichever worker they meet."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
        answers = [await client.get(f"{served.url}/v1/models", headers={"Origin": page}) for page in pages]
    return [page for page, answer in zip(pages, answers, strict=True) if answer.status_code == 200]


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
        (["--store", "memory://", "--workers", "2"], "2 workers need a store that they share"),
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


def test_a_policy_that_there_is_not_is_answered_with_those_that_there_are(
    refused: Refused, tmp_path: Path
) -> None:
    write_policy(tmp_path, "ours", BUDGET.format(1000))
    _, said = refused("--store", "memory://", "--policies", str(tmp_path), "--policy", "nope")
    assert "nope: there is no such policy; there are " in said
    names = said.rpartition("there are ")[2].strip().replace(" and ", ", ").split(", ")
    assert {"`ours`", "`default`", "`agent`", "`off`"} <= {*names}


def test_a_mistake_in_the_settings_file_is_told_by_file_and_line(refused: Refused, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for text, line in {"prot = 8080\n": 1, '[[use]]\nclient = "x"\npolicy = "nope"\n': 3}.items():
        file.write_text(text)
        code, said = refused("--config", str(file))
        assert code == 2
        assert said.startswith(f"unabridged: {file}:{line}: ")


def test_a_taken_port_is_said(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = refused("--port", port, "--store", "memory://")
    assert code == 1
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said


@pytest.mark.parametrize("host", ["192.0.2.1", "münchen..example"])
def test_an_address_that_is_not_this_machines_or_none_is_said(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "opensesame")
    code, said = refused("--host", host, "--store", "memory://")
    assert (code, said.count("--host")) == (1, 1)


async def test_the_pages_address_opens_it_where_the_start_made_the_token(data: Path) -> None:
    async with (
        serving(data, "--store", "memory://", ready=True) as served,
        httpx2.AsyncClient(timeout=PATIENCE, follow_redirects=True) as browser,
    ):
        page = await browser.get(served.told["page"])
        assert (page.status_code, page.url.query) == (200, b"")
        assert (await browser.get(served.told["page"].partition("?")[0])).status_code == 200


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        pytest.param("redis://:hush@127.0.0.1:1", "redis://127.0.0.1:1", marks=pytest.mark.soak),
        ("redis://127.0.0.1:1/2?password=hush", "redis://127.0.0.1:1/2"),
        ("rediss://127.0.0.1:1?ssl_password=hush", "rediss://127.0.0.1:1"),
        pytest.param(
            "unix:///nowhere/valkey@1.sock?password=hush",
            "unix:///nowhere/valkey@1.sock",
            marks=pytest.mark.soak,
        ),
    ],
)
async def test_neither_a_token_that_was_given_nor_a_password_is_shown(
    data: Path, store: str, shown: str
) -> None:
    flags = ["--host", "127.0.0.1", "--store", store]
    secrets = {"UNABRIDGED_SECRET": "naming-and-encrypting", "UNABRIDGED_ADMIN_TOKEN": "opensesame"}
    async with serving(data, *flags, ready=False, **secrets) as served:
        told = json.dumps(served.told)
    assert served.told["store"] == shown
    assert not [word for word in ("hush", "naming-and", "opensesame") if word in told]


@pytest.mark.parametrize("name", ["UNABRIDGED_ADMIN_TOKEN", "UNABRIDGED_ADMIN_TOKEN_FILE", "the file"])
async def test_where_the_token_is_given_is_said_and_a_damaged_one_of_an_earlier_start_is_none(
    data: Path, name: str
) -> None:
    (data / "admin-token").write_bytes(b"\xff\xfe")
    (data / "token").write_text("opensesame")
    config = data / "config.toml"
    config.write_text('admin_token = "opensesame"\n' if name == "the file" else "")
    value = str(data / "token") if name.endswith("_FILE") else "opensesame"
    given = {} if name == "the file" else {name: value}
    async with serving(data, "--store", "memory://", "--config", str(config), ready=False, **given) as served:
        assert served.told["token"] == f"as {config if name == 'the file' else name} has it"
        assert "opensesame" not in json.dumps(served.told)


# --- what it says ---


async def test_where_it_listens_is_one_line_of_json_and_whoever_reads_it_can_connect(data: Path) -> None:
    async with serving(data, "--store", "memory://", ready=False) as served:
        address, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((address, int(port))):  # raises where nobody listens
            assert int(port) > 0
        assert served.told["base_url"] == f"http://127.0.0.1:{port}/v1"
    async with serving(data, "--store", "memory://", "--host", "[::1]", ready=False) as served:
        assert served.told["base_url"].startswith("http://[::1]:")


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_store_that_cannot_be_reached_at_the_start_is_told_with_its_fault(
    data: Path, workers: str
) -> None:
    flags = ["--store", "redis://:hush@127.0.0.1:1", "--workers", workers]
    secret = {"UNABRIDGED_SECRET": "naming-and-encrypting"}
    async with (
        serving(data, *flags, ready=True, **secret) as served,
        httpx2.AsyncClient(timeout=PATIENCE) as probe,
    ):
        readiness = (await probe.get(f"{served.url}/readyz")).json()
        assert served.told["store"] == "redis://127.0.0.1:1"
        assert served.told["store_fault"] == readiness["store"]
        assert served.told["store_fault"] == "The store cannot be used: connection refused."
        (warning, *others) = [line for line in log_of(data) if line["level"] == "warning"]
    assert (warning["message"], warning["why"]) == ("the store cannot be used", "connection refused")
    assert all(line["worker"] != warning["worker"] for line in others)


async def test_a_store_that_can_be_used_is_told_without_a_fault(data: Path) -> None:
    with embedded_valkey() as store:
        secret = {"UNABRIDGED_SECRET": "naming-and-encrypting"}
        for flags in (["--store", store], ["--store", "memory://"], []):
            async with serving(data, *flags, ready=False, **secret) as served:
                assert "store" in served.told
                assert "store_fault" not in served.told


async def test_a_variable_that_there_is_not_is_named_with_the_one_that_may_be_meant(data: Path) -> None:
    variables = {
        "UNABRIDGED_POLICI": "agent",
        "UNABRIDGED_PORT": "tcp://10.0.0.1:80",
        "UNABRIDGED_SERVICE_HOST": "10.0.0.1",
    }
    async with serving(data, "--store", "memory://", ready=True, **variables) as served:
        assert served.told["policy"] == "default"
    warnings = [line for line in log_of(data) if line["level"] == "warning"]
    assert [(line["variable"], line["nearest"]) for line in warnings] == [
        ("UNABRIDGED_POLICI", "UNABRIDGED_POLICY")
    ]


async def test_log_lines_are_text_where_that_is_asked_for_and_none_below_their_level(
    model: Model, data: Path, chats: Chats
) -> None:
    flags = ("--store", "memory://", "--upstream", model.url, "--log-format", "text")
    async with serving(data, *flags) as served:
        await chats(served.url).ask("Hello")
        assert await served.end() == 0
    (line,) = [line for line in (data / LOG).read_text().splitlines() if " request " in line]
    assert re.match(r"2\S+T\S+\+00:00 info    request route=chat status=200 ", line)
    (data / LOG).unlink()
    async with serving(data, *flags, "--log-level", "warning") as served:
        await chats(served.url).ask("Hello")
        assert await served.end() == 0
    assert (data / LOG).read_text() == ""
