"""What is known of a session when a request is recognised, whatever else goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import Lru, Memory
from proxy.core.conversation.messages import root
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.registry import CHAT
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Naming
from proxy.engine.intake.reader import Reader
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import SessionCache
from proxy.ports import Found, Lookup
from tests.support.stores import DAY, HandClock, hidden, turn
from tests.support.upstreams import COUNTER

NAMED = {b"authorization": b"Bearer a", b"x-unabridged-session": b"mine"}


class Interrupted(InProcessStore):
    """A store before whose answer something else happens."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.meanwhile: Callable[[], object] = lambda: None
        self.finds = 0

    async def find(self, lookup: Lookup) -> Found:
        self.finds += 1
        found = await super().find(lookup)
        self.meanwhile()
        return found


async def said() -> History:
    body = read_body(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}', 10)
    return await Reader(CHAT, COUNTER, Memory()).read(body, root())


async def test_hidden_calls_are_known_though_they_are_forgotten_while_the_store_is_asked() -> None:
    store, memory, naming = Interrupted(), Memory(1_000_000), Naming("secret", Memory())
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
