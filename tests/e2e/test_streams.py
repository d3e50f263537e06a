"""Streams over real sockets: cut anywhere, ended in every way, endless."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest

from tests.support.clients import ADMIN, CHAT, HELLO, STREAMED, Chats, user
from tests.support.servers import PATIENCE, Exchange
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Message,
    Model,
    completion,
    in_pieces,
    plainly,
    sse,
)


async def post(client: httpx2.AsyncClient, body: bytes = STREAMED, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(CHAT, content=body, headers={"Content-Type": "application/json", **named})


async def transcripts(url: str, *sessions: str) -> list[list[Message]]:
    """The messages of these sessions, once their turns are written."""
    async with httpx2.AsyncClient(base_url=f"{url}/unabridged/v1", headers=ADMIN) as admin:

        async def told(path: str) -> Any:
            return (await admin.get(path)).json()

        ids: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            while not ids.keys() >= set(sessions):
                ids = {each["name"]: each["id"] for each in (await told("/sessions"))["sessions"]}
        return [(await told(f"/sessions/{ids[name]}/transcript"))["messages"] for name in sessions]


# --- cuts ---

STREAM = (
    "\ufeff: hello\r\n\r\n"
    'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße 🐘"}}]}\r\n\r\n'
    "event: x_future\ndata: {}\n\n"
    'data:{"choices":[{"index":0,\rdata: "delta":{"content":"\\ud83d\\udc18"},"finish_reason":"stop"}]}\r\r'
    'data: {"choices":[],"usage":{"prompt_tokens":700,"completion_tokens":1}}\r\n\r\n'
    "data: [DONE]\n\n"
).encode()
USAGE = STREAM[STREAM.index(b'data: {"choices":[],') : STREAM.index(b"data: [DONE]")]
INSIDE = [
    STREAM.index("🐘".encode()) + 1,
    STREAM.index("ü".encode()) + 1,
    STREAM.index(b"\r\n") + 1,
    STREAM.index(b"\r\n\r\n") + 3,
    STREAM.index(b"data") + 2,
    STREAM.index(b"data:") + 4,
    STREAM.index(b"\r\rdata") + 1,
    STREAM.index(USAGE) + len(USAGE) - 1,
]
FIFTY = sorted({*INSIDE, *range(1, len(STREAM), 9)})


def new_caller(number: int) -> dict[str, str]:
    """Headers of somebody whose models are not known yet, and whose budget is nearly used up."""
    return {"Authorization": f"Bearer {number}", "X_Unabridged_Budget": "900"}


@pytest.mark.parametrize("asks", [False, True], ids=["as it is", "with usage that only the proxy wants"])
async def test_wherever_a_stream_is_cut_the_client_and_the_transcript_get_the_same(
    model: Model, client: httpx2.AsyncClient, url: str, *, asks: bool
) -> None:
    known = {"stream": True, "model": "gpt-4o", "messages": [user("Tell me all of it. " * 100)]}
    members = {**known, "model": "gpt-test"} if asks else known
    expected = STREAM.replace(USAGE, b"") if asks else STREAM
    for at in FIFTY:
        model.replies.append(in_pieces(STREAM[:at], STREAM[at:]))
        headers = {"X_Unabridged_Session": f"s{at}", **(new_caller(at) if asks else {})}
        response = await post(client, json.dumps(members).encode(), **headers)
        assert response.content == expected, STREAM[:at]
    kept = await transcripts(url, *(f"s{at}" for at in FIFTY))
    asked = [body.get("stream_options") for body in model.bodies()]
    assert asked == [{"include_usage": True} if asks else None] * len(FIFTY)
    assert [[(each["message"], each["complete"]) for each in messages[1:]] for messages in kept] == [
        [({"role": "assistant", "content": "Grüße 🐘🐘"}, True)]
    ] * len(FIFTY)


# --- what was said in a stream is what would have been said without ---


def chunk(*choices: Message) -> bytes:
    return sse({"id": "c", "object": "chat.completion.chunk", "choices": list(choices)})


def delta(said: Message, index: int = 0, finish: str | None = None, **others: Any) -> Message:
    return {"index": index, "delta": said, "finish_reason": finish, **others}


def call(index: int, arguments: str, **opening: str) -> Message:
    named = {"id": opening["id"], "type": "function"} if opening else {}
    function = {"name": opening["name"], "arguments": arguments} if opening else {"arguments": arguments}
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def function(call_id: str, name: str, arguments: str) -> Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


WAYS: dict[str, tuple[list[Message], Message]] = {
    "interleaved parallel calls": (
        [
            delta({"role": "assistant", "content": None}),
            delta(call(0, "", id="a", name="read")),
            delta(call(1, "", id="b", name="write")),
            delta(call(1, '{"x":')),
            delta(call(0, '{"y":"🐘')),
            delta(call(1, "1}")),
            delta(call(0, '"}')),
            delta({}, finish="tool_calls"),
        ],
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [function("a", "read", '{"y":"🐘"}'), function("b", "write", '{"x":1}')],
        },
    ),
    "logprobs": (
        [
            delta({"role": "assistant", "content": "Yes"}, logprobs={"content": [{"token": "Yes"}]}),
            delta({"content": "."}, finish="stop", logprobs={"content": [{"token": "."}]}),
        ],
        {"role": "assistant", "content": "Yes."},
    ),
    "a refusal": (
        [
            delta({"role": "assistant", "content": None, "refusal": "I "}),
            delta({"refusal": "won't."}, finish="stop"),
        ],
        {"role": "assistant", "content": None, "refusal": "I won't."},
    ),
    "reasoning, as DeepSeek has it": (
        [
            delta({"role": "assistant", "content": None, "reasoning_content": "Hm"}),
            delta({"reasoning_content": "m."}),
            delta({"content": "4"}, finish="stop"),
        ],
        {"role": "assistant", "content": "4", "reasoning_content": "Hmm."},
    ),
    "reasoning, as OpenRouter has it": (
        [
            delta({"role": "assistant", "content": "", "reasoning": "Hm"}),
            delta({"content": "", "reasoning": "m."}),
            delta({"content": "4"}, finish="stop"),
        ],
        {"role": "assistant", "content": "4", "reasoning": "Hmm."},
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_is_kept_as_if_it_had_not_been_streamed(
    model: Model, client: httpx2.AsyncClient, url: str, way: str
) -> None:
    choices, whole = WAYS[way]
    model.replies += [in_pieces(*map(chunk, choices), DONE), plainly(200, [JSON], as_body(whole))]
    for name in ("streamed", "whole"):
        assert (await post(client, X_Unabridged_Session=name)).status_code == 200
    kept = [messages[-1] for messages in await transcripts(url, "streamed", "whole")]
    assert kept[0]["message"] == kept[1]["message"] == whole
    assert [each["complete"] for each in kept] == [True, True]


def as_body(message: Message) -> bytes:
    return json.dumps(completion(message)).encode()


async def test_of_several_streamed_choices_the_next_body_tells_which_was_taken(
    model: Model, chats: Chats, url: str
) -> None:
    pieces = [
        chunk(delta({"role": "assistant", "content": "On"}, 0), delta({"content": "Tw"}, 1)),
        chunk(delta({"content": "o"}, 1, "stop")),
        chunk(delta({"content": "e"}, 0, "stop")),
        DONE,
    ]
    model.replies.append(in_pieces(*pieces))
    chat = chats(url, X_Unabridged_Session="s")
    chat.members |= {"n": 2, "stream": True}
    chat.messages.append(user("Hello"))
    assert (await chat.send()).content == b"".join(pieces)
    chat.members = {"model": "gpt-test"}
    chat.messages.append({"role": "assistant", "content": "Two"})
    await chat.ask("And then?")
    texts = [each["message"]["content"] for each in (await transcripts(url, "s"))[0]]
    assert texts[:3] == ["Hello", "Two", "And then?"]


# --- how a stream ends ---

MEBIBYTE = 2**20

ERROR = {"error": {"message": "overloaded", "code": 529}}
FIRST = chunk(delta({"role": "assistant", "content": "Hel"}))


@pytest.mark.parametrize("done", [b"", DONE], ids=["and EOF", "and [DONE]"])
@pytest.mark.parametrize("error", [sse(ERROR), b"event: error\n" + sse({"message": "overloaded"})])
async def test_an_error_in_mid_stream_is_the_last_word(
    model: Model, client: httpx2.AsyncClient, url: str, error: bytes, done: bytes
) -> None:
    model.replies.append(in_pieces(FIRST, error, done or b": nothing more\n\n"))
    response = await post(client, X_Unabridged_Session="s")
    assert response.content == FIRST + error + (done or b": nothing more\n\n")
    assert [each["complete"] for each in (await transcripts(url, "s"))[0]] == [True, False]


@pytest.mark.parametrize("odd", [{"content": {"type": "text", "text": "x"}}, {"role": 5}, 5])
async def test_a_stream_with_an_odd_delta_passes_as_it_is_and_keeps_what_was_said_as_incomplete(
    model: Model, client: httpx2.AsyncClient, url: str, caplog: pytest.LogCaptureFixture, odd: Any
) -> None:
    caplog.set_level(logging.INFO, "proxy")
    pieces = [
        chunk(delta({"content": "Hel"})),
        chunk(delta(odd)),
        chunk(delta({"content": "lo"}, 0, "stop")),
        DONE,
    ]
    model.replies.append(in_pieces(*pieces))
    assert (await post(client, X_Unabridged_Session="s")).content == b"".join(pieces)
    _, answer = (await transcripts(url, "s"))[0]
    assert (answer["message"]["content"], answer["complete"]) == ("Hello", False)
    lines = [getattr(record, "fields", {}) for record in caplog.records]
    assert ["answer-unread"] in [line.get("degraded") for line in lines]


@pytest.mark.parametrize("other", [None, "stop"])
async def test_a_stream_is_whole_when_every_choice_that_was_seen_has_finished(
    model: Model, client: httpx2.AsyncClient, other: str | None
) -> None:
    pieces = [
        chunk(delta({"content": "a"}, 0), delta({"content": "b"}, 1, other)),
        chunk(delta({}, 0, "stop")),
    ]
    model.replies.append(in_pieces(*pieces))
    rest = (await post(client)).content.removeprefix(b"".join(pieces))
    assert (b"upstream_truncated" in rest) is (other is None)
    assert not rest or json.loads(rest.removeprefix(b"data: "))["error"]["type"] == "server_error"


async def test_a_refused_streamed_request_is_answered_in_json_as_the_upstream_wrote_it(
    model: Model, client: httpx2.AsyncClient
) -> None:
    body = b'{ "error": {"message": "no such parameter", "type": "invalid_request_error"} }\n'
    model.replies.append(plainly(400, [(b"Content-Type", b"application/json; charset=utf-8")], body))
    response = await post(client, STREAMED.replace(b"gpt-test", b"gpt-4o"))
    assert (response.status_code, response.content) == (400, body)
    assert response.headers["content-type"] == "application/json; charset=utf-8"


# --- a content type that is not the content's ---

TYPES = [None, b"text/plain; charset=utf-8", b"application/json", b"application/x-ndjson"]
WHOLE = [b": hello\n\n", FIRST, chunk(delta({"content": "lo"}, 0, "stop")), DONE]
ANSWER = b'\n{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}}]}\n'


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mode", ["full", "append"])
async def test_a_stream_is_one_whatever_its_content_type(
    model: Model, client: httpx2.AsyncClient, url: str, kind: bytes | None, mode: str
) -> None:
    headers = [] if kind is None else [(b"Content-Type", kind)]
    pieces = {"s": WHOLE, "cut": [*(b"%c" % each for each in WHOLE[1]), *WHOLE[2:]]}
    for session, each in pieces.items():
        model.replies.append(in_pieces(*each, headers=headers))
        response = await post(client, X_Unabridged_Session=session, X_Unabridged_Mode=mode)
        assert response.content == b"".join(each)
        assert response.headers.get("content-type") == (kind and kind.decode())
    for _, answer in await transcripts(url, *pieces):
        assert (answer["message"]["content"], answer["complete"]) == ("Hello", True)


async def test_a_stream_of_another_type_that_breaks_off_says_so(
    model: Model, client: httpx2.AsyncClient
) -> None:
    model.replies.append(in_pieces(FIRST, headers=[(b"Content-Type", b"text/plain")], end=False))
    assert b"upstream_truncated" in (await post(client)).content


async def test_blank_lines_before_an_answer_in_one_piece_are_passed_on_as_they_come(
    model: Model, client: httpx2.AsyncClient
) -> None:
    has_come = asyncio.Event()

    async def keeps_open(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, [JSON])
        await exchange.chunk(b"\n")
        await has_come.wait()
        await exchange.chunk(ANSWER)
        await exchange.end()

    model.replies.append(keeps_open)
    named = {"Content-Type": "application/json"}
    request = client.build_request("POST", CHAT, content=STREAMED, headers=named)
    response = await client.send(request, stream=True)
    chunks = response.aiter_raw()
    assert await anext(chunks) == b"\n"
    has_come.set()
    assert b"".join([each async for each in chunks]) == ANSWER
    await response.aclose()


@pytest.mark.parametrize("kind", [EVENTS, JSON, (b"Content-Type", b"text/plain")])
@pytest.mark.parametrize("body", [STREAMED, HELLO], ids=["asked for a stream", "asked for none"])
@pytest.mark.parametrize("mode", ["full", "append"])
async def test_nothing_is_added_to_an_answer_that_is_no_stream_whatever_its_content_type(
    model: Model, client: httpx2.AsyncClient, url: str, kind: tuple[bytes, bytes], body: bytes, mode: str
) -> None:
    model.replies.append(in_pieces(ANSWER[:1], ANSWER[1:20], ANSWER[20:], headers=[kind]))
    response = await post(client, body, X_Unabridged_Session="s", X_Unabridged_Mode=mode)
    assert response.content == ANSWER
    _, answer = (await transcripts(url, "s"))[0]
    assert (answer["message"]["content"], answer["complete"]) == ("Hello", True)


@pytest.mark.parametrize("end", [True, False], ids=["an orderly end", "a connection that closes"])
async def test_a_stream_that_breaks_off_within_an_event_says_so_in_an_event_of_its_own(
    model: Model, client: httpx2.AsyncClient, *, end: bool
) -> None:
    for at in (6, 20, len(FIRST) - 2, len(FIRST) - 1):
        begun = FIRST + FIRST[:at]
        model.replies.append(in_pieces(begun, end=end))
        response = await post(client)
        assert response.content.startswith(begun)
        assert json.loads(response.content.split(b"\n\ndata: ")[-1])["error"]["code"] == "upstream_truncated"


async def test_an_error_that_calls_itself_a_stream_is_passed_on_as_it_is(
    model: Model, client: httpx2.AsyncClient
) -> None:
    body = b'{"error": {"message": "slow down"}}'
    model.replies.append(plainly(429, [EVENTS], body))
    response = await post(client)
    assert (response.status_code, response.content) == (429, body)


@pytest.mark.parametrize("headers", [[EVENTS], [EVENTS, (b"Content-Encoding", b"br")]])
async def test_where_nobody_can_tell_whether_an_answer_is_whole_a_broken_connection_stays_one(
    model: Model, client: httpx2.AsyncClient, headers: list[tuple[bytes, bytes]]
) -> None:
    model.replies.append(in_pieces(b"data: " + b"x" * 9 * MEBIBYTE, headers=headers, end=False))
    async with client.stream("POST", CHAT, content=STREAMED) as response:
        with pytest.raises(httpx2.RemoteProtocolError):
            async for _ in response.aiter_raw():
                pass


# --- much of it ---


@pytest.mark.parametrize("marks", [b"", b"\n"], ids=["one event", "one line without end"])
async def test_what_is_too_large_to_be_read_flows_all_the_same(
    model: Model, url: str, client: httpx2.AsyncClient, marks: bytes
) -> None:
    """The client has the first of it before the upstream has written the rest."""
    half = asyncio.Event()
    line = b'data: {"choices":[{"index":0,"delta":{"content":"'
    parts = [line, *[b"x" * MEBIBYTE] * 9, b'"}}]}' + marks * 2 if marks else b""]

    async def huge(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        for number, part in enumerate(filter(None, parts)):
            if number == 4:
                await half.wait()
            await exchange.chunk(part)
        await exchange.end()

    model.replies.append(huge)
    received = 0
    headers = {"Content-Type": "application/json", "X-Unabridged-Session": "s"}
    async with client.stream("POST", CHAT, content=STREAMED, headers=headers) as response:
        async for piece in response.aiter_raw():
            received += len(piece)
            if received > 2 * MEBIBYTE:
                half.set()
    assert received == sum(map(len, parts)), "nothing is added where nobody can know whether it is whole"
    assert [each["message"]["content"] for each in (await transcripts(url, "s"))[0]] == ["Hello"]
