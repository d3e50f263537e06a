"""What is read of a request."""

from __future__ import annotations

import json
import sys
import time

import pytest

from proxy.cache import CacheMemory
from proxy.core.conversation.messages import chain_hashes, root_hash
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import dumps
from proxy.core.planning.chain import Chain
from proxy.engine.intake.history import History
from proxy.engine.intake.reader import MESSAGES_AT_ONCE, Reader
from proxy.errors import JSONTooDeep
from tests.bench.messages import conversation
from tests.support.conversations import encode, identity_of
from tests.support.upstreams import COUNTER

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/1.png"}}


async def counted(model: str) -> tuple[History, Chain]:
    body = {"model": model, "messages": [{"role": "user", "content": [PICTURE]}]}
    reader = Reader(CHAT, COUNTER, CacheMemory())
    history = await reader.read(read_body(json.dumps(body).encode(), 10), root_hash())
    return history, await reader.count(history)


async def test_the_name_of_a_model_is_as_long_as_its_client_writes_it() -> None:
    history, chain = await counted("m" * 1_000)
    assert history.model == "m" * 1_000
    assert chain.tokens.total > 0


async def test_many_messages_are_read_and_counted_off_the_event_loop() -> None:
    told = conversation("mixed", 20 * MESSAGES_AT_ONCE)
    body = read_body(json.dumps({"messages": told}).encode(), len(told))
    await COUNTER.ready()
    reader = Reader(CHAT, COUNTER, CacheMemory())
    in_all, on_loop = time.process_time(), time.thread_time()
    history = await reader.read(body, root_hash())
    await reader.count(history)
    in_all, on_loop = time.process_time() - in_all, time.thread_time() - on_loop
    assert on_loop < in_all / 3
    assert history.hashes == chain_hashes([identity_of(encode(message)) for message in told], root_hash())


def nested(depth: int, place: str) -> bytes:
    """A body in which something is nested so deep."""
    deep = b"[" * depth + b"]" * depth
    written = {
        "content": deep,
        "arguments": dumps(deep.decode()),
        "tool_choice": deep,
        "beside a lone surrogate": b'{"\\ud800":%b}' % deep,
    }
    content, arguments, choice, name = (written[each] if each == place else b'""' for each in written)
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":%b}}' % arguments
    messages = b'{"role":"user","content":%b,"name":%b},{"role":"assistant","tool_calls":[%b]}'
    messages %= (content, name, call)
    return b'{"messages":[%b],"tool_choice":%b}' % (messages, choice)


@pytest.mark.parametrize("place", ["content", "arguments", "tool_choice", "beside a lone surrogate"])
async def test_no_depth_of_nesting_is_a_fault_of_ours(place: str) -> None:
    """What Python can still split, it may be unable to decode or to write."""
    read = set[bool]()
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit() + 10):
        try:
            history = await Reader(CHAT, COUNTER, CacheMemory()).read(
                read_body(nested(depth, place), 10), root_hash()
            )
            read.add(bool(history.hashes))
        except JSONTooDeep:
            read.add(False)
    assert True in read
