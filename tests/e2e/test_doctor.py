"""`unabridged doctor` before upstreams, policies and ports that are well, and broken ones of each kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.clients import proxying, write_policy
from tests.support.doctor import Doctor
from tests.support.outbound import outbound_proxy
from tests.support.processes import serving
from tests.support.servers import Exchange, FakeUpstream
from tests.support.stores import free_port
from tests.support.upstreams import Model, events, in_pieces, plainly, said, sse

KEY = {"OPENAI_API_KEY": "sk-very-secret"}
COUNTING = [sse(event) for event in events(said(", ".join(map(str, range(1, 41)))))]


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(tmp_path / "data", capsys)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# --- the upstream ---


async def test_all_is_well_before_an_upstream_that_answers(doctor: Doctor, model: Model) -> None:
    model.listing = {"data": [{"id": "small", "context_length": 8192}, {"id": "gpt-4o"}, {"id": "odd"}]}
    told = await doctor(upstream=model.url, **KEY)
    assert (told.code, told.worst) == (0, [])
    assert told.of("key")[0] == "ok"
    (models,) = (each for each in told.checks if each["check"] == "models")
    assert models["details"] == [
        {"model": "gpt-4o", "window": 128_000, "window_from": "prices"},
        {"model": "odd", "window": None, "window_from": "unknown"},
        {"model": "small", "window": 8192, "window_from": "upstream"},
    ]
    assert dict(model.others[0].headers)[b"authorization"] == b"Bearer sk-very-secret"


async def test_a_kept_token_with_which_serve_does_not_start_is_told(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "admin-token").write_bytes(b"\xff\xfe")
    told = await doctor(upstream=model.url)
    assert (told.code, told.worst) == (1, [("settings", "fail")])
    assert "admin-token holds more than visible ASCII characters" in str(told.checks)
    told = await doctor(upstream=model.url, UNABRIDGED_ADMIN_TOKEN="opensesame")
    assert (told.code, told.worst) == (0, [])


async def test_a_data_directory_that_takes_no_token_is_told(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    told = await Doctor(file / "data", capsys)(upstream=model.url, XDG_CONFIG_HOME=str(tmp_path))
    assert (told.code, told.worst) == (1, [("settings", "fail")])
    assert f"{file}/data/admin-token cannot be kept: nothing can be written to {file}" in str(told.checks)


async def test_a_port_where_nobody_listens_is_told(doctor: Doctor) -> None:
    told = await doctor(upstream=f"http://127.0.0.1:{free_port()}/v1")
    assert (told.code, told.worst) == (1, [("upstream", "fail")])
    assert "connection refused" in told.of("upstream")[1]


async def test_a_key_is_accepted_where_nobody_is_answered_without_one(doctor: Doctor) -> None:
    async def answer(exchange: Exchange) -> None:
        has_key = exchange.request.value("authorization") == b"Bearer sk-very-secret"
        await exchange.answer_json({"data": []}, 200 if has_key else 401)

    async with FakeUpstream(answer).serve() as upstream:
        assert (await doctor(upstream=upstream.url, **KEY)).of("key") == ("ok", "accepted")
        told = await doctor(upstream=upstream.url, UNABRIDGED_UPSTREAM_KEY="sk-very-secret")
        assert told.of("key") == ("ok", "accepted")
        assert (await doctor(upstream=upstream.url)).of("key")[0] == "warn"


async def test_a_key_that_nobody_asks_for_is_not_said_to_be_accepted(doctor: Doctor, model: Model) -> None:
    message = (await doctor(upstream=model.url, **KEY)).of("key")[1]
    assert message == "the list of models wants none; whether chats take it, --ask MODEL tells"
    model.replies.append(plainly(401, [], b"{}"))
    told = await doctor("--ask", "gpt-test", upstream=model.url, **KEY)
    assert told.of("streaming") == ("fail", "gpt-test refused to answer (401)")


async def test_a_key_that_is_refused_is_told_and_shown_to_nobody(doctor: Doctor, model: Model) -> None:
    model.elsewhere["/models"] = plainly(401, [], b'{"error":{"message":"Incorrect key sk-very-secret"}}')
    told = await doctor(upstream=model.url, **KEY)
    assert (told.code, told.of("key")) == (1, ("fail", "refused (401)"))
    assert "sk-very-secret" not in str(told)
    told = await doctor(upstream=model.url)
    assert (told.code, told.of("key")[0]) == (0, "warn")


async def test_models_of_which_nobody_knows_a_window_are_told(doctor: Doctor, model: Model) -> None:
    model.listing = {"data": [{"id": "odd"}]}
    told = await doctor(upstream=model.url)
    assert (told.code, told.of("models")) == (0, ("warn", "1; the windows of 0 are known"))


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (0, ("ok", "within 30 s of ours")),
        (1, ("warn", "60 s ahead of ours")),
        (-10, ("fail", "10 min behind ours")),
    ],
)
async def test_the_clock_is_held_against_the_upstreams(
    doctor: Doctor, minutes: int, expected: tuple[str, str]
) -> None:
    async def answer(exchange: Exchange) -> None:
        date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes, seconds=0.5), usegmt=True)
        await exchange.answer(200, [(b"Date", date.encode())], b"{}")

    async with FakeUpstream(answer).serve() as upstream:
        told = await doctor(upstream=upstream.url)
    state, message = told.of("upstream clock")
    assert state == expected[0]
    assert message.replace("59 s", "60 s").replace("61 s", "60 s") == expected[1]


# --- streaming ---


async def test_an_answer_that_streams_is_told_from_one_that_is_collected_on_the_way(
    doctor: Doctor, model: Model
) -> None:
    model.replies.append(in_pieces(*COUNTING))
    assert (await doctor("--ask", "gpt-test", upstream=model.url)).of("streaming")[0] == "ok"
    model.replies.append(in_pieces(*COUNTING))
    async with collecting(model) as middlebox:
        told = await doctor("--ask", "gpt-test", upstream=middlebox)
    state, message = told.of("streaming")
    assert (told.code, state, "something on the way collects answers" in message) == (0, "warn", True)


async def test_no_model_is_asked_unless_one_is_named(doctor: Doctor, model: Model) -> None:
    told = await doctor(upstream=model.url, **KEY)
    assert model.chats == []
    assert "streaming" not in {each["check"] for each in told.checks}


async def test_a_model_that_refuses_to_be_asked_is_told(doctor: Doctor, model: Model) -> None:
    model.replies.append(plainly(404, [], b"{}"))
    told = await doctor("--ask", "nobody", upstream=model.url)
    assert (told.code, told.of("streaming")) == (1, ("fail", "nobody refused to answer (404)"))


@asynccontextmanager
async def collecting(model: Model) -> AsyncGenerator[str]:
    """A middlebox that sends an answer on once it has all of it; yields the URL of the model behind it."""
    port = int(model.url.removesuffix("/v1").rpartition(":")[2])

    async def carry(reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            onward.write(data)
        onward.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", port)
        asking, answer = asyncio.create_task(carry(reader, onward)), b""
        with closing(writer), closing(onward):
            while data := await there.read(2**16):
                answer += data
                if answer.endswith((b"0\r\n\r\n", b'"data": []}')):
                    writer.write(answer)
                    answer = b""
        await asking

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


# --- certificates, and the way there ---


async def test_a_certificate_that_is_trusted_and_lasts_is_well(doctor: Doctor, authority: Authority) -> None:
    for days, state in ((90, "ok"), (3, "warn")):
        async with FakeUpstream().serve(authority.serving("127.0.0.1", days=days)) as upstream:
            url = upstream.url.replace("http:", "https:")
            told = await doctor("--upstream-ca", str(authority.file), upstream=url)
        assert told.of("upstream certificate")[0] == state
        assert told.code == 0


@pytest.mark.parametrize(
    ("days", "by_itself", "expected"),
    [(-1, False, "expired"), (90, True, "self-signed certificate")],
)
async def test_a_certificate_that_is_not_is_told(
    doctor: Doctor, authority: Authority, days: float, by_itself: bool, expected: str
) -> None:
    serving = authority.serving("127.0.0.1", days=days, by_itself=by_itself)
    async with FakeUpstream().serve(serving) as upstream:
        url = upstream.url.replace("http:", "https:")
        told = await doctor("--upstream-ca", str(authority.file), upstream=url)
    assert told.code == 1
    state, message = told.of("upstream certificate")
    assert (state, expected in message) == ("fail", True)
    assert told.of("upstream")[0] == "fail"


async def test_our_own_certificate_is_looked_at(doctor: Doctor, authority: Authority) -> None:
    for days, state in ((90, "ok"), (3, "warn"), (-1, "fail")):
        ours = authority.sign("us", days=days)
        words = ("--upstream-cert", str(ours.certificate), "--upstream-cert-key", str(ours.key))
        async with FakeUpstream().serve(authority.serving("127.0.0.1", days=90)) as upstream:
            url = upstream.url.replace("http:", "https:")
            told = await doctor(*words, "--upstream-ca", str(authority.file), upstream=url)
        assert told.of("our certificate")[0] == state


async def test_an_outbound_proxy_is_named_without_its_password(
    doctor: Doctor, model: Model, authority: Authority
) -> None:
    port = int(model.url.removesuffix("/v1").rpartition(":")[2])
    async with outbound_proxy(port, authority.serving("model.example")) as running:
        by = running.url.replace("//", "//me:hunter2@")
        words = ("--upstream-ca", str(authority.file))
        told = await doctor(*words, upstream="https://model.example/v1", HTTPS_PROXY=by)
        assert (told.code, told.of("outbound proxy")) == (0, ("ok", f"by {running.url}"))
        assert "hunter2" not in str(told)
        running.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
        told = await doctor(*words, upstream="https://model.example/v1", HTTPS_PROXY=by)
        assert "the outbound proxy refused (403)" in told.of("upstream")[1]


# --- this machine ---


async def test_a_policy_that_cannot_be_used_is_told_with_its_line(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path, "broken", "[budget]\ntokns = 5\n")
    told = await doctor("--policy", str(policy), upstream=model.url)
    assert told.code == 1
    assert "broken.toml:2" in told.of("policy")[1]


async def test_a_proof_without_the_operators_key_is_a_warning(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path, "proven", 'extends = "balanced"\n[proof]\nshare = 0.5\n')
    told = await doctor("--policy", str(policy), upstream=model.url)
    assert (told.code, told.worst) == (0, [("policy", "warn")])
    told = await doctor("--policy", str(policy), upstream=model.url, UNABRIDGED_UPSTREAM_KEY="sk-operator")
    assert (told.code, told.worst) == (0, [])


async def test_what_check_would_remark_on_a_policy_is_a_warning(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path, "idle", '[strategy]\nname = "off"\n[ledger]\nshare = 0.2\n')
    told = await doctor("--policy", str(policy), upstream=model.url)
    assert (told.code, told.worst) == (0, [("policy", "warn")])


async def test_settings_that_cannot_be_used_are_all_that_is_told(doctor: Doctor) -> None:
    told = await doctor("--workers", "many", upstream="http://127.0.0.1:1")
    assert (told.code, told.worst) == (1, [("settings", "fail")])


async def test_the_settings_file_is_read_and_a_variable_that_is_none_is_told(
    doctor: Doctor, model: Model, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('shadow = true\npolicy = "nobody"\n')
    told = await doctor("--config", str(file), upstream=model.url, UNABRIDGED_UPSTRAEM="x")
    assert told.worst == [("settings", "warn"), ("policy", "fail")]
    assert "config.toml; in shadow" in str(told.checks)
    assert "UNABRIDGED_UPSTREAM?" in str(told.checks)


async def test_a_port_is_free_or_served_by_us_or_taken(doctor: Doctor, model: Model) -> None:
    async def at(port: int) -> tuple[str, str]:
        return (await doctor("--port", str(port), upstream=model.url)).of("port")

    port = free_port()
    assert await at(port) == ("ok", f"127.0.0.1:{port} is free")
    async with proxying(model.url) as url:
        port = int(url.rpartition(":")[2])
        assert await at(port) == ("ok", f"127.0.0.1:{port} is served by this program already, and ready")
    async with proxying(model.url, store="redis://127.0.0.1:1") as url:
        assert (await at(int(url.rpartition(":")[2])))[0] == "warn"
    async with FakeUpstream().serve() as other:
        state, message = await at(other.port)
    assert (state, "Address already in use" in message) == ("fail", True)


@pytest.mark.parametrize(
    "host", ["::", *(pytest.param(each, marks=pytest.mark.soak) for each in ("[::1]", "::1"))]
)
async def test_a_port_at_an_address_of_ipv6_is_served_by_us(
    doctor: Doctor, model: Model, tmp_path: Path, host: str
) -> None:
    flags = ("--upstream", model.url, "--store", "memory://", "--host", host)
    async with serving(tmp_path, *flags, UNABRIDGED_ADMIN_TOKEN="admin") as served:
        port = served.url.rpartition(":")[2]
        flags = ("--host", host, "--port", port)
        told = await doctor(*flags, upstream=model.url, UNABRIDGED_ADMIN_TOKEN="admin")
    assert told.of("port") == ("ok", f"{host}:{port} is served by this program already, and ready")


@pytest.mark.parametrize("body", [b"<html>Welcome", b"[1]", b'{"status": ["ready"]}', b"[" * 99_999])
async def test_whatever_else_answers_at_a_port_has_taken_it(
    doctor: Doctor, model: Model, body: bytes
) -> None:
    async def other(exchange: Exchange) -> None:
        await exchange.answer(200, body=body)

    async with FakeUpstream(other).serve() as taken:
        state, message = (await doctor("--port", str(taken.port), upstream=model.url)).of("port")
    assert (state, "Address already in use" in message) == ("fail", True)


async def test_people_are_told_in_lines_with_what_to_do(doctor: Doctor, model: Model) -> None:
    port = free_port()
    words = ("--upstream", model.url, "--store", f"redis://:hunter2@127.0.0.1:{port}", "--port", "0")
    out = await doctor.prose(*words, UNABRIDGED_SECRET="secret-of-the-tests")
    assert "connection refused" in out
    assert "→ see Stores in docs/operations.md" in out
    assert out.splitlines()[-1].endswith("checks: 1 failed, 0 with a warning")
    assert "hunter2" not in out
