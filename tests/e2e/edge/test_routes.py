"""Which part of the proxy a request comes to, and what it hears that came to none."""

from __future__ import annotations

import json
from itertools import islice, product
from typing import Any

import httpx2
import pytest

from tests.support.canaries import logged
from tests.support.clients import ADMIN, CHAT, HELLO, KEY, admin, proxying
from tests.support.upstreams import Model

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}


def error_in(answer: httpx2.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return error


# --- paths are compared as they are decoded, once ---


@pytest.mark.parametrize("path", ["/v1/ch%61t/completions", "/%761/%63hat/completion%73"])
async def test_a_path_of_chats_in_disguise_is_managed_or_refused(
    client: httpx2.AsyncClient, model: Model, path: str
) -> None:
    answer = await client.post(path, content=HELLO, headers=JSON)
    if answer.status_code == 200:
        assert answer.headers["x-unabridged-session"]
    else:
        assert not [each for each in model.chats + model.others if each.method == "POST"]


@pytest.mark.parametrize("path", ["/unabridged/v1/sess%69ons", "/%75nabridged/v1/sessions"])
async def test_a_path_of_the_admin_api_in_disguise_is_closed_too(
    client: httpx2.AsyncClient, model: Model, path: str
) -> None:
    assert (await client.get(path, headers={"Authorization": KEY})).status_code == 403
    assert (await client.get(path, headers=ADMIN)).status_code == 200
    assert not [each for each in model.others if "unabridged" in each.target or "sess" in each.target]


async def test_a_path_is_not_decoded_twice(client: httpx2.AsyncClient, model: Model) -> None:
    answer = await client.post("/v1/ch%2561t/completions", content=HELLO, headers=JSON)
    assert "x-unabridged-session" not in answer.headers
    assert [each.target for each in model.others if each.method == "POST"] == ["/v1/ch%2561t/completions"]
    twice = await client.get("/unabridged/v1/sess%2569ons", headers=ADMIN)
    assert (twice.status_code, error_in(twice)["code"]) == (404, "not_found")


# --- credentials ---


async def test_two_credentials_are_refused_by_the_admin_api_too(client: httpx2.AsyncClient) -> None:
    for first, second in (("admin", "other"), ("other", "admin"), ("admin", "admin")):
        twice = [("Authorization", f"Bearer {first}"), ("Authorization", f"Bearer {second}")]
        answer = await client.get("/unabridged/v1/sessions", headers=twice)
        assert (answer.status_code, error_in(answer)["code"]) == (400, "invalid_header")


@pytest.mark.parametrize("scheme", ["bearer ", "BEARER ", "Bearer   ", "bearer \t "])
async def test_however_bearer_is_spelled_it_is_the_same_caller(
    client: httpx2.AsyncClient, url: str, scheme: str
) -> None:
    name = f"of {scheme!r}"
    for spelled in ("Bearer ", scheme):
        headers = {"Authorization": f"{spelled}sk-one", "X-Unabridged-Session": name, **JSON}
        assert (await client.post(CHAT, content=HELLO, headers=headers)).status_code == 200
    listed = (await admin(url, "sessions"))["sessions"]
    assert [each["name"] for each in listed].count(name) == 1
    answer = await client.get("/unabridged/v1/sessions", headers={"Authorization": f"{scheme}admin"})
    assert answer.status_code == 200


# --- methods ---

STORED = f"{CHAT}/chatcmpl-1"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", STORED),
        ("POST", STORED),
        ("DELETE", STORED),
        ("GET", f"{STORED}/messages"),
    ],
)
async def test_stored_completions_are_relayed(
    client: httpx2.AsyncClient, model: Model, method: str, path: str
) -> None:
    content = b'{"metadata": {}}' if method == "POST" else None
    answer = await client.request(method, f"{path}?limit=1", content=content, headers=JSON)
    assert answer.status_code == 200
    assert "x-unabridged-session" not in answer.headers
    assert [(each.method, each.target) for each in model.chats + model.others] == [
        (method, f"{path}?limit=1")
    ]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
        ("/unabridged/v1/sessions", "GET, HEAD"),
        ("/unabridged/v1/sessions/x", "DELETE, GET, HEAD"),
        ("/unabridged/v1/sessions/x/transcript", "GET, HEAD"),
        ("/unabridged/v1/sessions/x/compact", "POST"),
    ],
)
async def test_our_own_paths_say_which_methods_they_answer(
    client: httpx2.AsyncClient, path: str, allowed: str
) -> None:
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - set(allowed.split(", ")):
        answer = await client.request(method, path, headers=ADMIN)
        assert (answer.status_code, error_in(answer)["code"]) == (405, "method_not_allowed")
        assert ", ".join(sorted(answer.headers["allow"].split(", "))) == allowed


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/unabridged/v1/sessions"])
async def test_where_something_is_to_be_had_its_head_is_too(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.head(path, headers=ADMIN)
    assert (answer.status_code, answer.content) == (200, b"")


# --- a base URL without its /v1, or with two ---


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/v1/chat/completions", "/v1/chat/completions"),
        ("GET", "/models", "/v1/models"),
        ("GET", "/models/gpt-4o", "/v1/models/{id}"),
        ("POST", "/embeddings", "/v1/embeddings"),
        ("POST", "/responses", "/v1/responses"),
        ("POST", "/messages", "/v1/messages"),
        ("POST", "/audio/transcriptions", "/v1/audio/transcriptions"),
        ("GET", "/v1/v1/models", "/v1/models"),
    ],
)
async def test_who_has_v1_left_out_or_twice_hears_which_path_is_meant(
    client: httpx2.AsyncClient, model: Model, method: str, path: str, meant: str
) -> None:
    answer = await client.request(method, path, content=HELLO, headers=JSON)
    error = error_in(answer)
    assert (answer.status_code, error["code"]) == (404, "not_found")
    assert f"use {meant} " in error["message"]
    assert "base_url that ends in /v1" in error["message"]
    assert not model.chats + model.others


@pytest.mark.parametrize("path", ["/", "/v1", "/nothing", "/v2/models", "/unabridged/v1/nothing"])
async def test_what_nobody_means_is_plainly_not_found(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, error_in(answer)["message"]) == (404, "There is nothing here.")


# --- headers of ours that there are not ---

MISSPELLED = {"X-Unabridged-Budgt": "900", **JSON}
WARNING = "unknown header X-Unabridged-Budgt; did you mean X-Unabridged-Budget?"


async def test_a_header_of_ours_that_there_is_not_is_told_with_the_nearest(
    client: httpx2.AsyncClient, model: Model
) -> None:
    streamed = json.dumps({**json.loads(HELLO), "stream": True}).encode()
    for content in (HELLO, streamed, b"nonsense"):
        answer = await client.post(CHAT, content=content, headers=MISSPELLED)
        assert answer.headers.get_list("x-unabridged-warning") == [WARNING]
    assert answer.status_code == 400
    for more in ({"X-Unabridged-Mode": "off"}, {"X-Unabridged-Policy": "off"}):
        answer = await client.post(CHAT, content=HELLO, headers={**MISSPELLED, **more})
        assert (answer.status_code, answer.headers["x-unabridged-warning"]) == (200, WARNING)
    for more in ({"X-Unabridged-Mode": "half"}, {"X-Unabridged-Policy": "nonesuch"}):
        answer = await client.post(CHAT, content=HELLO, headers={**MISSPELLED, **more})
        assert (answer.status_code, answer.headers["x-unabridged-warning"]) == (400, WARNING)
    assert model.chats[0].value("x-unabridged-budgt") is None


async def test_it_is_told_of_what_is_relayed_too(client: httpx2.AsyncClient, model: Model) -> None:
    for path in ("/v1/models", "/v1/responses", "/v1/files/a?x=1"):
        answer = await client.post(path, content=HELLO, headers=MISSPELLED)
        assert answer.headers.get_list("x-unabridged-warning") == [WARNING]
        answer = await client.post(path, content=HELLO, headers={**JSON, "X-Unabridged-Budget": "900"})
        assert "x-unabridged-warning" not in answer.headers
    assert len(model.others) == 6
    assert {request.value("x-unabridged-budgt") for request in model.others} == {None}
    twice = [("Authorization", KEY), ("Authorization", "Bearer other"), ("X-Unabridged-Budgt", "900")]
    refused = await client.get("/v1/models", headers=twice)
    assert (refused.status_code, refused.headers["x-unabridged-warning"]) == (400, WARNING)


async def test_several_are_told_in_one_header(client: httpx2.AsyncClient, model: Model) -> None:
    answer = await client.post(CHAT, content=HELLO, headers={**MISSPELLED, "X-Unabridged-Sesion": "a"})
    told = "unknown header X-Unabridged-Sesion; did you mean X-Unabridged-Session?"
    assert answer.headers.get_list("x-unabridged-warning") == [f"{WARNING}, {told}"]


async def test_headers_that_there_are_cause_no_warning(client: httpx2.AsyncClient, model: Model) -> None:
    known = {"Session": "s", "Policy": "balanced", "Budget": "900", "Boundary": "new", "Mode": "full"}
    headers = {f"X-Unabridged-{name}": value for name, value in known.items()}
    answer = await client.post(CHAT, content=HELLO, headers={**headers, **JSON})
    assert answer.status_code == 200
    assert "x-unabridged-warning" not in answer.headers


# --- what is relayed is told of once ---


async def test_the_log_says_once_of_each_route_that_it_is_not_managed(
    client: httpx2.AsyncClient, model: Model
) -> None:
    with logged() as lines:
        for _ in range(2):
            await client.post("/v1/messages", content=HELLO, headers=JSON)
            await client.post(CHAT, content=HELLO, headers=JSON)
            for secret in ("a-thing", "secret", "video-7"):
                await client.get(f"/v1/vector_stores/{secret}/files/{secret}?after={secret}")
    told = [json.loads(line) for line in lines if "relayed, not managed" in line]
    assert [(each["level"], each["method"], each["route"]) for each in told] == [
        ("info", "POST", "/v1/messages"),
        ("info", "GET", "/v1/vector_stores/{id}/files/{id}"),
    ]


async def test_the_log_tells_of_not_too_many_routes(model: Model) -> None:
    async with proxying(model.url) as url, httpx2.AsyncClient(base_url=url) as client:
        with logged() as lines:
            for words in islice(product(("files", "jobs", "runs"), repeat=5), 110):
                await client.get("/v1/" + "/".join(words))
    assert len([line for line in lines if "relayed, not managed" in line]) == 100
