"""Lone surrogates, NUL and 4-byte characters, everywhere in a request and in an answer: no turn is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.support.clients import ADMIN, CHAT, KEY, proxying, user, write_policy
from tests.support.servers import PATIENCE, Exchange
from tests.support.stores import embedded_valkey
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Message,
    Model,
    calling,
    completion,
    running,
    said,
    sse,
)

Where = tuple[str | int, ...]

POLICY = """
extends = "balanced"
[budget]
tokens = 900
[keep]
pins = ["pinned"]
[recall]
enabled = true
[[tools]]
match = "get_*"
cache_exchanges = 3
serve = true
invalidated_by = ["set_*"]
"""
CHARACTERS = {"a lone surrogate": "\ud83d", "NUL": "\0", "a 4-byte character": "\U0001f418"}
LONG = "It must never be larger than 4711 in /etc/limits. " * 15 + "You must never name it larger than 4711"
REQUEST: Message = {
    "model": "gpt-test",
    "user": "somebody",
    "metadata": {"k": "v"},
    "extra": "x",
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "n"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": LONG},
                {"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_a", "arguments": '{"a": "b"}'}}
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": '{"name": "\\ud83d", "path": "/etc/limits"}' + LONG,
        },
        {"role": "assistant", "content": LONG, "refusal": "r"},
        {"role": "function", "name": "f", "content": LONG},
        {"role": "user", "content": "And now?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "get_a", "description": "d", "parameters": {"type": "object"}},
        }
    ],
    "unabridged": {
        "inject": {
            "text": "i",
            "tools": [{"name": "t", "arguments": {"a": "b"}, "result": "r", "call_id": "q"}],
        }
    },
}
ANSWER: Message = {
    **calling(("c1", "other", '{"a": "b"}')),
    "content": "Hello.",
    "reasoning": "r",
    "annotations": [{"type": "url_citation", "url": "u"}],
}


def places(value: object, where: Where = ()) -> Iterator[Where]:
    """Where a text stands in a JSON value."""
    if isinstance(value, str):
        yield where
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield from places(each, (*where, index))
    elif isinstance(value, dict):
        for name, each in cast("Message", value).items():
            yield from places(each, (*where, name))


def put(value: Message, where: Where, character: str) -> Message:
    """The value with a character at the end of the text that stands there."""
    changed: Any = deepcopy(value)
    inner = changed
    for step in where[:-1]:
        inner = inner[step]
    inner[where[-1]] += character
    return changed


@pytest.fixture(scope="module")
def valkey() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    async with running(Model()) as served:
        yield served


@pytest.fixture
async def client(model: Model, tmp_path: Path, valkey: str) -> AsyncIterator[httpx2.AsyncClient]:
    policy = str(write_policy(tmp_path, "small", POLICY))
    async with (
        proxying(model.url, store=valkey, policy=policy, tenant_header="X-Tenant") as url,
        httpx2.AsyncClient(base_url=url, timeout=30) as opened,
    ):
        opened.headers["X-Tenant"] = tmp_path.name  # tests share the store
        yield opened


async def refusal(
    client: httpx2.AsyncClient, body: Message, session: str, **headers: str | bytes
) -> tuple[str, str]:
    """The name of the session that has the turn; or how it was refused, or answered with less than all."""
    named = {"Authorization": KEY, "Content-Type": "application/json", "X-Unabridged-Session": session}
    given = {**named, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name, value if isinstance(value, bytes) else value.encode()) for name, value in given.items()]
    response = await client.post(
        CHAT, content=json.dumps(body).encode(), headers=[(name.encode(), value) for name, value in pairs]
    )
    if response.status_code != 200:
        error = response.json()["error"]
        is_clear = error.keys() == {"message", "type", "param", "code"} and error["code"] != "internal_error"
        return "", "" if is_clear else response.text
    degraded = response.headers.get("x-unabridged-degraded", "").replace("protected-cut", "")
    raw = dict(response.headers.raw)[b"x-unabridged-session"]
    try:
        return raw.decode(), degraded
    except UnicodeDecodeError:
        return raw.decode("latin-1"), degraded


Tried = list[tuple[object, Coroutine[Any, Any, tuple[str, str]]]]


async def lost(client: httpx2.AsyncClient, tried: Tried, count: int) -> list[tuple[object, str]]:
    """Which turns are in no transcript of so many messages at least, and were not refused in clear words."""
    slots = asyncio.Semaphore(8)

    async def one(trying: Coroutine[Any, Any, tuple[str, str]]) -> tuple[str, str]:
        async with slots:
            return await trying

    told = await asyncio.gather(*(one(trying) for _, trying in tried))
    wanted = {name for name, _ in told if name}
    ids: dict[str, str] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not ids.keys() >= wanted:
                listed = await client.get("/unabridged/v1/sessions?limit=1000", headers=ADMIN)
                ids = {each["name"]: each["id"] for each in listed.json()["sessions"]}
    faults = [(what, fault) for (what, _), (_, fault) in zip(tried, told, strict=True) if fault]
    for (what, _), (name, _) in zip(tried, told, strict=True):
        path = f"/unabridged/v1/sessions/{ids.get(name)}/transcript"
        messages = (
            (await client.get(path, headers=ADMIN)).json().get("messages", []) if name else [None] * count
        )
        if len(messages) < count:
            faults.append((what, f"{len(messages)} messages of {count}"))
    return faults


modes = pytest.mark.parametrize("mode", ["full", "append"])
characters = pytest.mark.parametrize("character", CHARACTERS.values(), ids=CHARACTERS)


@modes
@characters
async def test_a_request_with_an_odd_character_anywhere_is_kept_or_refused(
    client: httpx2.AsyncClient, model: Model, mode: str, character: str
) -> None:
    tried: Tried = [
        (
            where,
            refusal(
                client,
                put(REQUEST, where, character),
                session_of((mode, ord(character), *where)),
                X_Unabridged_Mode=mode,
            ),
        )
        for where in places(REQUEST)
    ]
    assert await lost(client, tried, len(REQUEST["messages"]) + 1 if mode == "full" else 2) == []
    assert len(model.chats) > len(tried) * 0.9, "most are forwarded"


def session_of(where: Where) -> str:
    return ".".join(map(str, where))


@modes
@characters
async def test_an_answer_with_an_odd_character_anywhere_is_kept(
    client: httpx2.AsyncClient, model: Model, mode: str, character: str
) -> None:
    odd: dict[str, Message] = {}

    async def behave(exchange: Exchange) -> None:
        asked: Any = json.loads(exchange.request.body)
        answer = odd[asked["messages"][-1]["content"]]
        if asked["stream"]:
            await exchange.answer(200, [EVENTS], sse(answer) + DONE)
        else:
            await exchange.answer(200, [JSON], json.dumps(answer).encode())

    streamed = json.loads(json.dumps(completion(ANSWER)).replace('"message"', '"delta"'))
    tried: Tried = []
    for stream, whole in ((True, streamed), (False, completion(ANSWER))):
        for where in places(whole):
            session = session_of(("answer", mode, ord(character), stream, *where))
            odd[session] = put(whole, where, character)
            model.replies.append(behave)
            body = {"model": "gpt-test", "stream": stream, "messages": [user(session)]}
            tried.append((where, refusal(client, body, session, X_Unabridged_Mode=mode)))
    assert await lost(client, tried, 2) == []


HEADERS = [
    *("X-Unabridged-Session", "X-Unabridged-Policy", "X-Unabridged-Budget", "X-Unabridged-Channel"),
    *("X-Unabridged-Else", "Authorization", "Api-Key", "Idempotency-Key", "X-Session-Id", "User-Agent"),
    *("X-Request-Id", "OpenAI-Organization", "X-Tenant", "Content-Type", "Content-Encoding", "Cookie"),
]


@modes
async def test_a_header_that_is_no_utf_8_loses_no_turn(client: httpx2.AsyncClient, mode: str) -> None:
    tried: Tried = []
    for name in HEADERS:
        for value in (b"a\xff", "a\U0001f418".encode(), b"a\xed\xa0\xbd"):
            session = session_of((mode, name, value.hex()))
            odd = {"X_Unabridged_Mode": mode, name.replace("-", "_"): value + session.encode()}
            body = {"model": "gpt-test", "messages": [user(f"{session} asks")]}
            tried.append(((name, value), refusal(client, body, session, **odd)))
    assert await lost(client, tried, 2) == []


@characters
async def test_messages_with_odd_characters_are_cut_like_any_others(
    client: httpx2.AsyncClient, character: str
) -> None:
    listing = json.dumps(
        [{"name": f"file {number} {character}", "size": 4711 + number} for number in range(40)]
    )
    messages: list[Message] = []
    for turn in range(4):
        call = calling((f"c{turn}", "list_files", json.dumps({"path": f"/etc/{character}{turn}"})))
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": listing}
        rule = f"The limit {character} must never be larger than {turn}. "
        messages += [user(rule * 8), call, result, said(f"It is {character}."), user("Go on.")]
        body = json.dumps({"model": "gpt-test", "messages": messages}).encode()
        headers = {"Authorization": KEY, "Content-Type": "application/json", "X-Unabridged-Session": "cut"}
        response = await client.post(CHAT, content=body, headers=headers)
        messages.append(said("So it is."))
        assert "not-planned" not in response.headers.get("x-unabridged-degraded", "")
        assert turn < 3 or int(response.headers["x-unabridged-cut"]) > 0
