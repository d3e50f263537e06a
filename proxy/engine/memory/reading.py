"""What is remembered, as it is told: at a session's start, and by its words. Nothing else tells of it.

Keeps law 6 (isolated): only the scopes of the request's own home are read, under their keys. And law 7: what
cannot be read, or not in time, is not told, and the answer comes without it.
"""

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from proxy.core.memory.life import used
from proxy.core.memory.records import Event, Item
from proxy.core.memory.telling import told
from proxy.core.text.words import language_of
from proxy.engine.background import Background
from proxy.engine.memory.homes import Home
from proxy.engine.memory.scopes import CachedScope, Scopes
from proxy.errors import SearchUnavailable, StoreUnavailable
from proxy.ports import Changes, Clock, Search, SessionKey, TokenCounter
from proxy.telemetry import log_fault, log_warning

_SECONDS = 1.0
"""That a session's start may take longer because something is remembered."""
_FITTING = 100
"""Items that are looked at for the room that there is."""


@dataclass(frozen=True)
class Reading:
    """Tells sessions what is remembered."""

    scopes: Scopes
    search: Search
    counter: TokenCounter
    clock: Clock
    background: Background

    async def opening(self, home: Home, question: str, room: int, session: SessionKey) -> str:
        """What a session is told that begins with this ``question``, in at most ``room`` counted tokens.

        Empty where there is nothing to tell, or nobody can say. What is told is used by that.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                copies = await self.scopes.of_home(home)
                found = await self.found(home, copies, question, _FITTING)
        except (StoreUnavailable, SearchUnavailable, TimeoutError) as error:
            log_warning("what is remembered could not be told", code=type(error).__name__)
            return ""
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs memory, not the answer
            log_fault("what is remembered could not be told", error)
            return ""
        own, above = copies[0].texts, [copy.texts for copy in copies[1:]]
        texts = [*(each.long for each in above), own.long, own.short]
        standing = [item for copy in copies for item in copy.told if item.is_standing]
        standing.sort(key=lambda item: (-item.importance_score, item.id))
        items = [*dict.fromkeys([*found, *(item.id for item in standing)])]
        by_id = {item.id: item for copy in copies for item in copy.told}
        ranked = [by_id[each] for each in items]
        language = language_of(question)
        tells = await asyncio.to_thread(told, texts, ranked, room, language, self.counter.count)
        self.use(home, {item.id for item in tells.items}, session, "told at the start")
        return tells.text

    async def found(self, home: Home, copies: Sequence[CachedScope], query: str, most: int) -> Sequence[str]:
        """The ids of the items that say most of what is asked, best first: its own, and those above.

        Raises SearchUnavailable.
        """
        found: list[list[str]] = []
        for scope, copy in zip(home.scopes, copies, strict=True):
            hits = await self.search.search(f"memory {scope.tag}", copy.passages, query, most)
            found.append([copy.told[place].id for place in hits])
        own, above = found[0], found[1:]
        return [*own, *(each for more in above for each in more)][:most]

    def use(self, home: Home, items: Collection[str], session: SessionKey, how: str) -> None:
        """Items were told to a session, or recalled in it: each counts once a session. Nobody waits."""
        if items:
            self.background.run(self._use(home, items, digest_of(session), how))

    async def _use(self, home: Home, items: Collection[str], session: bytes, how: str) -> None:
        def decide(copy: CachedScope) -> Changes | None:
            now, changed, events = self.clock.now(), dict[str, Item](), list[Event]()
            for each in items:
                if (item := copy.items.get(each)) is not None:
                    after, event = used(item, session, now, how)
                    if event is not None:
                        changed[each] = after
                        events.append(event)
            return Changes(items=changed, events=events) if changed else None

        for scope in home.scopes:
            try:
                await self.scopes.change(scope, decide, home.ttl)
            except StoreUnavailable as error:
                log_warning("a use of what is remembered could not be written", code=error.code)


def digest_of(session: SessionKey) -> bytes:
    """By what an item knows that a session has used it."""
    return hashlib.sha256(f"{session.tag}\0{session.sid}".encode()).digest()[:8]
