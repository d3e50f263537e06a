"""What is remembered, as it is told: at a session's start, and by its words. Nothing else briefing of it.

Keeps law 6 (isolated): only the scopes of the request's own home are read, under their keys. And law 7: what
cannot be read, or not in time, is not told, and the answer comes without it.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from proxy.core.memory.briefing import IN_THE_NOTE, opening_briefing, recall_briefing
from proxy.core.memory.lifecycle import used
from proxy.core.memory.records import Event, Item, Scope, ScopeKind
from proxy.core.memory.utterances import Utterance
from proxy.core.policy.policy import Policy
from proxy.core.text.words import language_of, words_of
from proxy.engine.background import Background
from proxy.engine.flow import Incoming, Request
from proxy.engine.intake.history import History
from proxy.engine.intake.homes import MemoryHome, named_home, own_home
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.scope_cache import CachedScope, ScopeCache
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


class SearchedScope(NamedTuple):
    """A memory that is searched, and the policy under which its sessions are read."""

    scope: Scope
    copy: CachedScope
    policy: Policy
    tags: frozenset[str] = frozenset()
    """By which messages know that they were said in it; without any, its sessions are not searched."""


class SearchResult(NamedTuple):
    """What a search found, the best first."""

    items: Sequence[tuple[Scope, Item]]
    said: Mapping[int, Utterance]
    """What was said in sessions, with what was said before and after it, by place: one after the other."""


@dataclass(frozen=True)
class MemoryReader:
    """Tells sessions what is remembered."""

    naming: Naming
    scopes: ScopeCache
    found_by: Search
    counter: TokenCounter
    clock: Clock
    background: Background
    sources: Conversations

    def home(self, incoming: Incoming, history: History, session: SessionKey) -> MemoryHome | None:
        """Whose memory a request has: the one that it names, else its session's. None where there is none."""
        envelope, policy = incoming.envelope, incoming.policy
        if not policy.memory.enabled:
            return None
        names = {"channel": envelope.channel, "workspace": envelope.workspace, "person": history.body.person}
        named = named_home(self.naming, envelope.headers, **names)
        return named or own_home(self.naming, envelope.headers, session, policy.store.ttl)

    async def opening(self, home: MemoryHome, history: History, session: SessionKey, room: int) -> str:
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

    async def _opening(self, home: MemoryHome, question: str, room: int, session: SessionKey) -> str:
        copies, language = await self.scopes.of_home(home), language_of(question)
        found = [item for _, item in await self._items(copies, home.scope, question)]
        own, above = copies[0].texts, [copy.texts for copy in copies[1:]]
        texts = [*(each.long for each in above), own.long, own.short]
        standing = [item for copy in copies for item in copy.told if item.is_standing]
        standing.sort(key=lambda item: (-item.importance_score, item.id))
        ranked = {item.id: item for item in [*found, *standing]}
        briefing = await asyncio.to_thread(
            opening_briefing, texts, [*ranked.values()], room, language, self.counter.count
        )
        self.use(home, {item.id for item in briefing.items}, session, "told at the start")
        return briefing.text

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
        own, *above = [SearchedScope(*each, policy) for each in zip(home.scopes, copies, strict=True)]
        found = await self.search([own._replace(tags=home.tags), *above], query, other_than=session)
        told = "" if injection is None else injection.memory
        new = [(place, line) for place, line in found.said.items() if line.text not in told]
        said = dict(new[:_LINES])
        told = "\n".join([told, *(line.text for line in said.values())])
        items = [item for _, item in found.items if item.text not in told][:_RECALLED]
        if not (said or items):
            return IN_THE_NOTE if found.said or found.items else ""
        briefing = await asyncio.to_thread(recall_briefing, said, items, room, language, self.counter.count)
        self.use(home, {item.id for item in briefing.items}, session, "recalled")
        return briefing.text

    async def search(
        self, memories: Sequence[SearchedScope], query: str, *, other_than: SessionKey | None = None
    ) -> SearchResult:
        """What is remembered of what is asked, in these memories and in their newest sessions but one.

        Raises StoreUnavailable and SearchUnavailable.
        """
        items = await self._items([each.copy for each in memories], memories[0].scope, query)
        return SearchResult(
            [(memories[number].scope, item) for number, item in items],
            await self._said(memories, query, other_than),
        )

    async def _items(
        self, copies: Sequence[CachedScope], shelf: Scope, query: str
    ) -> Sequence[tuple[int, Item]]:
        """The items that say most of what is asked, each with the number of its copy, the best first.

        They are ranked with their neighbours, which share more words with a question.
        """
        windows = [(number, window) for number, copy in enumerate(copies) for window in copy.windows]
        passages = [passage for copy in copies for passage in copy.passages]
        name = f"memory {shelf.tag} {len(copies)}"
        hits = await self.found_by.search(name, passages, query, _FITTING)
        found = [(windows[hit][0], item) for hit in hits for item in windows[hit][1]]
        if hits:  # neighbours may be ranked alike: of the best window, who says most of it by itself is first
            asked, best = words_of(query), len(windows[hits[0]][1])
            found[:best] = sorted(found[:best], key=lambda one: -len(asked & words_of(one[1].text)))
        return [*dict.fromkeys(found)][:_FITTING]

    async def _said(
        self, memories: Sequence[SearchedScope], query: str, other_than: SessionKey | None
    ) -> dict[int, Utterance]:
        """The lines of sessions that say most of what is asked, the best first, by their places.

        They are searched, and found, with their neighbours. ``other_than`` is a session that is left out.
        """
        store, sessions = self.scopes.store, list[tuple[float, SessionKey, SearchedScope]]()
        for each in memories[:_SEARCHED]:
            threads = await store.threads(each.scope, _SEARCHED if each.tags else 0)
            sessions += [(thread.updated, key, each) for key, thread in threads.items() if key != other_than]
        lines, windows = list[Utterance](), list[range]()
        for updated, key, each in sorted(sessions, key=lambda one: -one[0])[:_SEARCHED]:
            first = len(lines)
            lines += await self.sources.utterances_of(key, updated, each.policy, each.tags)
            places = range(first, len(lines))
            windows += [range(max(place - 1, first), min(place + 2, len(lines))) for place in places]
        texts = ["\n".join(str(lines[place]) for place in window) for window in windows]
        passages = [Passage(_key(text), partial(str, text)) for text in texts]
        name = f"said {memories[0].scope.tag} {len(memories)}"
        hits = await self.found_by.search(name, passages, query, _RANKED)
        return {place: lines[place] for hit in hits for place in windows[hit]}

    def use(self, home: MemoryHome, items: Collection[str], session: SessionKey, how: str) -> None:
        """Items were told to a session, or recalled in it: each counts once a session. Nobody waits."""
        if items:
            self.background.run(self._use(home, items, digest_of(session), how))

    async def _use(self, home: MemoryHome, items: Collection[str], session: bytes, how: str) -> None:
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
