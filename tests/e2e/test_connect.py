"""`unabridged connect`: what it prints points real clients at the proxy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tomllib

import pytest

from proxy.cli import main
from proxy.cli.connect import CLIENTS
from tests.support.upstreams import Model, said

PYTHON = "openai", "langchain", "openai-agents", "pydantic-ai"


def settings(capsys: pytest.CaptureFixture[str], client: str, server: str = "http://127.0.0.1:9000") -> str:
    assert main(["connect", client, "--server", server]) == 0
    return capsys.readouterr().out


async def shell(script: str) -> str:
    environ = {**os.environ, "OPENAI_API_KEY": "key-1"}
    process = await asyncio.create_subprocess_exec(
        "sh", "-ec", script, stdout=asyncio.subprocess.PIPE, env=environ
    )
    told, _ = await process.communicate()
    assert process.returncode == 0
    return told.decode()


async def test_the_openai_sdk_talks_through_the_proxy(
    model: Model, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model.replies.append(said("Fine."))
    messages = [{"role": "user", "content": "?"}]
    asks = f'print(client.chat.completions.create(model="gpt-test", messages={messages}).id)'
    program = f"{settings(capsys, 'openai', url)}\n{asks}"
    await shell(f"{sys.executable} - <<'END'\n{program}\nEND")
    assert len(model.chats) == 1


async def test_a_shell_takes_what_is_printed(
    model: Model, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = f"{sys.executable} -c 'import openai; print(openai.OpenAI().base_url)'"
    script = f"{settings(capsys, 'environment', f'{url}/v1')}\n{asks}"
    assert await shell(script) == f"{url}/v1/\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl is installed")
async def test_curl_is_answered(model: Model, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    model.replies.append(said("Fine."))
    answer = json.loads(await shell(settings(capsys, "curl", url)))
    assert answer["choices"][0]["message"]["content"] == "Fine."


@pytest.mark.parametrize("client", PYTHON)
def test_programs_in_python_are_whole(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    compile(settings(capsys, client), client, "exec")


def test_codex_gets_a_file_that_it_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    providers = tomllib.loads(settings(capsys, "codex"))["model_providers"]
    assert providers["unabridged"]["base_url"] == "http://127.0.0.1:9000/v1"


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_is_told_whether_it_is_managed(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = settings(capsys, client)
    assert "http://127.0.0.1:9000" in printed
    assert main(["connect", client, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["managed"] == ("relayed" not in printed)
    assert told["settings"].replace(":8080", ":9000") in printed


def test_all_clients_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect"]) == 0
    listed = capsys.readouterr().out
    assert all(client in listed for client in CLIENTS)
    assert main(["connect", "--json"]) == 0
    assert [each["client"] for each in json.loads(capsys.readouterr().out)["clients"]] == [*CLIENTS]


def test_a_client_that_nobody_knows_and_an_address_that_is_none_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["connect", "openay"])
    assert refused.value.code == 2
    assert main(["connect", "openai", "--server", "nowhere"]) == 2
    assert "--server must be a URL" in capsys.readouterr().err


def test_an_address_with_a_password_is_refused_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", "openai", "--server", "http://me:hush@127.0.0.1:8080"]) == 2
    said = "unabridged: --server must not hold a user or a password: the admin token is sent instead\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("host", ['a"b', "a$(b)", "a`b`", "a\\b", "a\nb"])
def test_an_address_that_ends_its_quotes_is_refused_in_one_line(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", "environment", "--server", f"http://{host}"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
