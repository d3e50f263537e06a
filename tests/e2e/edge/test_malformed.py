"""Requests that cannot be read are refused in OpenAI's shape; all others are the upstream's business."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.clients import CHAT, HELLO, KEY, proxying, tokens_of, write_policy
from tests.support.conversations import TOO_DEEP
from tests.support.servers import PATIENCE, Exchange, connect
from tests.support.upstreams import Model, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\n" % CHAT.encode()


def with_messages(messages: bytes) -> bytes:
    return b'{"model":"gpt-test","messages":%b}' % messages


async def post(client: httpx2.AsyncClient, body: bytes, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(
        CHAT, content=body, headers={"Authorization": KEY, "Content-Type": "application/json", **named}
    )


async def refused(client: httpx2.AsyncClient, body: bytes, **headers: str) -> tuple[int, str]:
    """Status and code of a refusal; its shape is checked on the way."""
    response = await post(client, body, **headers)
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    return response.status_code, error["code"]


REFUSED = {
    "an empty body": (b"", 400, "invalid_json"),
    "truncated JSON": (HELLO[:-3], 400, "invalid_json"),
    "text after the end": (HELLO + b"x", 400, "invalid_json"),
    "an array": (b"[]", 400, "invalid_type"),
    "a string": (b'"x"', 400, "invalid_type"),
    "null": (b"null", 400, "invalid_type"),
    "a number": (b"1", 400, "invalid_type"),
    "NaN": (HELLO.replace(b"{", b'{"seed":NaN,', 1), 400, "invalid_json"),
    "Infinity": (HELLO.replace(b"{", b'{"seed":-Infinity,', 1), 400, "invalid_json"),
    "invalid UTF-8": (HELLO.replace(b"Hello", b"\xff\xfe"), 400, "invalid_encoding"),
    "UTF-8 of a surrogate": (HELLO.replace(b"Hello", b"\xed\xa0\x80"), 400, "invalid_encoding"),
    "UTF-16": (HELLO.decode().encode("utf-16"), 400, "invalid_encoding"),
    "UTF-16 without a mark": (HELLO.decode().encode("utf-16-le"), 400, "invalid_encoding"),
    "arrays that never close": (with_messages(b"[" * 5_000_000), 400, "json_too_deep"),
    "content too deep": (
        with_messages(b'[{"role":"user","content":' + b'[{"a":' * TOO_DEEP + b"1" + b"}]" * TOO_DEEP + b"}]"),
        400,
        "json_too_deep",
    ),
    "arrays too deep": (with_messages(b"[" * TOO_DEEP + b"]" * TOO_DEEP), 400, "json_too_deep"),
    "objects too deep": (
        HELLO.replace(b"{", b'{"x":' + b'{"a":' * TOO_DEEP + b"1" + b"}" * TOO_DEEP + b",", 1),
        400,
        "json_too_deep",
    ),
    "no messages": (b"{}", 400, "missing_required_parameter"),
    "messages that are an object": (with_messages(b"{}"), 400, "invalid_type"),
    "messages that are a string": (with_messages(b'"x"'), 400, "invalid_type"),
    "messages that are null": (with_messages(b"null"), 400, "invalid_type"),
    "no message in messages": (with_messages(b"[]"), 400, "empty_array"),
    "a message that is null": (with_messages(b"[null]"), 400, "invalid_type"),
    "a million messages": (
        with_messages(b"[" + b",".join([b"{}"] * 1_000_000) + b"]"),
        413,
        "too_many_messages",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_read_is_refused(client: httpx2.AsyncClient, model: Model, what: str) -> None:
    body, status, code = REFUSED[what]
    assert await refused(client, body) == (status, code)
    assert not model.chats


async def test_an_error_of_json_names_the_byte(client: httpx2.AsyncClient) -> None:
    body = b'{"model": "gpt-test", "messages": [}'
    message = (await post(client, body)).json()["error"]["message"]
    assert str(body.index(b"}")) in message


async def test_an_error_of_a_parameter_names_it(client: httpx2.AsyncClient) -> None:
    for messages in (b"[]", b"{}", b"1"):
        assert (await post(client, with_messages(messages))).json()["error"]["param"] == "messages"
    assert (await post(client, b"{}")).json()["error"]["param"] == "messages"
    assert (await post(client, with_messages(b"[null]"))).json()["error"]["param"] == "messages[0]"


FORWARDED = {
    "a byte order mark": b"\xef\xbb\xbf" + HELLO,
    "an unknown role": with_messages(b'[{"role":"wizard","content":"x"}]'),
    "no role": with_messages(b'[{"content":"x"}]'),
    "an unknown part": with_messages(b'[{"role":"user","content":[{"type":"smell","smell":1}, 3, null]}]'),
    "content null": with_messages(b'[{"role":"user","content":null}]'),
    "content a number": with_messages(b'[{"role":"user","content":7}]'),
    "content an object": with_messages(b'[{"role":"user","content":{"text":3}}]'),
    "a tool message without its call": with_messages(
        b'[{"role":"tool","tool_call_id":"none","content":"x"},{"role":"user","content":"y"}]'
    ),
    "a call without a function": with_messages(
        b'[{"role":"assistant","tool_calls":[{"id":5},null,"x"]},{"role":"user","content":"y"}]'
    ),
    "tool calls that are no list": with_messages(b'[{"role":"assistant","tool_calls":{"a":1}}]'),
    "a 10,000-digit integer": HELLO.replace(b"{", b'{"seed":' + b"1" * 10_000 + b",", 1),
    "a 10,000-digit integer in a message": with_messages(
        b'[{"role":"user","content":"x","x":' + b"1" * 10_000 + b"}]"
    ),
    "stream that is a string": HELLO.replace(b"{", b'{"stream":"true",', 1),
    "n 0": HELLO.replace(b"{", b'{"n":0,', 1),
    "n a string": HELLO.replace(b"{", b'{"n":"two",', 1),
    "max_tokens negative": HELLO.replace(b"{", b'{"max_tokens":-5,', 1),
    "max_tokens 0": HELLO.replace(b"{", b'{"max_completion_tokens":0,', 1),
    "max_tokens beyond every window": HELLO.replace(b"{", b'{"max_tokens":1' + b"0" * 400 + b",", 1),
    "max_tokens a string": HELLO.replace(b"{", b'{"max_tokens":"many",', 1),
    "max_tokens a fraction": HELLO.replace(b"{", b'{"max_tokens":1.5e3,', 1),
    "NUL, escaped": with_messages(b'[{"role":"user","content":"a\\u0000b"}]'),
    "text from right to left": with_messages('[{"role":"user","content":"\u05e9\u202e\u0645"}]'.encode()),
    "zero-width characters": with_messages('[{"role":"user","content":"a\u200b\u200d\ufeffb"}]'.encode()),
    "characters of four bytes": with_messages('[{"role":"user","content":"\U0001f418\U00020000"}]'.encode()),
    "line separators": with_messages('[{"role":"user","content":"a\u2028b\u2029c\u0085"}]'.encode()),
    "lone surrogates": with_messages(b'[{"role":"user","content":"\\ud83d \\udc18"}]'),
    "special tokens": with_messages(b'[{"role":"user","content":"<|endoftext|><|im_start|>"}]'),
    "a key twice": b'{"messages":[],"messages":[{"role":"user","content":"x"}],"model":"a","model":"b"}',
    "an unknown model": HELLO.replace(b"gpt-test", b"no-such-model-7"),
    "a model that is a number": HELLO.replace(b'"gpt-test"', b"5"),
}


@pytest.mark.parametrize("what", FORWARDED)
async def test_what_is_only_odd_is_forwarded_as_sent(
    client: httpx2.AsyncClient, model: Model, what: str
) -> None:
    model.replies.append(_ok)
    assert (await post(client, FORWARDED[what])).status_code == 200
    assert bytes(model.chats[0].body).removeprefix(b"\xef\xbb\xbf") == FORWARDED[what].removeprefix(
        b"\xef\xbb\xbf"
    )


async def _ok(exchange: Exchange) -> None:
    await exchange.answer_json({"choices": []})


async def test_an_odd_transcript_can_be_looked_at(client: httpx2.AsyncClient, url: str, model: Model) -> None:
    for what, body in FORWARDED.items():
        model.replies.append(_ok)
        await post(client, body, X_Unabridged_Session=what.replace(" ", "-"))
    headers = {"Authorization": "Bearer admin"}
    sessions = (await client.get("/unabridged/v1/sessions?limit=1000", headers=headers)).json()["sessions"]
    assert {what.replace(" ", "-") for what in FORWARDED} <= {session["name"] for session in sessions}
    for session in sessions:
        for verb in ("", "/transcript", "/view", "/explain"):
            response = await client.get(f"/unabridged/v1/sessions/{session['id']}{verb}", headers=headers)
            assert response.status_code == 200, (session["name"], verb, response.text)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
async def test_another_media_type_is_refused(client: httpx2.AsyncClient, kind: str) -> None:
    assert await refused(client, HELLO, Content_Type=kind) == (415, "unsupported_media_type")


async def test_a_request_without_a_media_type_counts_as_json(model: Model, url: str) -> None:
    async with connect(url) as raw:
        await raw.send(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(HELLO), HELLO))
        assert (await raw.until(b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_compressed_body_is_read(client: httpx2.AsyncClient, model: Model) -> None:
    assert (await post(client, gzip.compress(HELLO), Content_Encoding="gzip")).status_code == 200
    assert bytes(model.chats[0].body) == HELLO
    assert model.chats[0].value("content-encoding") is None


@pytest.mark.parametrize(
    ("body", "coding", "status", "code"),
    [
        (b"nonsense", "gzip", 400, "invalid_encoding"),
        (gzip.compress(HELLO)[:-6], "gzip", 400, "invalid_encoding"),
        (gzip.compress(b" " * 70 * 2**20), "gzip", 413, "request_too_large"),
        (b"nonsense", "br", 415, "unsupported_media_type"),
    ],
    ids=["no gzip", "half of it", "a bomb", "another coding"],
)
async def test_a_body_that_does_not_unpack_to_its_limit_is_refused(
    client: httpx2.AsyncClient, model: Model, body: bytes, coding: str, status: int, code: str
) -> None:
    assert await refused(client, body, Content_Encoding=coding) == (status, code)
    assert not model.chats


async def test_an_image_is_forwarded_as_it_is_and_not_counted_as_text(
    client: httpx2.AsyncClient, model: Model
) -> None:
    image = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}' % (b"iVBORw0K" * 2_500_000)
    body = with_messages(b'[{"role":"user","content":[{"type":"text","text":"What is it?"},%b]}]' % image)
    model.replies.append(_ok)
    response = await post(client, body)
    assert response.status_code == 200
    assert bytes(model.chats[0].body) == body
    assert tokens_of(response)["full"] < 10_000


async def test_a_body_over_the_limit_is_refused_before_it_is_read(model: Model, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "tight", 'extends = "default"\n[limits]\nbody = 1000\nmessages = 5\n')
    async with proxying(model.url, policy=str(path)) as url:
        async with connect(url) as raw:
            await raw.send(HEAD + b"Content-Length: 5000\r\n\r\n")
            answer = await raw.until(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413")
            assert b"connection: close" in answer.lower()
        async with connect(url) as raw:
            await raw.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            await raw.send(b"400\r\n" + b" " * 1024 + b"\r\n")
            answer = await raw.until(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413")
            assert b"connection: close" in answer.lower()
        async with httpx2.AsyncClient(base_url=url) as client:
            messages = json.dumps([{"role": "user", "content": "x"}] * 6).encode()
            assert await refused(client, with_messages(messages)) == (413, "too_many_messages")


async def test_a_session_id_is_refused_when_it_is_too_long_and_none_when_it_is_empty(
    client: httpx2.AsyncClient,
) -> None:
    assert await refused(client, HELLO, X_Unabridged_Session="x" * 257) == (400, "invalid_session_id")
    assert await refused(client, HELLO, X_Unabridged_Session="a\tb") == (400, "invalid_session_id")
    assert (await post(client, HELLO, X_Unabridged_Session="x" * 256)).status_code == 200
    response = await post(client, HELLO, X_Unabridged_Session="")
    assert response.headers["x-unabridged-session"].startswith("ub-")


async def test_glob_and_hash_tag_characters_in_a_session_id_are_harmless(client: httpx2.AsyncClient) -> None:
    for name in ("*", "{a}b", "a:b", "[a-z]?", "../x", "a b"):
        response = await post(client, HELLO, X_Unabridged_Session=name)
        assert (response.status_code, response.headers["x-unabridged-session"]) == (200, name)


async def test_a_line_break_in_a_session_id_is_refused(url: str) -> None:
    async with connect(url) as raw:
        await raw.send(HEAD + b"X-Unabridged-Session: a\nb\r\n")
        await raw.send(b"Content-Length: %d\r\n\r\n%b" % (len(HELLO), HELLO))
        assert (await raw.until(b"\r\n")).startswith(b"HTTP/1.1 400")


async def test_an_unknown_policy_is_refused(client: httpx2.AsyncClient) -> None:
    for name in ("nonesuch", "../default", "/etc/passwd", "default.toml", "a" * 300):
        assert await refused(client, HELLO, X_Unabridged_Policy=name) == (400, "invalid_policy")


async def test_a_policy_that_is_misspelt_is_refused_with_the_nearest(client: httpx2.AsyncClient) -> None:
    response = await post(client, HELLO, X_Unabridged_Policy="balnced")
    said = "There is no usable policy 'balnced'; did you mean 'balanced'?"
    assert (response.status_code, response.json()["error"]["message"]) == (400, said)
    response = await post(client, HELLO, X_Unabridged_Policy="nonesuch")
    assert response.json()["error"]["message"] == "There is no usable policy 'nonesuch'."


async def test_a_policy_is_chosen_by_its_name(client: httpx2.AsyncClient) -> None:
    response = await post(client, HELLO, X_Unabridged_Policy="conservative")
    assert tokens_of(response)["budget"] == 6_000


async def test_a_budget_can_be_lowered_and_a_higher_one_counts_as_the_policys(
    client: httpx2.AsyncClient,
) -> None:
    balanced = {"X_Unabridged_Policy": "balanced"}
    response = await post(client, HELLO, X_Unabridged_Budget="500", **balanced)
    assert tokens_of(response)["budget"] == 500
    response = await post(client, HELLO, X_Unabridged_Budget="8001", **balanced)
    assert response.status_code == 200
    assert tokens_of(response)["budget"] == 8_000
    for malformed in ("many", "-5", "0", "1.5", "1e3", "9" * 41):
        status, _ = await refused(client, HELLO, X_Unabridged_Budget=malformed, **balanced)
        assert status == 400, malformed


async def test_two_credentials_are_refused_and_another_scheme_is_passed_on(
    client: httpx2.AsyncClient, model: Model
) -> None:
    twice = [("Authorization", KEY), ("Authorization", "Bearer other"), ("Content-Type", "application/json")]
    async with httpx2.AsyncClient(base_url=client.base_url) as bare:
        assert (await bare.post(CHAT, content=HELLO, headers=twice)).status_code == 400
        assert (await bare.post(CHAT, content=HELLO, headers={"Authorization": "Basic x"})).status_code == 200
    assert [chat.values("authorization") for chat in model.chats] == [[b"Basic x"]]


async def test_errors_of_our_own_paths_have_the_shape_too(client: httpx2.AsyncClient) -> None:
    headers = {"Authorization": "Bearer admin"}
    for method, path, status in (
        ("GET", "/nothing", 404),
        ("GET", "/unabridged/v1/nothing", 404),
        ("DELETE", "/healthz", 405),
        ("PUT", "/unabridged/v1/sessions", 405),
    ):
        response = await client.request(method, path, headers=headers)
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert response.headers["x-request-id"]


async def test_the_window_of_an_unknown_model_is_asked_of_the_upstream() -> None:
    listing = {"data": [{"id": "local", "meta": {"n_ctx": 4096}}]}
    body = HELLO.replace(b"gpt-test", b"local")
    async with (
        running(Model(listing=listing)) as model,
        proxying(model.url) as url,
        httpx2.AsyncClient(base_url=url) as client,
        asyncio.timeout(PATIENCE),
    ):
        tokens: dict[str, int] = {}
        while tokens.get("budget") != 4096 - 512:
            tokens = tokens_of(await post(client, body))
        assert tokens["window"] == 4096
