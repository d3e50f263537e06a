"""The daily run: maintain every scope, read threads left unread, write texts of channels and workspaces.

Each scope is maintained once a day, by the first worker that takes its lease in the store: at the time of
day that its policy says, else after the next start. What a worker was at when it died, the next one that
looks does instead. Calls to a model use the operator's key; without one they
wait for the tenant's next request in that scope, whose credentials are held in memory only. A scope that
fails is logged, and the run goes on.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self, TypeVar

import msgspec

from proxy.cache import Lru
from proxy.core.memory.lifecycle import ArchiveCandidate, archive_candidates, archived, expired, rescored
from proxy.core.memory.records import About, Archived, Event, Scope, ScopeKind, day_of
from proxy.core.policy.policy import Policy, PolicySet
from proxy.core.policy.sections import Memory
from proxy.engine.background import Background
from proxy.engine.foreground import Credentials
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory.model import ModelAccess, logged_failure
from proxy.engine.memory.scope_cache import CachedScope
from proxy.engine.memory.writer import MemoryWriter, claimed
from proxy.engine.models.asking import CallOptions
from proxy.errors import StoreUnavailable
from proxy.ports import Changes, UnreadableRecord
from proxy.ports.memory_store import THREADS
from proxy.telemetry import log_event, log_fault, log_warning

_MOST = 100_000
"""Most scopes of one run, those that were changed last."""
_THREADS = 2_000
_KEPT = 2 * 86_400.0
"""Seconds for which it is known that what was due on one day is done."""
T = TypeVar("T")


class Maintained(msgspec.Struct):
    """What a run has done so far."""

    scopes: int = 0
    """Scopes that the run has finished."""
    of: int = 0
    """Scopes of the run in all."""
    rescored: int = 0
    archived: int = 0
    deleted: int = 0
    """Records deleted from the archive."""
    threads: int = 0
    """Threads that were read."""
    failed: int = 0
    """Scopes that failed."""

    def add(self, other: Self) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


# --- one scope ---

_STEP = 100
"""Most items that one write has, since the store serves nobody else meanwhile."""
_AT_A_TIME = 8
"""Most items that are compressed at the same time."""


@dataclass(frozen=True)
class ScopeMaintenance:
    """Maintains one scope.

    Every method raises StoreUnavailable, and returns the number of items or threads it was about.
    """

    writer: MemoryWriter
    scope: Scope
    rules: Memory

    async def rescore(self) -> int:
        """Replace every score by its present value."""
        rescore = partial(rescored, now=self.writer.clock.now(), low=self.rules.low)
        copy = await self.writer.scopes.remembered(self.scope)
        fading = [item.id for item in copy.items.values() if rescore(item)[1]]
        return await self._change(fading, lambda names, copy: copy.changes(names, rescore))

    async def put_away(self, access: ModelAccess | None) -> int:
        """Compress and archive items whose scores are low, and those beyond the scope's capacity.

        Items that need a model for that stay if there is no ``access``, or if the call fails.
        """
        copy = await self.writer.scopes.remembered(self.scope)
        found = archive_candidates(copy.items.values(), self.rules)
        if access is None:
            found = [each for each in found if not each.needs_model]
        room = asyncio.Semaphore(_AT_A_TIME)
        compressed = await asyncio.gather(*(self._compressed(each, room, access) for each in found))
        ready = [(each, text) for each, text in zip(found, compressed, strict=True) if text is not None]

        def decide(some: Sequence[tuple[ArchiveCandidate, str]], copy: CachedScope) -> Changes | None:
            now, records, events = self.writer.clock.now(), dict[str, Archived](), list[Event]()
            for each, text in some:
                if copy.items.get(each.item.id) == each.item:  # else it was used meanwhile, or is gone
                    record, logged = archived(each, self.scope.tag, now, self.rules, text or None)
                    records[record.id] = record
                    events += logged
            gone = {record.original_memory_id: None for record in records.values()}
            return Changes(items=gone, archive=records, events=events) if records else None

        return await self._change(ready, decide)

    async def _compressed(
        self, each: ArchiveCandidate, room: asyncio.Semaphore, access: ModelAccess | None
    ) -> str | None:
        """Return the text that replaces an item; empty if it is archived whole, None if the call failed."""
        if access is None or not each.needs_model:
            return ""
        with logged_failure("an item was not compressed"):
            async with room:
                return await self.writer.questions.compression(access, each.content)
        return None

    async def forget_ended(self, life: float) -> int:
        """Forget the threads of sessions that have ended: those without a turn for ``life`` seconds."""
        scopes, ended = self.writer.scopes, self.writer.clock.now() - life
        threads = await scopes.store.threads(self.scope, THREADS)
        names = [session for session, thread in threads.items() if thread.updated < ended]
        if names:
            await scopes.change(self.scope, lambda _: Changes(threads=dict.fromkeys(names)))
        return len(names)

    async def delete_expired(self) -> int:
        """Delete archived records whose retention is over, and the weakest beyond the capacity."""
        archive = await self.writer.scopes.store.archive(self.scope)
        gone = [*zip(*expired(archive, self.writer.clock.now(), self.rules.capacity), strict=True)]

        def decide(some: Sequence[tuple[str, Event]], _: CachedScope) -> Changes:
            return Changes(archive={name: None for name, _ in some}, events=[event for _, event in some])

        return await self._change(gone, decide)

    async def _change(
        self, every: Sequence[T], decide: Callable[[Sequence[T], CachedScope], Changes | None]
    ) -> int:
        """Change the scope for each of ``every``, some at a time; return how many these are."""
        for first in range(0, len(every), _STEP):
            some = partial(decide, every[first : first + _STEP])
            await self.writer.scopes.change(self.scope, some)
        return len(every)


# --- all of them, once a day ---


@dataclass(frozen=True)
class Maintenance:
    """Maintains all memories. A thread may be read after ``rest`` seconds without a turn."""

    writer: MemoryWriter
    policies: Callable[[], PolicySet]
    background: Background
    met_on: Lru[str, str]
    """By the tag of a scope, the last day on which a request in it was used for the scope's model calls."""
    rest: float
    credentials: Credentials
    """The operator's credentials; without any, calls to a model wait for a request."""
    look: float = 30.0
    """Seconds between two checks of the clock."""

    # --- when ---

    async def every_day(self) -> None:
        """Run at the time of day that each policy says (UTC), until this is cancelled.

        What was due before the start is done after it, since nobody may have run at that moment.
        """
        done = dict[str, float]()
        while True:
            await asyncio.sleep(self.look)
            policies = self.policies()
            memories = [each.memory for each in (policies.default, *policies.by_name.values())]
            for time in sorted({each.maintain_at for each in memories if each.enabled}):
                last = last_at(time, self.writer.clock.now())
                if last > done.get(time, 0.0) and await self._run_due(time, last):
                    done[time] = last

    async def _run_due(self, time: str, last: float) -> bool:
        """Run for the policies with this time of day; return False if the store is away, to try it again."""
        try:
            await self.run(lambda policy: policy.memory.maintain_at == time, f"{day_of(last)} {time}")
        except StoreUnavailable as error:
            log_warning("memories were not maintained", code=error.code)
            return False
        except Exception as error:  # noqa: BLE001 - tomorrow there is another
            log_fault("memories were not maintained", error)
        return True

    def met(self, home: MemoryHome, access: ModelAccess) -> None:
        """After a request in a scope: start the model calls that waited for credentials, once a day."""
        last = last_at(access.policy.memory.maintain_at, self.writer.clock.now())
        day = day_of(last)
        if self.credentials or self.met_on.get(home.scope.tag) == day:
            return
        self.met_on.put(home.scope.tag, day)

        async def make_up() -> None:
            with logged_failure("a memory was not maintained"):
                copy = await self.writer.scopes.remembered(home.scope)
                if not copy.version or copy.about is None:
                    return
                store, work = self.writer.scopes.store, f"made up {day}"
                async with claimed(store, home.scope, work, _KEPT) as is_ours:
                    if is_ours:
                        await self._maintain(home.scope, copy.about, access, before=last)
                if (workspace := home.workspace) is not None:
                    async with claimed(store, workspace, f"merged {day}", _KEPT) as is_ours:
                        if is_ours:
                            await self.writer.workspace(workspace, access)

        self.background.run(make_up(), is_needed=False)

    # --- what ---

    async def listed(self) -> Sequence[Scope]:
        """Return the scopes of a run. Raises StoreUnavailable."""
        return await self.writer.scopes.store.scopes(_MOST)

    async def run(
        self,
        is_meant: Callable[[Policy], bool] = lambda _: True,
        due: str = "",
        on_progress: Callable[[Maintained], None] = lambda _: None,
        scopes: Sequence[Scope] | None = None,
    ) -> Maintained:
        """Maintain the scopes of the policies for which ``is_meant`` is true, and write workspaces' texts.

        ``due`` names the moment at which the run was due: scopes that a worker has claimed for it are
        skipped unread, so that each is maintained once. ``scopes`` are the listed ones if the caller has
        them. Raises StoreUnavailable.
        """
        scopes = await self.listed() if scopes is None else scopes
        store, done = self.writer.scopes.store, Maintained(of=len(scopes))
        workspaces, unreadable = dict[str, Scope](), set[Scope]()
        on_progress(done)
        for scope in scopes:
            try:
                if scope.kind is ScopeKind.CHANNEL:  # a skipped one, too: who claimed it may have died since
                    tag = await store.workspace_of(scope)
                    workspaces |= {tag: Scope(ScopeKind.WORKSPACE, tag)} if tag else {}
                once = claimed(store, scope, f"daily {due}", _KEPT) if due else nullcontext(enter_result=True)
                async with once as is_ours:
                    if not is_ours:
                        continue
                    done.add(await self._safely(scope, is_meant))
            except UnreadableRecord as error:
                log_warning("a memory was not maintained", why=error.message, scope=scope.tag)
                done.failed += 1
                unreadable.add(scope)
            done.scopes += 1
            on_progress(done)
        for scope in workspaces.values():
            is_written = await self._workspace(scope, is_meant)
            done.failed += not is_written and scope not in unreadable
        if done.scopes or not due:
            log_event("memories were maintained", **msgspec.structs.asdict(done))
        return done

    async def _safely(self, scope: Scope, is_meant: Callable[[Policy], bool]) -> Maintained:
        """Maintain a scope if its policy is meant. Raises StoreUnavailable if the scope cannot be read."""
        about = (await self.writer.scopes.remembered(scope)).readable_about
        if about is None:
            await self.writer.scopes.store.unlist(scope)
            return Maintained()
        if not is_meant(self.policies().named_or_default(about.policy)):
            return Maintained()
        try:
            with logged_failure("a memory was not maintained", scope=scope.tag):
                async with claimed(self.writer.scopes.store, scope, "maintain") as is_ours:
                    access = self._operator(about)
                    return await self._maintain(scope, about, access) if is_ours else Maintained()
        except Exception as error:  # noqa: BLE001 - one scope's fault is not the others'
            log_fault("a memory was not maintained", error)
        return Maintained(failed=1)

    async def _maintain(
        self, scope: Scope, about: About, access: ModelAccess | None, before: float | None = None
    ) -> Maintained:
        """Maintain one scope; read threads without a turn since ``before``, and for the seconds of rest."""
        policy, done = self.policies().named_or_default(about.policy), Maintained()
        upkeep = ScopeMaintenance(self.writer, scope, policy.memory)
        done.rescored = await upkeep.rescore()
        await upkeep.forget_ended(policy.store.ttl)
        done.deleted = await upkeep.delete_expired()  # before a model is asked, which may take long or fail
        if access is not None and policy.memory.enabled:
            done.threads = await self._read(scope, about, access, before or self.writer.clock.now())
        done.archived = await upkeep.put_away(access)  # last: what was read may have filled the scope
        done.deleted += await upkeep.delete_expired()  # and that the archive
        return done

    async def _read(self, scope: Scope, about: About, access: ModelAccess, before: float) -> int:
        """Read the threads left unread, and write the texts that are due then; return how many were read."""
        count, workspace = 0, Scope(ScopeKind.WORKSPACE, about.workspace) if about.workspace else None
        home = MemoryHome(about.tenant, scope, about.name, workspace=workspace)
        rested = min(before, self.writer.clock.now() - self.rest)
        threads = [*(await self.writer.scopes.store.threads(scope, _THREADS)).items()]
        for session, thread in reversed(threads):  # those that are read last are merged, if too many
            if thread.texts.read_up_to < thread.updated <= rested:
                with logged_failure("a thread was not read to be remembered"):
                    count += await self.writer.thread(home, session, access) or 0
        now = (await self.writer.scopes.remembered(scope)).about
        if now is not None and now.runs:
            await self.writer.channel(home, access)
        return count

    async def _workspace(self, scope: Scope, is_meant: Callable[[Policy], bool]) -> bool:
        """Write a workspace's texts if a channel's policy is meant; return False if that fails."""
        with logged_failure("a workspace was not maintained", scope=scope.tag):
            abouts = [each.about for each in await self.writer.below(scope) if each.about is not None]
            meant = (each for each in abouts if is_meant(self.policies().named_or_default(each.policy)))
            access = next(map(self._operator, meant), None)
            if access is not None:
                await self.writer.workspace(scope, access)
            return True
        return False

    def _operator(self, about: About) -> ModelAccess | None:
        policy = self.policies().named_or_default(about.policy)
        if not self.credentials or not policy.memory.enabled:
            return None
        return ModelAccess(CallOptions.for_summaries(policy.summary, about.model, self.credentials), policy)


def last_at(time: str, now: float) -> float:
    """When it last was this time of day (``HH:MM``, UTC), in seconds since 1970."""
    hour, minute = time.split(":")
    moment = datetime.fromtimestamp(now, UTC)
    at = moment.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    return (at if at <= moment else at - timedelta(days=1)).timestamp()
