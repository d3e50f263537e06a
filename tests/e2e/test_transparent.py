"""What needs no pruning passes as it is: law 1, over real sockets."""

from __future__ import annotations

import re

import httpx2
import pytest

from tests.support.clients import CHAT, HELLO, admin, told
from tests.support.upstreams import DONE, JSON, Model, in_pieces, plainly

ODD = (
    '{ "messages" :[ {"role":"user" ,"content":"\\ud800 \\u0000 \\u202e \\u200b \\u2028 🐘 é"} ],\r\n\t'
    '"model":"gpt-test","seed":123456789012345678901234567890, "x_unknown":{"b":1.0,"a":[1e400,-0]},'
    '"temperature":1.000 }\n'
).encode()


async def post(client: httpx2.AsyncClient, body: bytes, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(CHAT, content=body, headers={"Content-Type": "application/json", **named})


async def test_a_calm_request_reaches_the_upstream_byte_for_byte(
    model: Model, client: httpx2.AsyncClient
) -> None:
    assert (await post(client, ODD)).status_code == 200
    assert bytes(model.chats[0].body) == ODD


@pytest.mark.parametrize("member", ["n", "stream", "max_tokens", "temperature"])
async def test_values_of_a_wrong_type_are_the_upstreams_business(
    model: Model, client: httpx2.AsyncClient, member: str
) -> None:
    for value in (b'"true"', b"0", b"-1", b"[]", b"9" * 10_000):
        body = HELLO.replace(b"{", b'{"%b": %b, ' % (member.encode(), value), 1)
        assert (await post(client, body)).status_code == 200
        assert bytes(model.chats[-1].body) == body


async def test_an_answer_comes_back_byte_for_byte(model: Model, client: httpx2.AsyncClient) -> None:
    answer = b'{ "choices":[{"index":0,"message":{"role":"assistant","content":"\\ud800"}}],\n "x":1e999 } '
    model.replies.append(plainly(200, [JSON, (b"X-Ratelimit-Remaining", b"7")], answer))
    response = await post(client, HELLO)
    assert response.content == answer
    assert response.headers["x-ratelimit-remaining"] == "7"


async def test_a_stream_comes_back_byte_for_byte(model: Model, client: httpx2.AsyncClient) -> None:
    pieces = (
        b': a comment\r\n\r\nevent: x_unknown\ndata: {}\n\ndata: {"choices":[{"index":0,',
        b'\ndata: "delta":{"content":"\xf0\x9f',
        b'\x90\x98"},"finish_reason":"stop"}]}\r\r',
        DONE,
        b": afterwards\n\n",
    )
    model.replies.append(in_pieces(*pieces))
    assert (await post(client, HELLO)).content == b"".join(pieces)


async def test_every_managed_answer_has_the_headers_of_the_contract(
    client: httpx2.AsyncClient,
) -> None:
    headers = (await post(client, HELLO, X_Unabridged_Session="mine")).headers
    ours = {name: value for name, value in headers.items() if name.startswith("x-unabridged-")}
    assert ours.pop("x-unabridged-tokens").startswith("sent=")
    assert ours == {
        "x-unabridged-session": "mine",
        "x-unabridged-stage": "calm",
        "x-unabridged-epoch": "0",
        "x-unabridged-cut": "0",
        "x-unabridged-summary": "none",
        "x-unabridged-tool-cache": "hits=0",
    }


async def test_headers_of_a_proxy_like_this_one_behind_it_are_not_told_beside_ours(
    model: Model, client: httpx2.AsyncClient
) -> None:
    behind = [JSON, (b"X-Unabridged-Stage", b"emergency"), (b"X-Theirs", b"1")]
    model.replies.append(plainly(200, behind, b"{}"))
    headers = (await post(client, HELLO)).headers
    assert (headers.get_list("x-unabridged-stage"), headers["x-theirs"]) == (["calm"], "1")


async def test_tokens_are_told_as_sent_full_and_budget(client: httpx2.AsyncClient) -> None:
    known = told(await post(client, HELLO.replace(b"gpt-test", b"gpt-4o")), "tokens")
    assert re.fullmatch(r"sent=(\d+);full=\1;budget=112000;window=128000;window_from=prices", known)
    unknown = told(await post(client, HELLO), "tokens")
    assert re.fullmatch(r"sent=(\d+);full=\1;budget=none;window=none;window_from=unknown", unknown)


async def test_our_own_headers_stay_with_us_and_all_others_go_on(
    model: Model, client: httpx2.AsyncClient
) -> None:
    await post(client, HELLO, X_Unabridged_Session="s", X_Mine="1", OpenAI_Organization="o")
    names = {name.lower() for name, _ in model.chats[0].headers}
    assert {b"x-mine", b"openai-organization", b"authorization"} <= names
    assert not any(name.startswith(b"x-unabridged-") for name in names)


async def test_the_query_of_a_managed_request_goes_on(model: Model, client: httpx2.AsyncClient) -> None:
    await client.post(f"{CHAT}?api-version=2026-01-01", content=HELLO)
    assert model.chats[0].target == f"{CHAT}?api-version=2026-01-01"


async def test_mode_off_relays_and_stores_nothing(model: Model, client: httpx2.AsyncClient, url: str) -> None:
    response = await post(client, ODD, X_Unabridged_Mode="off")
    assert bytes(model.chats[0].body) == ODD
    assert not any(name.startswith("x-unabridged") for name in response.headers)
    assert (await admin(url, "sessions"))["sessions"] == []


async def test_the_off_policy_relays_and_stores_nothing(
    model: Model, client: httpx2.AsyncClient, url: str
) -> None:
    await post(client, ODD, X_Unabridged_Policy="off")
    assert bytes(model.chats[0].body) == ODD
    assert (await admin(url, "sessions"))["sessions"] == []


async def test_an_unknown_mode_is_refused(
    client: httpx2.AsyncClient,
) -> None:
    assert (await post(client, HELLO, X_Unabridged_Mode="full")).status_code == 200
    response = await post(client, HELLO, X_Unabridged_Mode="sideways")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_header")
