"""The command line at an address where something answers that is no proxy."""

from __future__ import annotations

import asyncio

import pytest

from proxy.cli import client, main
from tests.support.servers import PATIENCE, Exchange, FakeUpstream

COMMANDS = [
    *(f"sessions {verb} a" for verb in ("show", "transcript", "view", "tools", "export", "pause", "resume")),
    *(f"sessions {verb} a" for verb in ("fork", "compact", "restore", "delete --yes")),
    *(f"memory {verb}" for verb in ("list", "search q", "show a", "log a", "restore a", "forget a --yes")),
    *("memory export", "memory maintain", "sessions list", "sessions show a/b"),
    *("explain a", "stats", "watch --once", "watch --json"),
]


async def said_of(
    upstream: FakeUpstream, words: str, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    async with upstream.serve():
        server = ["--server", upstream.url]
        code = await asyncio.to_thread(main, [*words.split(), *server])
    out, err = capsys.readouterr()
    return code, out, err.replace(upstream.url, "URL")


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")


@pytest.mark.parametrize("body", [b"<html>Welcome", b'{"ok": true}', b"[1]", b"null", b"[" * 99_999])
@pytest.mark.parametrize("words", COMMANDS)
async def test_what_is_no_answer_of_a_proxy_is_said_in_one_sentence(
    words: str, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def other(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer(200, body=body)

    code, out, err = await said_of(FakeUpstream(other), words, capsys)
    assert (code, err) == (1, "unabridged: URL is not the address of a proxy; name it with --server\n")
    assert not out or "--json" in words


MEMBERS = ("sessions", "epochs", "messages", "units", "tools", "rows", "notices", "scopes", "source")
TOLD_BY = (*MEMBERS, "events", "id", "deleted", "forgotten", "of")
"""Members by which an answer is told to be a proxy's."""


@pytest.mark.parametrize("within", [None, 5, "soon", [None], [{}], {}])
@pytest.mark.parametrize("words", COMMANDS)
async def test_an_answer_that_is_otherwise_within_than_a_proxys_is_said_in_one_sentence(
    words: str, within: object, capsys: pytest.CaptureFixture[str]
) -> None:

    async def other(exchange: Exchange) -> None:
        await exchange.answer_json(dict.fromkeys(TOLD_BY, within))

    code, _, err = await said_of(FakeUpstream(other), words, capsys)
    assert (code, err.count("\n")) in ((1, 1), (0, 0))
    assert not err or err.startswith("unabridged: ")


@pytest.mark.parametrize(("name", "value"), [("HTTP_PROXY", "ftp://x"), ("SSL_CERT_FILE", "/nowhere")])
def test_a_variable_with_which_nobody_can_be_asked_is_said_in_one_sentence(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["stats", "--server", "http://proxy.example"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("unabridged: http://proxy.example cannot be asked with this environment: ")


async def test_an_address_that_sends_elsewhere_is_answered_with_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def moved(exchange: Exchange) -> None:
        await exchange.answer(301, [(b"Location", b"https://other.example/login")])

    said = "unabridged: URL sends elsewhere, to https://other.example/login; name the proxy with --server\n"
    assert await said_of(FakeUpstream(moved), "stats", capsys) == (1, "", said)


@pytest.mark.parametrize(
    "body", [b"<html>Bad Gateway", b'{"error": "down"}', b'{"error": {"message": null}}']
)
async def test_an_error_that_no_proxy_sends_is_told_with_its_status(
    body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(exchange: Exchange) -> None:
        await exchange.answer(502, body=body)

    said = "unabridged: URL answers 502, and not as a proxy does; name it with --server\n"
    assert await said_of(FakeUpstream(broken), "sessions list", capsys) == (1, "", said)


@pytest.mark.parametrize("words", ["stats", "sessions pause a", "memory maintain"])
async def test_a_port_that_never_answers_is_not_waited_for_without_end(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("_LOOKING", "_CHANGING"):
        monkeypatch.setattr(client, patience, 0.1)
    async with asyncio.timeout(PATIENCE):
        told = await said_of(FakeUpstream(Exchange.gone), words, capsys)
    assert told == (1, "", "unabridged: no proxy answers at URL (timed out); name it with --server\n")


@pytest.mark.parametrize("greeting", [b"-ERR unknown command\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b""])
async def test_a_port_that_speaks_no_http_is_said_in_one_sentence(
    greeting: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    async def other(exchange: Exchange) -> None:
        await exchange.raw(greeting)
        exchange.close()

    code, out, err = await said_of(FakeUpstream(other), "sessions list", capsys)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("unabridged: no proxy answers at URL (")
    assert err.endswith("); name it with --server\n")
