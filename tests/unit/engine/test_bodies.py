"""Which bodies are read after what was read before, and whose."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.cache import CacheMemory
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.registry import CHAT
from proxy.engine.intake.history import History
from proxy.engine.intake.reader import BodyCache, Reader
from proxy.errors import InvalidJSON
from tests.support.upstreams import COUNTER

LONG = "word " * 1_000
ROOT = root_hash()


class Process:
    """What one process remembers."""

    def __init__(self, *, is_shared: bool = True, memory: CacheMemory | None = None) -> None:
        self.body_cache = BodyCache(CHAT, memory or CacheMemory())
        self.reader = Reader(CHAT, COUNTER, CacheMemory())
        self.is_shared = is_shared

    def read(self, raw: bytes, scope: bytes = b"me", start: bytes = ROOT) -> bool:
        """Whether something of the body was known; it is placed as if nothing had been."""
        read = self.body_cache.read(raw, scope, 100, is_shared=self.is_shared)
        self.history = history = asyncio.run(self.reader.read(read.body, start, read.before))
        whole = BodyCache(CHAT, CacheMemory()).read(raw, scope, 100).body
        alone = asyncio.run(Reader(CHAT, COUNTER, CacheMemory()).read(whole, start))
        chain = asyncio.run(self.reader.count(history))
        whole_chain = asyncio.run(Reader(CHAT, COUNTER, CacheMemory()).count(alone))
        assert (history.head, history.exchanges, chain) == (alone.head, alone.exchanges, whole_chain)
        self.body_cache.keep(read, history, chain)
        return read.before is not None


def body(*texts: str, first: str = "Be brief. " + LONG, seed: int = 0) -> bytes:
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return json.dumps(
        {"model": "m", "messages": [{"role": "system", "content": first}, *messages], "seed": seed}
    ).encode()


def test_a_conversation_that_goes_on_is_known_up_to_where_it_goes_on() -> None:
    process = Process()
    assert not process.read(body("One?"))
    assert process.read(body("One?", "1", "Two?", seed=1))
    assert process.read(body("One?", "1", "Two?", "2", "Three?"))
    assert process.read(body("One?", "1", "Two?", "2", "Three?")), "and asked again"


def test_conversations_with_the_same_system_prompt_are_told_apart_by_what_follows_it() -> None:
    process = Process()
    others = [body(f"I am number {number}.") for number in range(3)]
    assert [process.read(raw) for raw in others] == [False] * 3
    gone_on = [body(f"I am number {number}.", "Hello.", "And now?") for number in range(3)]
    assert [process.read(raw) for raw in gone_on] == [True] * 3
    longer = body("I am number 9.", first=f"Be brief. {LONG * 2}")
    assert [process.read(raw) for raw in (longer, *gone_on)] == [False, True, True, True]


@pytest.mark.parametrize("is_shared", [False, True], ids=["named", "nameless"])
def test_a_conversation_with_tools_that_grow_before_its_system_prompt_is_known(*, is_shared: bool) -> None:
    process = Process(is_shared=is_shared)
    talk = [{"role": "system", "content": LONG}, *({"role": "user", "content": str(n)} for n in range(5))]
    told = [
        {"model": "m", "tools": [{"name": "look" * 100}] * number, "messages": talk[: number + 1]}
        for number in range(1, 5)
    ]
    assert [process.read(json.dumps(each).encode()) for each in told] == [False, True, True, True]


def test_a_small_conversation_is_known_by_its_messages() -> None:
    process, first = Process(), "Be brief. " * 30
    assert not process.read(body("One?", first=first))
    assert process.read(body("One?", "1", "Two?", first=first, seed=1))
    assert process.read(body("One?", "1", "Two?", first=first))
    assert not process.read(body("One?", "1", "Another two?", first=first))
    assert not process.read(body("One?", first=first)), "nor is what is shorter"


def test_a_conversation_that_has_become_long_is_known_by_what_it_is_now() -> None:
    process, first = Process(), "Be brief. " * 30
    talk = ["One?", "1", LONG, "2", "Three?"]
    assert [process.read(body(*talk[:length], first=first)) for length in (1, 3, 5)] == [False, True, True]
    assert len(process.history.counted) == 3


def test_conversations_in_use_are_not_forced_out_by_many_that_are_not() -> None:
    process, talk = Process(is_shared=False, memory=CacheMemory(250_000)), ["One?"]
    process.read(body(*talk))
    for number in range(400):
        process.read(body("Hello?", first="Be brief."), scope=b"%d" % number)
        if number % 40 == 0:
            talk += [f"{number}", "And then?"]
            assert process.read(body(*talk))
    assert process.read(body("Hello?", first="Be brief."), scope=b"399")
    assert not process.read(body("Hello?", first="Be brief."), scope=b"0"), "few of them are kept"


def test_what_has_changed_before_the_messages_makes_no_other_conversation_of_them() -> None:
    process = Process()
    asked = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "1"}]
    tools = [[{"type": "function", "name": name * 300}] for name in ("a", "aa")]
    told = [json.dumps({"model": "m", "tools": each, "messages": asked}).encode() for each in tools]
    assert [process.read(raw) for raw in told] == [False, True]


def test_what_was_counted_is_gone_on_from_for_the_same_model_alone() -> None:
    process = Process()
    asked = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "1"}]
    for count, model, counted in ((1, "m", 0), (2, "m", 1), (2, "n", 0), (2, "n", 2)):
        process.read(json.dumps({"messages": asked[:count], "model": model}).encode())
        assert len(process.history.counted) == counted
        assert [each.raw for each in process.history.new] == process.history.raws[counted:]


def test_an_edit_is_read_as_a_whole() -> None:
    process = Process()
    process.read(body("One?", "1", "Two?"))
    assert not process.read(body("One?", "1", "Another two?", "2"))
    assert not process.read(body("One?", first="Be rude. " + LONG))


def test_a_caller_knows_nothing_of_anothers() -> None:
    process = Process()
    process.read(body("One?"), b"one")
    assert not process.read(body("One?", "1", "Two?"), b"another")


def test_where_the_chain_begins_elsewhere_its_hashes_do() -> None:
    process = Process()
    process.read(body("One?"))
    process.read(body("One?", "1", "Two?"), start=root_hash("somebody"))


def test_two_branches_of_one_conversation_never_see_each_others_messages() -> None:
    process, beginning = Process(), ("One?", "1", "Two?")
    process.read(body(*beginning))
    begun = process.history
    branches: list[History] = []
    for told in ("A secret.", "Another secret."):
        read, others = (
            process.body_cache.read(body(*beginning, "2", told), b"me", 100),
            Reader(CHAT, COUNTER, CacheMemory()),
        )
        branches.append(asyncio.run(process.reader.read(read.body, ROOT, read.before)))
        alone = asyncio.run(others.read(read.body, ROOT))
        chains = asyncio.run(process.reader.count(branches[-1])), asyncio.run(others.count(alone))
        assert chains[0] == chains[1]
        assert read.before is not None
        assert len(read.before.counted.messages) == 3
    assert len(begun.raws) == len(begun.entries) == len(begun.hashes) == 3
    one, other = branches
    assert one.hashes[:4] == other.hashes[:4]
    assert one.hashes[4] != other.hashes[4]
    assert b"Another" not in b"".join([*one.raws, *begun.raws])


def test_a_head_that_grows_is_a_head() -> None:
    process = Process()
    heads = [{"role": "system", "content": LONG}]
    for count in (1, 2):
        raw = json.dumps({"messages": heads * count, "model": "m"}).encode()
        process.read(raw)
    process.read(json.dumps({"messages": [*heads * 2, {"role": "user", "content": "x"}]}).encode())


def test_what_is_wrong_after_a_known_beginning_is_told_by_its_place_in_the_whole() -> None:
    process, raw = Process(), body("One?")
    process.read(raw)
    broken = raw[:-20] + b"}" + raw[-20:]
    with pytest.raises(InvalidJSON) as raised:
        process.read(broken)
    with pytest.raises(InvalidJSON) as alone:
        BodyCache(CHAT, CacheMemory()).read(broken, b"", 100)
    assert raised.value.message == alone.value.message
