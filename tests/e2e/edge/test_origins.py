"""A web page of another origin can neither read nor spend; those that are allowed can do both."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.support.clients import ADMIN, CHAT, HELLO, KEY, proxying
from tests.support.servers import PATIENCE, connect
from tests.support.upstreams import JSON, Model, plainly

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMED = "https://chat.example.com"
SETTINGS = {
    "cors_origin": f"{NAMED}, https://other.example:443",
    "public_url": "https://models.example/proxy",
    "allowed_host": ["chat.internal"],
}
OTHERS = [
    "null",
    "",
    "https://evil.example",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://evil.example#http://localhost",
    f"{NAMED}.evil.example",
    f"{NAMED}:8443",
    "http://chat.example.com",
    "chrome-extension://abc",
]
NEIGHBOURS = [
    "http://localhost:3000",
    "https://localhost",
    "http://127.0.0.1:5173",
    "http://127.9.9.9",
    "http://[::1]:80",
    "app://obsidian.md",
    "tauri://localhost",
    "vscode-webview://0abc",
    "file://",
]
ALLOWED = [NAMED, "https://other.example", "https://models.example"]
ROUTES = [
    ("POST", CHAT),
    ("GET", "/v1/models"),
    ("POST", "/v1/responses"),
    ("GET", f"{CHAT}/id"),
    ("GET", "/unabridged/v1/sessions"),
    ("DELETE", "/unabridged/v1/sessions/x"),
]


async def ask(
    client: httpx2.AsyncClient, method: str = "POST", path: str = CHAT, **headers: str
) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    key = ADMIN if path.startswith("/unabridged") else {"Authorization": KEY}
    body = HELLO if method == "POST" else None
    return await client.request(method, path, content=body, headers={**key, **named})


def is_refused(answer: httpx2.Response, code: str = "origin_forbidden") -> bool:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    return (answer.status_code, error["code"]) == (403, code)


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_page_of_another_origin_is_refused_wherever_something_is_spent_or_told(
    client: httpx2.AsyncClient, model: Model, method: str, path: str
) -> None:
    assert is_refused(await ask(client, method, path, Origin="https://evil.example"))
    assert is_refused(await ask(client, method, path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"))
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": method}
    assert is_refused(await client.options(path, headers=asked))
    assert not model.chats + model.others


@pytest.mark.parametrize("origin", OTHERS)
async def test_what_only_looks_like_an_allowed_origin_is_another(
    client: httpx2.AsyncClient, model: Model, origin: str
) -> None:
    assert is_refused(await ask(client, Origin=origin))
    assert not model.chats


async def test_of_two_origins_none_counts(client: httpx2.AsyncClient, model: Model) -> None:
    twice = [("Origin", NAMED), ("Origin", NAMED)]
    assert is_refused(await client.post(CHAT, content=HELLO, headers=twice))


@pytest.mark.parametrize("origin", [*NEIGHBOURS, *ALLOWED])
async def test_an_allowed_page_may_ask_and_read_every_header(
    client: httpx2.AsyncClient, model: Model, origin: str
) -> None:
    for method, path in ROUTES[:-1]:
        preflight = await client.options(
            path,
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": "authorization,x-stainless-os",
            },
        )
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == origin
        assert method in preflight.headers["access-control-allow-methods"].split(", ")
        assert preflight.headers["access-control-allow-headers"] == "authorization,x-stainless-os"
        assert preflight.headers["vary"] == "Origin"
        answer = await ask(client, method, path, Origin=origin)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert "Origin" in answer.headers["vary"]
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {name for name in answer.headers if name.startswith("x-unabridged-")} <= set(exposed)
    assert model.chats
    assert "OPTIONS" not in {each.method for each in model.chats + model.others}


async def test_an_allowed_page_can_read_our_errors(client: httpx2.AsyncClient) -> None:
    answer = await ask(client, Origin=NAMED, X_Unabridged_Policy="nonesuch")
    assert answer.status_code == 400
    assert answer.headers["access-control-allow-origin"] == NAMED
    assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_the_proxys_own_pages_may_ask_by_whatever_name_it_has(
    client: httpx2.AsyncClient, model: Model
) -> None:
    for host in ("chat.internal:81", "chat.internal", "me.localhost:8080", "models.example"):
        for scheme in ("http", "https"):
            answer = await ask(client, Host=host, Origin=f"{scheme}://{host}")
            assert answer.status_code == 200, host
    assert len(model.chats) == 8


async def test_what_the_upstream_says_of_its_own_pages_is_left_out(
    client: httpx2.AsyncClient, model: Model
) -> None:
    theirs = [JSON, (b"Access-Control-Allow-Origin", b"*"), (b"Vary", b"Accept"), (b"X-Theirs", b"1")]
    for _ in range(2):
        model.replies.append(plainly(200, theirs, b"{}"))
    answer = await ask(client, Origin=NAMED)
    assert answer.headers.get_list("access-control-allow-origin") == [NAMED]
    assert answer.headers.get_list("vary") == ["Accept", "Origin"]
    assert "x-theirs" in answer.headers["access-control-expose-headers"]
    answer = await ask(client)
    assert answer.headers.get_list("access-control-allow-origin") == ["*"], "programs get what it sent"


async def test_programs_are_not_concerned(client: httpx2.AsyncClient, model: Model) -> None:
    node = {"Sec_Fetch_Mode": "cors"}
    for headers in ({}, node, {**node, "Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}):
        answer = await ask(client, **headers)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert len(model.chats) == 4


async def test_an_options_request_that_is_no_preflight_is_relayed(
    client: httpx2.AsyncClient, model: Model
) -> None:
    assert (await client.options("/v1/models", headers={"Origin": NAMED})).status_code == 200
    assert [each.method for each in model.others] == ["OPTIONS"]


async def test_a_link_may_lead_to_the_page_and_nowhere_else(client: httpx2.AsyncClient, model: Model) -> None:
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert (await ask(client, "GET", "/unabridged/", **followed)).status_code == 200
    for method, path in (("GET", "/unabridged/v1/sessions"), ("GET", "/v1/models"), ("POST", "/unabridged/")):
        assert is_refused(await ask(client, method, path, **followed))
    assert not model.others


# --- names of the server ---


@pytest.mark.parametrize(
    "host",
    "localhost localhost:8080 LOCALHOST. a.b.localhost:1 127.0.0.1 192.168.0.9:80 [::1] "
    "[fe80::1%25eth0]:8080 host.docker.internal:8080 chat.internal:8080 Models.Example".split(),
)
async def test_the_server_is_asked_by_its_names(client: httpx2.AsyncClient, model: Model, host: str) -> None:
    assert (await ask(client, Host=host)).status_code == 200


@pytest.mark.parametrize(
    "host", "evil.example evil.example:8080 localhost.evil.example xlocalhost 127.0.0.1.evil.example".split()
)
async def test_a_name_that_was_made_to_lead_here_is_refused(
    client: httpx2.AsyncClient, model: Model, host: str
) -> None:
    for headers in ({}, {"Origin": f"http://{host}"}, {"Sec_Fetch_Site": "same-origin"}):
        for method, path in ROUTES:
            answer = await ask(client, method, path, Host=host, **headers)
            assert is_refused(answer, "host_forbidden")
            assert "--allowed-host" in answer.json()["error"]["message"]
    assert not model.chats + model.others


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_are_answered_by_any_name(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers={"Host": "pod-7.example", "Origin": "https://evil.example"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_a_websocket_obeys_the_same(url: str) -> None:
    for told in (b"Host: localhost\r\nOrigin: https://evil.example", b"Host: evil.example"):
        async with connect(url) as raw:
            await raw.send(
                b"GET /v1/realtime HTTP/1.1\r\n%b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % told
            )
            assert (await raw.rest()).startswith(b"HTTP/1.1 403 ")


# --- off loopback ---


@asynccontextmanager
async def off_loopback(model: Model, **settings: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    async with (
        proxying(model.url, host="0.0.0.0", **settings) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        yield client


async def test_off_loopback_pages_of_the_visitors_machine_are_others(model: Model) -> None:
    async with off_loopback(model) as client:
        for origin in NEIGHBOURS:
            assert is_refused(await ask(client, Origin=origin))
        assert not model.chats
        name = "models.example:8080"
        assert (await ask(client, Host=name, Origin=f"https://{name}")).status_code == 200


async def test_off_loopback_any_name_will_do_unless_names_are_given(model: Model) -> None:
    async with off_loopback(model) as client:
        assert (await ask(client, Host="any.example")).status_code == 200
    async with off_loopback(model, allowed_host="one.example,two.example") as client:
        assert (await ask(client, Host="two.example:80")).status_code == 200
        assert is_refused(await ask(client, Host="any.example"), "host_forbidden")
