"""`unabridged serve` where the environment names an outbound proxy: the only way out of many a company."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from proxy.cli import main
from tests.support.certificates import Authority
from tests.support.clients import CHAT, HELLO, KEY
from tests.support.outbound import OutboundProxy, outbound_proxy
from tests.support.processes import LOG, PROGRAM, environment, serving
from tests.support.servers import PATIENCE
from tests.support.upstreams import Model, said

TEXT = "An answer that came by the proxy, in several pieces."
UPSTREAM = "https://model.example/v1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def proxy(model: Model, authority: Authority) -> AsyncIterator[OutboundProxy]:
    port = int(model.url.removesuffix("/v1").rpartition(":")[2])
    async with outbound_proxy(port, authority.serving("model.example")) as running:
        running.password = "me:hunter2"
        yield running


@pytest.fixture
def variables(proxy: OutboundProxy, authority: Authority) -> dict[str, Any]:
    by = proxy.url.replace("//", "//me:hunter2@")
    return {
        "HTTPS_PROXY": by,
        "HTTP_PROXY": by,
        "NO_PROXY": "inner.example",
        "UNABRIDGED_UPSTREAM_CA": str(authority.file),
        "UNABRIDGED_STORE": "memory://",
    }


def log_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / LOG).read_text().splitlines()]


async def test_the_sdk_is_answered_by_it_whole_and_streamed_and_its_password_is_told_to_nobody(
    model: Model, proxy: OutboundProxy, variables: dict[str, Any], tmp_path: Path
) -> None:
    async with (
        serving(tmp_path, "--upstream", UPSTREAM, "--log-level", "debug", **variables) as served,
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="sk-test", max_retries=0) as client,
    ):
        assert served.told["upstream_proxy"] == proxy.url
        model.replies.extend([said(TEXT), said(TEXT)])
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
        answer = await client.chat.completions.create(model="m", messages=asked)
        assert answer.choices[0].message.content == TEXT
        pieces = [
            chunk.choices[0].delta.content or ""
            async for chunk in await client.chat.completions.create(model="m", messages=asked, stream=True)
        ]
        assert "".join(pieces) == TEXT
        assert len(pieces) > 3
        assert [each async for each in await client.models.list()] == []
    assert set(proxy.carried) == {"CONNECT model.example:443 HTTP/1.1"}
    assert model.chats[0].value("host") == b"model.example"
    assert model.chats[0].value("proxy-authorization") is None
    assert "hunter2" not in (tmp_path / LOG).read_text() + json.dumps(served.told)


@pytest.mark.parametrize(
    ("members", "said_to_client"),
    [
        ({"password": "me:changed"}, "the outbound proxy wants other credentials (407)"),
        ({"answer": b"HTTP/1.1 502 Bad Gateway\r\n\r\n"}, "the outbound proxy refused (502)"),
    ],
)
async def test_what_the_proxy_refuses_is_a_bad_gateway_that_names_it(
    proxy: OutboundProxy,
    variables: dict[str, Any],
    tmp_path: Path,
    members: dict[str, Any],
    said_to_client: str,
) -> None:
    for name, value in members.items():
        setattr(proxy, name, value)
    async with (
        serving(tmp_path, "--upstream", UPSTREAM, **variables) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=PATIENCE, headers={"Authorization": KEY}) as client,
    ):
        managed = await client.post(CHAT, content=HELLO, headers={"Content-Type": "application/json"})
        relayed = await client.get("/v1/files")
        for refused in (managed, relayed):
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (502, "upstream_unreachable")
            assert said_to_client in error["message"]
    told = [line for line in log_of(tmp_path) if line["message"] == "the upstream failed"]
    assert len(told) >= 2
    for line in told:
        assert (line["host"], line["proxy"]) == ("model.example", proxy.url)
        assert said_to_client in line["why"]
    assert "hunter2" not in str(told)


async def test_what_is_on_this_machine_is_asked_without_it(
    model: Model, proxy: OutboundProxy, variables: dict[str, Any], tmp_path: Path
) -> None:
    del variables["UNABRIDGED_UPSTREAM_CA"]
    async with (
        serving(tmp_path, "--upstream", model.url, **variables) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=PATIENCE, headers={"Authorization": KEY}) as client,
    ):
        assert "upstream_proxy" not in served.told
        model.replies.append(said(TEXT))
        answer = await client.post(CHAT, content=HELLO, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        verb = [*PROGRAM, "sessions", "list", "--server", served.url, "--json"]
        told = await asyncio.to_thread(
            subprocess.run, verb, env={**environment(tmp_path), **variables}, capture_output=True, check=True
        )
        assert len(json.loads(told.stdout)["sessions"]) == 1
    assert proxy.carried == []


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., str]:
    def start(*flags: str, **variables: str) -> str:
        monkeypatch.setenv("UNABRIDGED_DATA_DIR", str(tmp_path))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert main(["serve", "--port", "0", *flags]) == 2
        return capsys.readouterr().err

    return start


def test_what_cannot_be_used_stops_the_start_in_one_line(refused: Callable[..., str]) -> None:
    said = refused("--upstream", UPSTREAM, HTTPS_PROXY="socks5://me:hunter2@proxy:1080")
    assert said == "unabridged: HTTPS_PROXY must be a URL such as http://proxy.example.com:3128\n"
    said = refused("--upstream", UPSTREAM, "--upstream-cert", "nowhere.pem", HTTPS_PROXY="")
    assert "UNABRIDGED_UPSTREAM_CERT: nowhere.pem cannot be used: No such file or directory" in said
