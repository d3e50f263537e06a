"""What is known of a session when a request is recognised, whatever else goes on meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.messages import root_hash
from proxy.core.conversation.records import Turn
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.registry import CHAT
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Naming
from proxy.engine.intake.reader import Reader
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import EpochLog, SessionCache, SessionState
from proxy.ports import Lookup, LookupResult, SessionKey
from tests.support.stores import DAY, HandClock, epoch, hidden, turn
from tests.support.upstreams import COUNTER

NAMED = {b"authorization": b"Bearer a", b"x-unabridged-session": b"mine"}


class Interrupted(InProcessStore):
    """A store before whose answer something else happens."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.meanwhile: Callable[[], object] = lambda: None
        self.finds = 0

    async def find(self, lookup: Lookup) -> LookupResult:
        self.finds += 1
        found = await super().find(lookup)
        self.meanwhile()
        return found


async def said() -> History:
    body = read_body(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}', 10)
    return await Reader(CHAT, COUNTER, CacheMemory()).read(body, root_hash())


async def test_hidden_calls_are_known_though_they_are_forgotten_while_the_store_is_asked() -> None:
    store, memory, naming = Interrupted(), CacheMemory(1_000_000), Naming("secret", CacheMemory())
    recognition, caller = (
        Recognition(store, naming, SessionCache(memory), HandClock(), memory),
        naming.caller(NAMED),
    )
    others: Lru[int, bytes] = Lru(memory, len)
    assert caller.key is not None
    await store.record(caller.key, turn("u1", "a1"), DAY)
    await store.keep_hidden(caller.key, hidden("a1"), DAY)
    known = {hidden("a1").hash: hidden("a1")}
    for _ in range(2):
        session, _ = await recognition.recognise(caller, await said(), "l", needs_store=False)
        assert session.hidden == known
    assert store.finds == 2
    store.meanwhile = lambda: [others.put(number, b"x" * 100_000) for number in range(10)]
    for _ in range(2):
        session, _ = await recognition.recognise(caller, await said(), "l", needs_store=False)
        assert session.hidden == known


async def conversation(*texts: str) -> History:
    """Messages of a user and answers in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    body = read_body(json.dumps({"model": "m", "messages": messages}).encode(), 10)
    return await Reader(CHAT, COUNTER, CacheMemory()).read(body, root_hash())


def headerless(history: History, *, ours: int = 0) -> Turn:
    """The turn of a session that no header names, with these messages; its answers begin at ``ours``."""
    names = [f"{'ua'[place % 2]}{place}" for place in range(len(history.hashes))]
    late = turn(*names, headerless=True)
    places = zip(late.nodes, history.hashes, (b"", *history.hashes), strict=False)
    nodes = [
        msgspec.structs.replace(node, hash=own, parent=parent, answer=node.answer and number >= ours)
        for number, (node, own, parent) in enumerate(places)
    ]
    tip = msgspec.structs.replace(late.session, tip=history.hashes[-1])
    return msgspec.structs.replace(late, nodes=tuple(nodes), session=tip)


async def test_who_gave_the_newest_answer_decides_though_this_process_gave_one_before() -> None:
    store, naming = Interrupted(), Naming("secret", CacheMemory())
    caller = Naming("secret", CacheMemory()).caller({})
    here, there = (
        Recognition(store, naming, SessionCache(CacheMemory()), HandClock(), CacheMemory()) for _ in range(2)
    )

    async def answered(by: Recognition, *texts: str) -> SessionState:
        asked, whole = await conversation(*texts[:-1]), await conversation(*texts)
        session, _ = await by.recognise(caller, asked, "l", needs_store=False)
        by.remember_answer(session, asked, whole.entries[-1].message, whole.hashes[-1])
        return session

    lost = await answered(here, "Hello", "Hi.")
    lost.cached.learn_hidden(LookupResult(sid=lost.key.sid, hidden=(hidden("a1"),)), lost.key.sid, held=0)
    begun = await answered(there, "Hello", "Hi.", "How are you?", "Fine.")
    assert begun.key != lost.key
    whole = await conversation("Hello", "Hi.", "How are you?", "Fine.")
    await store.record(begun.key, headerless(whole, ours=2), DAY)
    longer = await conversation("Hello", "Hi.", "How are you?", "Fine.", "Good.")
    found, _ = await here.recognise(caller, longer, "l", needs_store=False)
    assert found.key == begun.key
    shorter, _ = await here.recognise(
        caller, await conversation("Hello", "Hi.", "No."), "l", needs_store=False
    )
    assert shorter.key == lost.key


async def test_a_session_that_is_deleted_while_the_store_is_asked_leaves_no_epochs() -> None:
    store, memory, naming = Interrupted(), CacheMemory(), Naming("secret", CacheMemory())
    recognition = Recognition(store, naming, SessionCache(memory), HandClock(), memory)
    caller = naming.caller(NAMED)
    key = caller.key
    assert key is not None
    await store.record(key, turn("u1", "a1"), DAY)
    await store.begin_epoch(key, epoch("e1", lane="l"), 0, DAY)
    for _ in range(2):
        _, log = await recognition.recognise(caller, await said(), "l", needs_store=False)
        assert log == EpochLog((epoch("e1", lane="l"),), 1)
    await store.delete(key)

    def deleted() -> None:
        store.meanwhile = lambda: None
        recognition.forget(key)

    store.meanwhile = deleted
    _, log = await recognition.recognise(caller, await said(), "l", needs_store=False)
    assert log == EpochLog()


async def test_where_several_gave_the_newest_answer_none_goes_on_though_this_process_gave_another() -> None:
    store, naming = Interrupted(), Naming("secret", CacheMemory())
    caller = naming.caller({})
    recognition = Recognition(store, naming, SessionCache(CacheMemory()), HandClock(), CacheMemory())
    asked, answered = await conversation("Hello"), await conversation("Hello", "Hi.")
    session, _ = await recognition.recognise(caller, asked, "l", needs_store=False)
    recognition.remember_answer(session, asked, answered.entries[-1].message, answered.hashes[-1])
    whole = await conversation("Hello", "Hi.", "How are you?", "Fine.")
    for key in (session.key, SessionKey(session.key.tag, "another")):
        await store.record(key, headerless(whole), DAY)
    longer = await conversation("Hello", "Hi.", "How are you?", "Fine.", "Good.")
    found, _ = await recognition.recognise(caller, longer, "l", needs_store=False)
    assert found.key not in (session.key, SessionKey(session.key.tag, "another"))
    assert (found.found.session, found.is_store_away) == (None, False)


@pytest.mark.parametrize("is_written", [True, False])
async def test_what_another_process_answered_alike_is_joined_to_none_of_the_two(*, is_written: bool) -> None:
    store, naming = Interrupted(), Naming("secret", CacheMemory())
    caller, sessions = naming.caller({}), list[SessionState]()
    asked, answered = await conversation("Hi"), await conversation("Hi", "Hello!")
    processes = [
        Recognition(store, naming, SessionCache(CacheMemory()), HandClock(), CacheMemory()) for _ in range(2)
    ]
    for recognition in processes:
        session, _ = await recognition.recognise(caller, asked, "l", needs_store=False)
        recognition.remember_answer(session, asked, answered.entries[-1].message, answered.hashes[-1])
        sessions.append(session)
        if is_written or len(sessions) == 1:
            await store.record(session.key, headerless(answered), DAY)
    longer = await conversation("Hi", "Hello!", "What do you know of me?")
    found, _ = await processes[1].recognise(caller, longer, "l", needs_store=False)
    assert found.key not in [session.key for session in sessions]
    assert found.found.session is None


# --- conversations of which only an answer before the newest 64 messages is known ---


async def read(*messages: tuple[str, str]) -> History:
    sent = [{"role": role, "content": text} for role, text in messages]
    body = read_body(json.dumps({"model": "m", "messages": sent}).encode(), 1_000)
    return await Reader(CHAT, COUNTER, CacheMemory()).read(body, root_hash())


def long_talk(exchanges: int) -> list[tuple[str, str]]:
    return [
        said
        for number in range(exchanges)
        for said in (("user", f"Question {number}"), ("assistant", f"Answer {number}"))
    ]


class Process:
    """A process before the store of all, which knows nothing from before its start."""

    def __init__(self, store: Interrupted) -> None:
        naming = Naming("secret", CacheMemory())
        self.store, self.caller = store, naming.caller({})
        self.recognition = Recognition(store, naming, SessionCache(CacheMemory()), HandClock(), CacheMemory())

    async def recognise(self, *messages: tuple[str, str]) -> SessionState:
        history = await read(*messages)
        session, _ = await self.recognition.recognise(self.caller, history, "l", needs_store=False)
        return session

    async def answer(
        self, session: SessionState, *messages: tuple[str, str], is_written: bool = True
    ) -> None:
        """Give the last of these messages as the answer to the others."""
        asked, whole = await read(*messages[:-1]), await read(*messages)
        joint = self.recognition.remember_answer(session, asked, whole.entries[-1].message, whole.hashes[-1])
        made = headerless(whole, ours=len(whole.hashes) - 1)
        nodes = [
            msgspec.structs.replace(node, raw=raw) for node, raw in zip(made.nodes, whole.raws, strict=True)
        ]
        made = msgspec.structs.replace(made, nodes=tuple(nodes), joint=joint, is_joined=session.is_joined)
        if is_written:
            await self.store.record(session.key, made, DAY)


async def test_a_note_that_moves_along_begins_no_session_however_long_the_chat_is() -> None:
    store, said, keys = Interrupted(), list[tuple[str, str]](), set[SessionKey]()
    for number in range(45):
        said.append(("user", f"Question {number}"))
        place = max(len(said) - 4, 0)
        sent = [*said[:place], ("system", "Keep it nautical."), *said[place:], ("system", "Be brief.")]
        process = Process(store)
        session = await process.recognise(*sent)
        keys.add(session.key)
        assert session.is_joined == (number > 0)
        said.append(("assistant", f"Answer {number}"))
        await process.answer(session, *sent, said[-1])
    assert len(keys) == 1


async def test_an_answer_before_the_newest_messages_that_two_sessions_gave_joins_none() -> None:
    store, long = Interrupted(), long_talk(40)
    begun = [await Process(store).recognise(long[0]) for _ in range(2)]
    for session in begun:
        await Process(store).answer(session, ("user", "Documents. Question 0"), long[1])
    found = await Process(store).recognise(*long, ("user", "And?"))
    assert found.key not in [session.key for session in begun]
    assert found.found.session is None


async def test_an_answer_before_the_newest_messages_to_other_words_joins_none() -> None:
    store, long = Interrupted(), long_talk(40)
    session = await Process(store).recognise(long[0])
    await Process(store).answer(session, ("user", "Quite another"), long[1])
    found = await Process(store).recognise(*long, ("user", "And?"))
    assert found.key != session.key


async def test_who_gave_a_newer_answer_goes_before_who_gave_one_before_the_newest_messages() -> None:
    store, long = Interrupted(), long_talk(40)
    here = Process(store)
    own = await here.recognise(*long[:-1])
    await here.answer(own, *long, is_written=False)
    longer = [*long, ("user", "And?"), ("system", "Be brief.")]
    earlier = len(longer) - 65  # the newest of those before the newest 64
    assert longer[earlier][0] == "assistant"
    other = await Process(store).recognise(*longer[:earlier])
    changed = [*longer[: earlier - 1], ("user", f"Documents. {longer[earlier - 1][1]}"), longer[earlier]]
    await Process(store).answer(other, *changed)
    assert (await Process(store).recognise(*longer)).key == other.key
    assert (await here.recognise(*longer)).key == own.key


async def test_of_a_session_found_by_a_newer_answer_what_it_has_of_older_messages_is_known() -> None:
    store, longer = Interrupted(), [*long_talk(40), ("user", "And?")]
    place = len(longer) - 64  # the oldest of the newest 64
    before, asked, answer = longer[: place - 1], longer[place - 1], longer[place]
    session = await Process(store).recognise(*before[:-1])
    await Process(store).answer(session, *before)
    changed = [*before, ("user", f"Documents. {asked[1]}"), answer]
    await Process(store).answer(session, *changed)
    found = await Process(store).recognise(*longer)
    assert (found.key, found.is_joined) == (session.key, True)
    assert found.found.known == (await read(*longer)).hashes[place - 2]
