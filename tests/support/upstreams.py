"""A scripted model behind an OpenAI-shaped API.

The model counts tokens, refuses what does not fit its window or what the real API would refuse, and knows a
request for a summary by its delimited transcript. All is on loopback; every request is kept as it came.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy.adapters.tokens import TiktokenCounter
from proxy.engine.foreground import Contention, Foreground
from proxy.ports import Clock
from tests.support.servers import Exchange, FakeUpstream, Header, Received

Message = dict[str, Any]
Behaviour = Callable[[Exchange], Awaitable[None]]
"""The behaviour of the model for one request, once its body was read."""

JSON = (b"Content-Type", b"application/json")
EVENTS = (b"Content-Type", b"text/event-stream")
COUNTER = TiktokenCounter()

OPENAI = "openai"
LLAMA = "llama.cpp"


# --- what the model makes of messages ---


def count_tokens(body: Mapping[str, Any]) -> int:
    """Count prompt tokens as OpenAI does: those of the texts, four per message, and three more."""
    texts = [_text(message) for message in body["messages"]]
    if body.get("tools"):
        texts.append(json.dumps(body["tools"]))
    return 3 + sum(4 + COUNTER.count(text) for text in texts)


def _text(message: Message) -> str:
    content: str | list[Message] = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(part.get("text", "") for part in content)
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return content + "".join(call["name"] + call["arguments"] for call in calls)


def fault_in(messages: Sequence[Message]) -> str | None:
    """Return the real API's error about the order of messages; None if it would accept them."""
    waiting: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a tool message does not answer a preceding call"
            waiting.discard(message["tool_call_id"])
        elif waiting:
            return "a tool call was not answered"
        elif message["role"] == "assistant":
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    return "a tool call was not answered" if waiting else None


def refusal(words: str, prompt: int, window: int) -> Message:
    """Return a refusal for length, in the words of one upstream."""
    if words == LLAMA:
        return {
            "error": {
                "code": 400,
                "message": f"request ({prompt} tokens) exceeds the available context size ({window} tokens),"
                " try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": prompt,
                "n_ctx": window,
            }
        }
    return {
        "error": {
            "message": f"This model's maximum context length is {window} tokens. However, your messages"
            f" resulted in {prompt} tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }


# --- what the model answers ---


def _id_of(message: Message) -> str:
    """The id of an answer: clients take two answers with one id for the same."""
    return f"chatcmpl-{zlib.crc32(json.dumps(message, sort_keys=True).encode()):08x}"


def completion(message: Message, prompt: int | None = 10, finish: str | None = None) -> Message:
    usual = "tool_calls" if message.get("tool_calls") else "stop"
    answer: Message = {
        "id": _id_of(message),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish or usual}],
    }
    if prompt is not None:
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
    return answer


def said(text: str) -> Message:
    return {"role": "assistant", "content": text, "refusal": None, "annotations": []}


def calling(*calls: tuple[str, str, str]) -> Message:
    """Return an assistant message that calls tools: (id, name, arguments)."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, "refusal": None, "annotations": []}


def events(message: Message, prompt: int | None = None) -> list[Message]:
    """Return the same answer as chunks of a stream."""
    deltas: list[Message] = [{"role": "assistant", "content": ""}]
    text: str = message.get("content") or ""
    deltas += [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        first = {"index": index, "id": call["id"], "type": "function"}
        deltas.append({"tool_calls": [{**first, "function": {"name": name, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 5]}}]}
            for at in range(0, len(arguments), 5)
        ]
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    told = _id_of(message)
    chunks = [_chunk(told, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk(told, [{"index": 0, "delta": {}, "finish_reason": finish}]))
    if prompt is not None:
        usage = {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}
        chunks.append({**_chunk(told, []), "usage": usage})
    return chunks


def _chunk(told: str, choices: list[Message]) -> Message:
    return {
        "id": told,
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "gpt-test",
        "choices": choices,
    }


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def plainly(status: int, headers: Sequence[Header], body: bytes) -> Behaviour:
    """A behaviour that answers with these bytes."""

    async def behave(exchange: Exchange) -> None:
        await exchange.answer(status, headers, body)

    return behave


SLOW_DOWN = {"error": {"message": "slow down", "type": "rate_limit", "param": None, "code": "429"}}


async def slow_down(exchange: Exchange) -> None:
    """A refusal that comes in two pieces."""
    told = json.dumps(SLOW_DOWN, indent=1).encode()
    await exchange.body()
    await exchange.start(429, [JSON])
    await exchange.chunk(told[:20])
    await asyncio.sleep(0.02)
    await exchange.chunk(told[20:])
    await exchange.end()


def in_pieces(*pieces: bytes, headers: Sequence[Header] = (EVENTS,), end: bool = True) -> Behaviour:
    """A behaviour that answers in these chunks; without `end` the connection breaks off."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start(200, headers)
        for piece in pieces:
            await exchange.chunk(piece)
            await asyncio.sleep(0.005)
        if end:
            await exchange.end()
        else:
            exchange.close()

    return behave


@dataclass
class Model:
    """The scripted model. `replies` are used up in order; after them it answers at some length."""

    window: int | None = None
    words: str = OPENAI
    replies: deque[Message | Behaviour] = field(default_factory=deque[Message | Behaviour])
    summary: Message | Behaviour | None = None
    """The answer to requests for summaries; None is a good summary."""
    chats: list[Received] = field(default_factory=list[Received])
    summaries: list[Received] = field(default_factory=list[Received])
    others: list[Received] = field(default_factory=list[Received])
    refused: int = 0
    hanging: int = 0
    """Number of summary calls that hang at the moment."""
    invalid: list[str] = field(default_factory=list[str])
    elsewhere: dict[str, Behaviour] = field(default_factory=dict[str, Behaviour])
    """The behaviour for other paths, by the end of the path."""
    listing: Message = field(default_factory=lambda: {"object": "list", "data": []})
    tells_usage: bool = True
    """Whether answers have `usage`, from which the proxy learns how the model counts."""
    caches: bool = False
    """Whether it caches prefixes of prompts, and reports that in `usage`."""
    url: str = ""

    def bodies(self) -> list[Message]:
        return [_read(bytes(chat.body)) for chat in self.chats]

    def views(self) -> list[list[Message]]:
        """The messages of each forwarded request."""
        return [body["messages"] for body in self.bodies()]

    async def serve_one(self, exchange: Exchange) -> None:
        whole = await exchange.body()
        if len(whole) < int(exchange.request.value("content-length") or b"0"):
            return  # the caller left before it had written its request
        body = _read(whole)
        if not exchange.request.target.partition("?")[0].endswith("/chat/completions"):
            self.others.append(exchange.request)
            path = exchange.request.target.partition("?")[0]
            script = next((each for end, each in self.elsewhere.items() if path.endswith(end)), None)
            await (script(exchange) if script else exchange.answer_json(self.listing))
        elif is_summary(body):
            self.summaries.append(exchange.request)
            await self._reply(exchange, body, self.summary or said("They spoke of the plan; all went well."))
        else:
            self.chats.append(exchange.request)
            await self._chat(exchange, body)

    async def _chat(self, exchange: Exchange, body: Message) -> None:
        prompt = count_tokens(body) if self.window else 0
        if self.window and prompt > self.window:
            self.refused += 1
            await exchange.answer_json(refusal(self.words, prompt, self.window), 400)
            return
        fault = fault_in(body["messages"]) if self.window else None
        if fault is not None:
            self.invalid.append(fault)
            await exchange.answer_json({"error": {"message": fault, "type": "invalid_request_error"}}, 400)
            return
        await self._reply(exchange, body, self.replies.popleft() if self.replies else self._usual(body))

    def _usual(self, body: Message) -> Message:
        return said(f"Answer {len(self.chats)} to {_text(body['messages'][-1])[:40]!r}. " + "so it is " * 20)

    async def _reply(self, exchange: Exchange, body: Message, reply: Message | Behaviour) -> None:
        if callable(reply):
            await reply(exchange)
            return
        prompt = count_tokens(body) if self.tells_usage else None
        if body.get("stream") is True:
            asked: Message = body.get("stream_options") or {}
            await exchange.stream_events(events(reply, prompt if asked.get("include_usage") else None))
        else:
            answer = completion(reply, prompt)
            if self.caches and prompt is not None:
                answer["usage"]["prompt_tokens_details"] = {
                    "cached_tokens": self._cached(body, exchange.request)
                }
            await exchange.answer_json(answer)

    def _cached(self, body: Message, request: Received) -> int:
        """Return the tokens of the longest prefix that a request shares with an earlier one."""
        asked, most = body["messages"], 0
        for earlier in (_read(bytes(chat.body))["messages"] for chat in self.chats if chat is not request):
            pairs = enumerate(zip(asked, earlier, strict=False))
            shared = next((place for place, (old, new) in pairs if old != new), min(len(asked), len(earlier)))
            most = max(most, shared)
        return count_tokens({**body, "messages": asked[:most]}) if most else 0

    async def hang(self, exchange: Exchange) -> None:
        """Keep the caller waiting until it leaves."""
        self.hanging += 1
        try:
            await exchange.gone()
        finally:
            self.hanging -= 1


def _read(body: bytes) -> Message:
    """Read a body's members; numbers of any length are accepted."""
    return json.loads(body.removeprefix(b"\xef\xbb\xbf") or b"{}", parse_int=lambda digits: int(digits[:9]))


BEHIND = "This message is no part of the conversation"
"""How a request for a summary begins that follows a conversation."""


def is_summary(body: Message) -> bool:
    content = body["messages"][-1].get("content") if body.get("messages") else None
    return isinstance(content, str) and content.startswith(("<transcript ", "<context>", BEHIND))


@asynccontextmanager
async def running(model: Model) -> AsyncGenerator[Model]:
    async with FakeUpstream(model.serve_one).serve() as upstream:
        model.url = f"{upstream.url}/v1"
        yield model


def giving_way(clock: Clock, quiet: float = 1.0) -> Foreground:
    """Return a foreground in which our own calls give way to users."""
    return Foreground(Contention(clock), clock, quiet=quiet)
