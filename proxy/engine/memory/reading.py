"""What is remembered, as it is told: at a session's start, and by its words. Nothing else tells of it.

Keeps law 6 (isolated): only the scopes of the request's own home are read, under their keys. And law 7: what
cannot be read, or not in time, is not told, and the answer comes without it.
"""

import asyncio
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.core.memory.life import used
from proxy.core.memory.lines import Line
from proxy.core.memory.records import Event, Item, Scope, ScopeKind
from proxy.core.memory.telling import IN_THE_NOTE, recalled, told
from proxy.core.policy.policy import Policy
from proxy.core.text.words import language_of
from proxy.engine.background import Background
from proxy.engine.flow import Incoming, Request
from proxy.engine.intake.history import History
from proxy.engine.intake.homes import Home, named_home, own_home
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.scopes import CachedScope, Scopes
from proxy.engine.memory.sources import Sources
from proxy.errors import SearchUnavailable, StoreUnavailable
from proxy.ports import Changes, Clock, Passage, Search, SessionKey, TokenCounter
from proxy.telemetry import log_fault, log_warning

_SECONDS = 1.0
"""That a session's start may take longer because something is remembered."""
_FITTING = 100
"""Items that are looked at for the room that there is."""
_RECALLED = 10
"""Items that one search brings back."""
_SEARCHED, _RANKED, _LINES = 50, 20, 24
"""Other sessions that are searched, the newest; passages that are ranked; and lines that are told of them."""


@dataclass(frozen=True)
class Reading:
    """Tells sessions what is remembered."""

    naming: Naming
    scopes: Scopes
    search: Search
    counter: TokenCounter
    clock: Clock
    background: Background
    sources: Sources

    def home(self, incoming: Incoming, history: History, session: SessionKey) -> Home | None:
        """Whose memory a request has: the one that it names, else its session's. None where there is none."""
        envelope, policy = incoming.envelope, incoming.policy
        if not policy.memory.enabled:
            return None
        names = {"channel": envelope.channel, "workspace": envelope.workspace, "person": history.body.person}
        named = named_home(self.naming, envelope.headers, **names)
        return named or own_home(self.naming, envelope.headers, session, policy.store.ttl)

    async def opening(self, home: Home, history: History, session: SessionKey, room: int) -> str:
        """What a session is told in ``room`` counted tokens, by what its first user message says.

        Empty where there is nothing to tell, or nobody can say. What is told is used by that.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                if home.scope.kind is ScopeKind.THREAD:
                    return ""  # nobody else has left anything there
                return await self._opening(home, history.first_words, room, session)
        except (StoreUnavailable, SearchUnavailable, TimeoutError) as error:
            log_warning("what is remembered could not be told", code=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs memory, not the answer
            log_fault("what is remembered could not be told", error)
        return ""

    async def _opening(self, home: Home, question: str, room: int, session: SessionKey) -> str:
        copies, language = await self.scopes.of_home(home), language_of(question)
        found = await self.found(home, copies, question, _FITTING)
        own, above = copies[0].texts, [copy.texts for copy in copies[1:]]
        texts = [*(each.long for each in above), own.long, own.short]
        standing = [item for copy in copies for item in copy.told if item.is_standing]
        standing.sort(key=lambda item: (-item.importance_score, item.id))
        ranked = {item.id: item for item in [*found, *standing]}
        tells = await asyncio.to_thread(told, texts, [*ranked.values()], room, language, self.counter.count)
        self.use(home, {item.id for item in tells.items}, session, "told at the start")
        return tells.text

    async def recalled(self, request: Request, query: str, room: int) -> str:
        """What was said of what is asked in other sessions, and is remembered of it, as a note.

        Nothing is told twice, nor what the session was told at its start: where that is all that is found, it
        is said that it stands there. Empty where nothing is found.
        Raises StoreUnavailable and SearchUnavailable.
        """
        policy, session, injection = request.incoming.policy, request.session.key, request.history.injection
        if (home := request.home) is None:
            return ""
        copies, language = await self.scopes.of_home(home), language_of(query)
        told = "" if injection is None else injection.memory
        near = await self.said(home.scope, home.tags, query, policy, other_than=session)
        new = [(place, line) for place, line in near.items() if line.text not in told]
        said = dict(new[:_LINES])
        told = "\n".join([told, *(line.text for line in said.values())])
        found = await self.found(home, copies, query, _FITTING)
        items = [item for item in found if item.text not in told][:_RECALLED]
        if not (said or items):
            return IN_THE_NOTE if near or found else ""
        tells = await asyncio.to_thread(recalled, said, items, room, language, self.counter.count)
        self.use(home, {item.id for item in tells.items}, session, "recalled")
        return tells.text

    async def said(
        self,
        scope: Scope,
        tags: frozenset[str],
        query: str,
        policy: Policy,
        other_than: SessionKey | None = None,
    ) -> dict[int, Line]:
        """The lines of a scope's sessions that say most of what is asked, the best first, by place.

        They are searched, and found, with their neighbours. ``tags`` are the scope's, as messages know it.
        Raises StoreUnavailable and SearchUnavailable.
        """
        lines, windows = list[Line](), list[range]()
        for other, thread in (await self.scopes.store.threads(scope, _SEARCHED)).items():
            if other != other_than:
                first = len(lines)
                lines += await self.sources.lines_of(other, thread.updated, policy, tags)
                places = range(first, len(lines))
                windows += [range(max(place - 1, first), min(place + 2, len(lines))) for place in places]
        texts = ["\n".join(str(lines[place]) for place in window) for window in windows]
        passages = [Passage(_key(text), partial(str, text)) for text in texts]
        found = await self.search.search(f"said {scope.tag}", passages, query, _RANKED)
        return {place: lines[place] for hit in found for place in windows[hit]}

    async def found(self, home: Home, copies: Sequence[CachedScope], query: str, most: int) -> Sequence[Item]:
        """The items that say most of what is asked, best first, whether they are its own or of those above.

        Raises SearchUnavailable.
        """
        windows = [window for copy in copies for window in copy.windows]
        passages = [passage for copy in copies for passage in copy.passages]
        hits = await self.search.search(f"memory {home.scope.tag}", passages, query, most)
        return [*dict.fromkeys(item for place in hits for item in windows[place])][:most]

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


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def digest_of(session: SessionKey) -> bytes:
    """By what an item knows that a session has used it."""
    return hashlib.sha256(f"{session.tag}\0{session.sid}".encode()).digest()[:8]
