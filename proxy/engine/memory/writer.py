"""Write the memory of a thread, a channel or a workspace with a model, one worker at a time.

A thread's run reads what was said since the last run, and writes items and the thread's texts. A channel's
run (a person's likewise) merges what these have read of all its threads, a workspace's run the texts of its
channels. How far each has come is told by chain hashes, since clocks of workers differ and turns may be late.
If a call for a text fails, that is logged, the old text stays, and the run goes on. A run writes nothing if
something of its scope was forgotten meanwhile, of which it may tell; the next run reads the same again.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.memory.items import VerifiedItem
from proxy.core.memory.merging import ItemIndex, Merging
from proxy.core.memory.records import Item, Scope, ScopeKind, Texts, Thread, Trust
from proxy.core.memory.texts import TextRequest, lines_of_text
from proxy.core.memory.utterances import Utterance, newest
from proxy.core.policy.policy import Policy
from proxy.engine.background import Lease
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory.conversations import Conversation, Conversations, branches_since
from proxy.engine.memory.model import MemoryModel, ModelAccess, logged_failure, pieces_of
from proxy.engine.memory.reader import digest_of
from proxy.engine.memory.scope_cache import CachedScope, ScopeCache
from proxy.ports import NAMED, Changes, Clock, MemoryStore, SessionKey, TokenCounter, UnreadableRecord

Unmerged = Mapping[str, tuple[bytes, bytes]]
""":attr:`About.unmerged`."""
LONG, SHORT = True, False
"""Names for the values of :attr:`TextRequest.is_long`."""
_MOST_PIECES = 8
"""Most calls for items in one run: of a long unread conversation only the newest messages are read."""
_BESIDE, _TELLING = 20, 12
"""Most other sessions, the newest, that a side request is compared with; and the fewest characters of a
message that it repeats."""
_MOST_THREADS = 200
"""Most threads that one run of a channel reads: those that were read last."""


@asynccontextmanager
async def claimed(store: MemoryStore, scope: Scope, work: str, done_for: float = 0.0) -> AsyncGenerator[bool]:
    """Claim ``work`` in a scope; yields whether this worker got it, and holds it until the context ends.

    With ``done_for`` nobody is to do it again for so many seconds then. If it fails, or the worker dies,
    others may. Raises StoreUnavailable.
    """
    claim = partial(store.claim_work, scope, work, longest=done_for)
    lease = Lease(claim, partial(store.release_work, scope, work))
    is_ours = await lease.take()
    try:
        yield is_ours
        if done_for:
            await lease.hold(done_for)
    finally:
        await lease.give_up()


class _Found(NamedTuple):
    """The verified items of one piece, and the known items that the model was shown beside it."""

    items: Sequence[VerifiedItem]
    shown: Sequence[Item]


class _Reading(NamedTuple):
    """What one run has read of a thread."""

    session: SessionKey
    said: Conversation
    before: Thread
    """The scope's record of the thread, as it was."""
    after: Thread
    found: Sequence[_Found]


@dataclass(frozen=True)
class MemoryWriter:
    """Writes memories. Every method raises StoreUnavailable."""

    scopes: ScopeCache
    sources: Conversations
    questions: MemoryModel
    counter: TokenCounter
    clock: Clock

    # --- a thread ---

    async def thread(self, home: MemoryHome, session: SessionKey, access: ModelAccess) -> bool | None:
        """Read what was said in a thread since the last run; return whether something new was written.

        None if it has to be read again: another process reads it, or something was forgotten meanwhile.
        Raises FAILURES where the model gives no items; then the thread still counts as unread.
        """
        async with claimed(self.scopes.store, home.scope, f"thread {session.tag} {session.sid}") as is_ours:
            if not is_ours:
                return None
            copies = await self.scopes.of_home(home)  # first of all, to notice what is forgotten meanwhile
            known = await self.scopes.store.thread(home.scope, session)
            if copies[0].readable_about is None or known is None:  # it takes in nothing that a model reads
                return False
            tags, unmerged = copies[0].tags(home.scope), branches_since(known.texts.tip, known.tip)
            said = await self.sources.of(session, access.policy, tags, unmerged)
            if said is None:
                return False
            known = await self._under_its_former_name(home.scope, known, said)
            tip = said.tip(known.tip)
            if tip == known.tip == known.texts.tip:
                return False
            if await self._is_about_another(home.scope, tags, session, said, access.policy):
                await self.scopes.change(home.scope, lambda _: Changes(threads={session: None}))
                return False
            index = await asyncio.to_thread(ItemIndex, copies[0].items.values())
            found = list[_Found]()
            for lines in pieces_of(said.between(known.tip, tip), self.counter, _MOST_PIECES):
                shown = await asyncio.to_thread(index.near, " ".join(line.text for line in lines))
                found.append(_Found(await self.questions.items(access, lines, shown), shown))
            kind, before, background = ScopeKind.THREAD, known.texts, _background(copies[::-1])
            of_new = said.between(before.tip, tip, 0.0 if before.tip else before.since)
            of_new, of_all = newest(of_new, self.counter.count), newest(said.lines, self.counter.count)
            long = await self._text(access, TextRequest(kind, LONG, of_new, before.long, background))
            short = await self._text(access, TextRequest(kind, SHORT, of_all, before.short, background))
            texts = self._after(before, long, short)
            if long is not None:  # else the next run merges these lines again
                texts = replace(texts, tip=tip, read_up_to=max(known.updated, said.session.updated))
            thread = replace(known, texts=texts, tip=tip, exchanges=said.exchanges)
            reading = _Reading(session, said, known, thread, found)
            return await self._write_thread(home, copies[0], reading, access) or None

    async def _under_its_former_name(self, scope: Scope, known: Thread, said: Conversation) -> Thread:
        """Return a thread's record, with how far it was read under its session's name of an old secret."""
        for former in reversed(said.session.former) if not known.tip else ():
            before = await self.scopes.store.thread(scope, SessionKey.of_id(former))
            if before is not None:
                return replace(before, updated=known.updated)
        return known

    async def _is_about_another(
        self, scope: Scope, tags: frozenset[str], session: SessionKey, said: Conversation, policy: Policy
    ) -> bool:
        """Whether a session without a name, of one turn, repeats what a person said in another session.

        Agents send such requests to get a title or follow-up questions for a conversation.
        """
        if session.sid == NAMED or said.exchanges > 1:
            return False
        own = [line.text for line in said.lines if line.trust is Trust.USER]
        for other, thread in (await self.scopes.store.threads(scope, _BESIDE)).items():
            if other != session:
                lines = await self.sources.utterances_of(other, thread.updated, policy, tags)
                theirs = (line.text for line in lines if line.trust is Trust.USER)
                if any(text in each for text in theirs if len(text) >= _TELLING for each in own):
                    return True
        return False

    async def _write_thread(
        self, home: MemoryHome, before: CachedScope, reading: _Reading, access: ModelAccess
    ) -> bool:
        """Write what was read of a thread; return whether nothing was forgotten since ``before``."""
        session, said, known, thread, found = reading
        name, now = session.id_for(home.tenant), self.clock.now()

        def decide(copy: CachedScope) -> Changes | None:
            about = copy.about_unless_forgotten(before)
            if about is None:
                return None
            merging = Merging(ItemIndex(copy.items.values()), name, digest_of(session), now)
            for each in found:
                merging.merge(each.items, each.shown)
            # A fork's lines before the fork are those of the session that it was made from.
            unmerged = dict(about.unmerged)
            is_merged = copy.texts.by_time is not None  # else nothing is yet, but by time
            begun = (known.tip if is_merged else b"") or said.session.forked_at
            for each in (name, *reversed(said.session.former)):  # it was read under these names
                begun, _ = unmerged.pop(each, (begun, b""))
            unmerged[name] = begun, thread.tip
            about = replace(
                about,
                policy=access.policy.name,
                model=said.session.model,
                runs=about.runs + 1,
                unmerged=dict([*unmerged.items()][-_MOST_THREADS:]),
            )
            return Changes(about=about, items=merging.items, events=merging.events, threads={session: thread})

        after = await self.scopes.change(home.scope, decide)
        return after.about_unless_forgotten(before) is not None

    # --- a channel, a person, or a workspace with threads of its own ---

    async def channel(self, home: MemoryHome, access: ModelAccess) -> None:
        """Write the texts of a home from what was read of its threads since the last time."""
        scope = home.scope
        async with claimed(self.scopes.store, scope, "channel") as is_ours:
            if not is_ours or scope.kind is ScopeKind.THREAD:
                return
            copy = await self.scopes.remembered(scope)
            above = [await self.scopes.remembered(each) for each in home.scopes[1:]]
            lines, merged = await self._messages(home, copy, access)
            if not merged:  # what there is waits until it can be read
                return
            background = _background(above)
            before, long = copy.texts, None
            short = await self._text(access, TextRequest(scope.kind, SHORT, lines, before.short, background))
            if short is not None:
                source = lines_of_text(short)
                wanted = TextRequest(scope.kind, LONG, source, before.long, background, of_texts=True)
                long = await self._text(access, wanted)
            texts = self._after(before, long, short)
            if long is None:
                await self._write_texts(scope, copy, texts, {}, is_due=True)
                return  # the next run merges these lines again
            read_up_to = max([before.read_up_to, *(line.at for line in lines)])
            texts = replace(texts, read_up_to=read_up_to, by_time=before.since)
            await self._write_texts(scope, copy, texts, merged)

    async def _messages(
        self, home: MemoryHome, copy: CachedScope, access: ModelAccess
    ) -> tuple[Sequence[Utterance], Unmerged]:
        """Return the newest lines that a home's texts have not taken in, and what these are of its threads.

        They are what the threads' own runs have read.
        """
        unmerged = dict(copy.about.unmerged) if copy.about else {}
        if copy.texts.by_time is None:  # an earlier release may have read threads, and noted none of them
            threads = await self.scopes.store.threads(home.scope, _MOST_THREADS - len(unmerged))
            for session, thread in threads.items():
                if thread.updated > copy.texts.since:
                    unmerged.setdefault(session.id_for(home.tenant), (b"", thread.tip))
        lines, merged = list[Utterance](), dict[str, tuple[bytes, bytes]]()
        tags = copy.tags(home.scope)
        for name, (before, tip) in unmerged.items():
            with suppress(UnreadableRecord):  # it waits, and keeps nothing of the others from the texts
                new = branches_since(before, tip)
                said = await self.sources.of(SessionKey.of_id(name), access.policy, tags, new)
                lines += said.between(before, tip, copy.texts.since) if said else []
                merged[name] = before, tip
        lines.sort(key=lambda line: line.at)
        return newest(lines, self.counter.count), merged

    # --- a workspace ---

    async def workspace(self, scope: Scope, access: ModelAccess) -> None:
        """Write the texts of a workspace from those of its channels."""
        async with claimed(self.scopes.store, scope, "workspace") as is_ours:
            if not is_ours:
                return
            copy = await self.scopes.remembered(scope)
            if copy.about is None:  # forgetting marks this record, so it is made before the texts are read
                below = await self.below(scope)
                about = next((each.about for each in below if each.about and each.texts.updated), None)
                if about is None:
                    return
                name = about.workspace_name
                own = replace(about, name=name, workspace="", workspace_name="", former="", unmerged={})
                made = Changes(about=own)
                copy = await self.scopes.change(scope, lambda copy: None if copy.about else made)
            channels = [each.texts for each in await self.below(scope)]
            said = sorted(text for each in channels for text in (each.long, each.short) if text)
            tip = hashlib.sha256("\0".join(said).encode(errors="surrogatepass")).digest()
            if not said or tip == copy.texts.tip:
                return
            long_lines = [line for each in channels for line in lines_of_text(each.long)]
            short_lines = [line for each in channels for line in lines_of_text(each.short)]
            wanted = (
                TextRequest(scope.kind, LONG, long_lines, copy.texts.long, of_texts=True),
                TextRequest(scope.kind, SHORT, short_lines, copy.texts.short, of_texts=True),
            )
            long, short = [await self._text(access, each) for each in wanted]
            texts = self._after(copy.texts, long, short)
            if long is not None:  # else the next run merges them again
                texts = replace(texts, tip=tip)
            await self._write_texts(scope, copy, texts, {})

    async def below(self, workspace: Scope) -> list[CachedScope]:
        """Return the channels of a workspace; one that cannot be read keeps nothing of the others from it."""
        found = list[CachedScope]()
        for each in await self.scopes.store.channels(workspace):
            with suppress(UnreadableRecord):
                found.append(await self.scopes.remembered(each))
        return found

    def _after(self, before: Texts, long: str | None, short: str | None) -> Texts:
        """Return a scope's texts with the new ones put in; where one is None, the old one stays."""
        return replace(
            before,
            long=before.long if long is None else long,
            short=before.short if short is None else short,
            updated=before.updated if long is None else self.clock.now(),
        )

    async def _text(self, access: ModelAccess, wanted: TextRequest) -> str | None:
        """Ask for a text; None if the model does not write it."""
        term = "long" if wanted.is_long else "short"
        with logged_failure("a text of a memory was not written", scope=wanted.scope, term=term):
            return await self.questions.text(access, wanted)
        return None

    async def _write_texts(
        self, scope: Scope, before: CachedScope, texts: Texts, merged: Unmerged, *, is_due: bool = False
    ) -> None:
        """Write the texts of a scope unless they changed, or something of it was forgotten, since ``before``.

        ``merged`` is what they take in of its threads. With ``is_due`` the count of runs stays, so that they
        are written again after a thread's next run.
        """

        def decide(copy: CachedScope) -> Changes | None:
            about = copy.about_unless_forgotten(before)
            if about is None or copy.texts != before.texts:  # the latter where a lease was lost meanwhile
                return None
            left = dict[str, tuple[bytes, bytes]]()
            for name, (begun, tip) in about.unmerged.items():  # a thread may have been read again meanwhile
                up_to = merged[name][1] if name in merged else begun
                if up_to != tip:
                    left[name] = up_to, tip
            runs = about.runs if is_due else len(left)
            return Changes(texts=texts, about=replace(about, runs=runs, unmerged=left))

        await self.scopes.change(scope, decide)


def _background(copies: Sequence[CachedScope]) -> Sequence[str]:
    """The long-term and short-term texts of these scopes, in their order."""
    return [text for copy in copies for text in (copy.texts.long, copy.texts.short)]
