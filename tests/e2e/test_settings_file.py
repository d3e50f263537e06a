"""Rules of the settings file that choose a policy by what is asked, and their edits, seen from outside."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from proxy.adapters.files import watcher as watched
from proxy.cli import main
from tests.support.clients import CHAT, HELLO, Chat, admin, proxying, tokens_of, write_policy
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, until
from tests.support.upstreams import Model

BUDGET = 'extends = "default"\nbudget.tokens = {}\n'
RULES = """
policy = "thousand"
[[use]]
model = "gpt-4o-mini*"
policy = "off"
[[use]]
header = { "X-Team" = "support" }
policy = "hundreds"
[[use]]
client = "QwenCode/*"
header = { "x-team" = "*" }
policy = "off"
[[use]]
client = "QwenCode/*"
policy = "thousands"
"""
QWEN = "QwenCode/0.1 (linux; x64)"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at files fifty times a second, not twice."""
    monkeypatch.setattr(watched, "_EVERY", 0.02)


@dataclass
class Office:
    """A server whose settings file a test edits."""

    url: str
    file: Path
    client: httpx2.AsyncClient

    def chat(self, **headers: str) -> Chat:
        chat = Chat(self.url, client=self.client)
        chat.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return chat

    async def budget(self, model: str = "gpt-test", **headers: str) -> int | None:
        """The budget of a request; None where it was relayed."""
        chat = self.chat(**headers)
        chat.members["model"] = model
        answer = await chat.ask("Hello")
        assert answer.status_code == 200
        return tokens_of(answer)["budget"] if "x-unabridged-tokens" in answer.headers else None

    async def chosen(self, **headers: str) -> str:
        """What chose the policy of a request, as `explain` tells."""
        chat = self.chat(X_Unabridged_Session="asked", **headers)
        await chat.ask("Hello")
        told = await admin(self.url, "sessions/asked/explain")
        return f"{told['policy']}, by {told['policy_by']}"

    async def metrics(self) -> list[str]:
        return (await self.client.get(f"{self.url}/metrics")).text.splitlines()


@pytest.fixture
async def office(model: Model, tmp_path: Path) -> AsyncIterator[Office]:
    for name, tokens in {"thousand": 1000, "hundreds": 500, "thousands": 5000}.items():
        write_policy(tmp_path, name, BUDGET.format(tokens))
    file = tmp_path / "settings" / "config.toml"
    file.parent.mkdir()
    file.write_text(RULES)
    async with (
        proxying(model.url, policies=tmp_path, config=file) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):
        yield Office(url, file, client)


async def test_the_first_rule_that_a_request_fits_chooses_its_policy(office: Office) -> None:
    assert await office.budget() == 1000
    assert await office.budget(X_Team="support") == 500
    assert await office.budget(X_Team="sales") == 1000
    assert await office.budget(User_Agent=QWEN) == 5000
    assert await office.budget(User_Agent=QWEN, X_Team="support") == 500
    assert await office.budget(User_Agent=QWEN, X_Team="sales") is None
    assert await office.budget("gpt-4o-mini-2024", X_Team="support") is None
    assert await office.budget("gpt-4o") == 1000


async def test_a_client_that_names_a_policy_gets_that_one(office: Office) -> None:
    assert await office.budget("gpt-4o-mini", X_Unabridged_Policy="hundreds") == 500


async def test_explain_says_what_chose(
    office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await office.chosen() == "thousand, by the server's default"
    assert await office.chosen(X_Unabridged_Policy="hundreds") == "hundreds, by the request's header"
    assert await office.chosen(X_Team="support") == "hundreds, by use rule 2 (header X-Team)"
    assert await office.chosen(User_Agent=QWEN) == "thousands, by use rule 4 (client QwenCode/*)"
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    assert await asyncio.to_thread(main, ["explain", "asked", "--server", office.url]) == 0
    assert "policy thousands, by use rule 4 (client QwenCode/*)" in capsys.readouterr().out


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_model_that_is_left_alone_is_relayed_byte_for_byte_and_nothing_is_stored(
    tmp_path: Path, is_packed: bool
) -> None:
    plain = HELLO.replace(b"gpt-test", b"gpt-4o-mini").replace(b"{", b'{ "x":"\\ud800", ', 1)
    body = gzip.compress(plain) if is_packed else plain
    packed = {"Content-Encoding": "gzip"} if is_packed else {}
    headers = {"Content-Type": "application/json", "X-Unabridged-Session": "s", **packed}
    received: list[bytes] = []

    async def serve_one(exchange: Exchange) -> None:
        received.append(bytes(await exchange.body()))
        await exchange.answer_json({})

    async def in_parts() -> AsyncIterator[bytes]:
        yield body[:20]
        await asyncio.sleep(0.05)
        yield body[20:]

    file = tmp_path / "config.toml"
    file.write_text('[[use]]\nmodel = "*-mini"\npolicy = "off"\n')
    async with (
        FakeUpstream(serve_one).serve() as upstream,
        proxying(f"{upstream.url}/v1", config=file) as url,
        httpx2.AsyncClient(timeout=PATIENCE, headers=headers) as client,
    ):
        for content in (body, in_parts()):
            assert (await client.post(url + CHAT, content=content)).json() == {}
        assert (await admin(url, "sessions"))["sessions"] == []
    assert received == [body, body]


async def test_the_model_of_a_body_that_is_none_chooses_nothing_and_the_client_hears_what_is_wrong(
    office: Office,
) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b"", b"[]", b'{"model":', b'{"messages":[{"model":"gpt-4o-mini"}', b"\xff"):
        answer = await office.client.post(office.url + CHAT, content=body, headers=headers)
        assert answer.status_code == 400, body


async def test_an_edit_of_the_rules_and_of_the_policy_is_in_force_without_a_restart(office: Office) -> None:
    assert await office.budget(User_Agent=QWEN) == 5000
    office.file.write_text('policy = "hundreds"\n[[use]]\nclient = "Qwen*"\npolicy = "thousand"\n')
    await until(500, office.budget)
    assert await office.budget(User_Agent=QWEN) == 1000
    assert 'unabridged_settings_reloads_total{result="loaded"} 1.0' in await office.metrics()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            '[[use]]\nclient = "Qwen*"\npolicy = "nope"\n',
            'config.toml:3: `policy = "nope"`: there is no such policy',
        ),
        ("policy = 3\n", "config.toml:1: `policy` must be text"),
        ("[[use]]\nclient = \n", "config.toml:2: is not TOML"),
    ],
)
async def test_a_bad_edit_keeps_all_as_it_was_and_says_so(
    office: Office, edit: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def is_stale() -> bool:
        return "unabridged_settings_stale 1.0" in await office.metrics()

    office.file.write_text(edit)
    await until(True, is_stale)
    assert (await office.budget(), await office.budget(User_Agent=QWEN)) == (1000, 5000)
    assert 'unabridged_settings_reloads_total{result="refused"} 1.0' in await office.metrics()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert said in vars(warning)["fields"]["reason"]
    office.file.write_text('policy = "hundreds"\n')
    await until(500, office.budget)
    assert not await is_stale()


async def test_a_rule_may_name_a_policy_that_comes_with_the_same_edit(office: Office, tmp_path: Path) -> None:
    write_policy(tmp_path, "new", BUDGET.format(700))
    office.file.write_text('policy = "thousand"\n[[use]]\nclient = "Qwen*"\npolicy = "new"\n')
    await until(700, lambda: office.budget(User_Agent=QWEN))
