"""Read memories: the briefing at a session's start, recalls within it, and searches by people.

Keeps law 6 (isolated): only the scopes of the request's own home are read, under their keys. Also keeps law
7: if a memory cannot be read in time, the answer comes without it.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from proxy.core.memory.briefing import IN_THE_NOTE, Briefing, opening_briefing, recall_briefing
from proxy.core.memory.lifecycle import used
from proxy.core.memory.records import Item, Scope, ScopeKind
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
from proxy.ports import Changes, Clock, Passage, Search, SessionKey, TokenCounter, UnreadableRecord
from proxy.telemetry import log_fault, log_warning

_SECONDS, _SEARCHING = 1.0, 0.6
"""Most seconds by which memory may delay a session's start; and of these, most for the search."""
_FITTING = 100
"""Most items that are considered for the room of a briefing."""
_RECALLED = 10
"""Most items that one recall returns."""
_SEARCHED, _RANKED, _LINES = 50, 20, 24
"""Most other sessions that are searched, the newest; passages that are ranked; lines that are returned."""


class SearchedScope(NamedTuple):
    """A memory to be searched, and the policy under which its sessions are read."""

    scope: Scope
    copy: CachedScope
    policy: Policy
    has_sessions: bool = False
    """Whether the sessions in it are searched too."""


class SearchResult(NamedTuple):
    """The results of a search, the best first."""

    items: Sequence[tuple[Scope, Item]]
    said: Mapping[int, Utterance]
    """Lines of sessions, each with its neighbours, by place; consecutive lines have consecutive places."""


@dataclass(frozen=True)
class MemoryReader:
    """Gives sessions their briefings, and searches memories."""

    naming: Naming
    scopes: ScopeCache
    found_by: Search
    counter: TokenCounter
    clock: Clock
    background: Background
    sources: Conversations

    def home(
        self, incoming: Incoming, history: History, session: SessionKey, former_tag: str = ""
    ) -> MemoryHome:
        """Return the memory home that a request names, else its session's, as :func:`own_home` does."""
        envelope = incoming.envelope
        names = {"channel": envelope.channel, "workspace": envelope.workspace, "person": history.body.person}
        named = named_home(self.naming, envelope.headers, **names)
        return named or own_home(self.naming, envelope.headers, session, former_tag)

    async def opening(self, home: MemoryHome, history: History, session: SessionKey, room: int) -> str:
        """Return a session's first briefing in ``room`` counted tokens, chosen by its first user message.

        Empty if there is nothing to tell, or memory cannot be read. The items in it count as used. If the
        search takes too long, as with thousands of new items, only texts and standing items are told: the
        search goes on in its thread, and its index serves the next session.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                if home.scope.kind is ScopeKind.THREAD:
                    return ""  # no other session writes into this scope
                question = history.first_words
                copies, language = await self.scopes.of_home(home), language_of(question)
                found = list[Item]()
                try:
                    async with asyncio.timeout(_SEARCHING):
                        found += (item for _, item in await self._items(copies, home.scope, question))
                except TimeoutError:
                    log_warning("memory was not searched in time: only its texts and rules are told")
                own, above = copies[0].texts, [copy.texts for copy in copies[1:]]
                texts = [*(each.long for each in above), own.long, own.short]
                standing = [item for copy in copies for item in copy.active if item.is_standing]
                standing.sort(key=lambda item: (-item.importance_score, item.id))
                ranked = {item.id: item for item in [*found, *standing]}
                briefing = await asyncio.to_thread(
                    opening_briefing, texts, [*ranked.values()], room, language, self.counter.count
                )
                self.background.run(self._use(home, briefing, session, "told at the start"))
                return briefing.text
        except (StoreUnavailable, SearchUnavailable, TimeoutError) as error:
            log_warning("what is remembered could not be told", code=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - law 7: a fault of ours costs memory, not the answer
            log_fault("what is remembered could not be told", error)
        return ""

    async def recalled(self, request: Request, query: str, room: int) -> str:
        """Return a note with lines from other sessions, and items, that match the ``query``.

        Nothing is repeated, and nothing from the session's first briefing: if all results are in that, the
        answer points to it. Empty if nothing is found.
        Raises StoreUnavailable and SearchUnavailable.
        """
        policy, session, injection = request.incoming.policy, request.session.key, request.history.injection
        if (home := request.home) is None:
            return ""
        copies, language = await self.scopes.of_home(home), language_of(query)
        own, *above = [SearchedScope(*each, policy) for each in zip(home.scopes, copies, strict=True)]
        found = await self.search([own._replace(has_sessions=True), *above], query, other_than=session)
        known = "" if injection is None else injection.memory
        new = [(place, line) for place, line in found.said.items() if line.text not in known]
        said = dict(new[:_LINES])
        known = "\n".join([known, *(line.text for line in said.values())])
        items = [item for _, item in found.items if item.text not in known][:_RECALLED]
        if not (said or items):
            return IN_THE_NOTE if found.said or found.items else ""
        briefing = await asyncio.to_thread(recall_briefing, said, items, room, language, self.counter.count)
        self.background.run(self._use(home, briefing, session, "recalled"))
        return briefing.text

    async def search(
        self, memories: Sequence[SearchedScope], query: str, *, other_than: SessionKey | None = None
    ) -> SearchResult:
        """Search these memories and their newest sessions, except the session ``other_than``.

        Lines of sessions are searched and returned with their neighbours, by their places. Raises
        StoreUnavailable and SearchUnavailable.
        """
        items = await self._items([each.copy for each in memories], memories[0].scope, query)
        store, sessions = self.scopes.store, list[tuple[float, SessionKey, SearchedScope]]()
        for each in memories[:_SEARCHED]:
            with suppress(UnreadableRecord):  # its sessions alone are not searched
                threads = await store.threads(each.scope, _SEARCHED if each.has_sessions else 0)
                known = threads.items()
                sessions += [(thread.updated, key, each) for key, thread in known if key != other_than]
        lines, windows = list[Utterance](), list[range]()
        newest = sorted(sessions, key=lambda one: -one[0])[:_SEARCHED]
        living = await self.sources.living(key for _, key, _ in newest)
        for updated, key, each in newest:
            if key not in living:
                continue
            first = len(lines)
            tags = each.copy.tags(each.scope)
            lines += await self.sources.utterances_of(key, updated, each.policy, tags)
            places = range(first, len(lines))
            windows += [range(max(place - 1, first), min(place + 2, len(lines))) for place in places]
        texts = ["\n".join(str(lines[place]) for place in window) for window in windows]
        passages = [
            Passage(hashlib.sha256(text.encode(errors="surrogatepass")).digest(), partial(str, text))
            for text in texts
        ]
        name = f"said {memories[0].scope.tag} {len(memories)}"
        hits = await self.found_by.search(name, passages, query, _RANKED)
        said = {place: lines[place] for hit in hits for place in windows[hit]}
        return SearchResult([(memories[number].scope, item) for number, item in items], said)

    async def _items(
        self, copies: Sequence[CachedScope], shelf: Scope, query: str
    ) -> Sequence[tuple[int, Item]]:
        """Return the items that match the query best, each with the index of its copy, the best first.

        They are ranked together with their neighbours, since these share more words with a question.
        """
        windows = [(number, window) for number, copy in enumerate(copies) for window in copy.windows]
        passages = [passage for copy in copies for passage in copy.passages]
        name = f"memory {shelf.tag} {len(copies)}"
        hits = await self.found_by.search(name, passages, query, _FITTING)
        found = [(windows[hit][0], item) for hit in hits for item in windows[hit][1]]
        if hits:  # neighbours may rank alike: within the best window, sort by each item's own words
            asked, best = words_of(query), len(windows[hits[0]][1])
            found[:best] = sorted(found[:best], key=lambda one: -len(asked & words_of(one[1].text)))
        return [*dict.fromkeys(found)][:_FITTING]

    async def _use(self, home: MemoryHome, briefing: Briefing, session: SessionKey, how: str) -> None:
        """Count a use of the items told to a session or recalled in it, once a session."""
        items, digest = {item.id for item in briefing.items}, digest_of(session)

        def decide(copy: CachedScope) -> Changes | None:
            now = self.clock.now()
            return copy.changes(items, lambda item: used(item, digest, now, how))

        for scope in home.scopes if items else ():
            try:
                await self.scopes.change(scope, decide)
            except StoreUnavailable as error:
                log_warning("a use of what is remembered could not be written", code=error.code)


def digest_of(session: SessionKey) -> bytes:
    """The digest by which an item records that a session has used it."""
    return hashlib.sha256(f"{session.tag}\0{session.sid}".encode()).digest()[:8]
