"""The daily run: every scope kept, threads read that were left, and the texts of channels and workspaces.

It is made once a day for each scope, whoever comes first: a lease in the store says so. What needs a model is
asked for with the operator's key; without one it waits for the tenant's next request in that scope, whose
credentials are held in memory only. A scope that fails is logged, and the run goes on.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Self

import msgspec

from proxy.cache import Lru
from proxy.core.memory.records import About, Scope, ScopeKind, day_of
from proxy.core.policy.policy import Policy, PolicySet
from proxy.engine.background import Background
from proxy.engine.intake.homes import Home
from proxy.engine.memory.asking import FAILURES, Reader, log_failure
from proxy.engine.memory.runs import Runs, claimed
from proxy.engine.memory.upkeep import Upkeep
from proxy.engine.models.asking import Caller
from proxy.errors import InvalidPolicy, StoreUnavailable
from proxy.ports import SessionKey
from proxy.telemetry import log_event, log_fault, log_warning

_MOST = 100_000
"""Scopes of one run, those that were changed last."""
_THREADS = 2_000
_DAY = 86_400.0
Credentials = Sequence[tuple[bytes, bytes]]


class Maintained(msgspec.Struct):
    """What a run has done so far."""

    scopes: int = 0
    """Of which it is over."""
    of: int = 0
    """Scopes that there are."""
    rescored: int = 0
    archived: int = 0
    deleted: int = 0
    """From the archive."""
    threads: int = 0
    """That were read."""
    failed: int = 0
    """Scopes with a fault."""

    def add(self, other: Self) -> None:
        """Count in what was done of one scope."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class DailyRun:
    """Maintains memories. ``rest`` are seconds without a turn after which a thread may be read."""

    runs: Runs
    policies: Callable[[], PolicySet]
    background: Background
    met_on: Lru[str, str]
    """The day on which a scope last had a request here, by its tag."""
    rest: float
    credentials: Credentials = ()
    """The operator's; without any, model work waits for a request."""
    look: float = 30.0
    """Seconds between two looks at the clock."""

    @cached_property
    def upkeep(self) -> Upkeep:
        """By which each scope is kept."""
        return Upkeep(self.runs.scopes, self.runs.questions, self.runs.clock)

    # --- when ---

    async def every_day(self) -> None:
        """Run at the time of day that each policy says (UTC), until this is cancelled."""
        before = self.runs.clock.now()
        while True:
            await asyncio.sleep(self.look)
            now = self.runs.clock.now()
            times = {policy.memory.maintain_at for policy in self._remembering()}
            if due := [each for each in times if last_at(each, now) > before]:
                try:
                    await self.run(lambda policy: policy.memory.maintain_at in due, day=day_of(now))
                except StoreUnavailable as error:
                    log_warning("memories were not maintained", code=error.code)
                except Exception as error:  # noqa: BLE001 - tomorrow there is another
                    log_fault("memories were not maintained", error)
            before = now

    def _remembering(self) -> Iterator[Policy]:
        policies = self.policies()
        return (each for each in (policies.default, *policies.by_name.values()) if each.memory.enabled)

    def met(self, home: Home, reader: Reader) -> None:
        """A request has come into a scope: what waits for one is done with its credentials, once a day."""
        last = last_at(reader.policy.memory.maintain_at, self.runs.clock.now())
        day = day_of(last)
        if self.credentials or self.met_on.get(home.scope.tag) == day:
            return
        self.met_on.put(home.scope.tag, day)
        self.background.run(self._make_up(home.scope, reader, day, last), is_needed=False)

    async def _make_up(self, scope: Scope, reader: Reader, day: str, since: float) -> None:
        try:
            copy = await self.runs.scopes.remembered(scope)
            is_ours = copy.version and await self._is_first(scope, f"made up {day}")
            if is_ours and copy.about is not None:
                await self._maintain(scope, copy.about, reader, before=since)
        except FAILURES as failure:
            log_failure("a memory was not maintained", failure)

    # --- what ---

    async def run(
        self,
        is_meant: Callable[[Policy], bool] = lambda _: True,
        day: str = "",
        on_progress: Callable[[Maintained], None] = lambda _: None,
    ) -> Maintained:
        """Maintain the scopes of the policies that are meant; those that nobody did that ``day``, if given.

        Raises StoreUnavailable.
        """
        done, workspaces = Maintained(), dict[str, Scope]()
        scopes = await self.runs.scopes.store.scopes(_MOST)
        done.of = len(scopes)
        for scope in scopes:
            about = (await self.runs.scopes.remembered(scope)).about
            if about is not None and is_meant(self._policy_of(about)):
                if about.workspace:
                    workspaces[about.workspace] = Scope(ScopeKind.WORKSPACE, about.workspace)
                done.add(await self._safely(scope, about, day))
            done.scopes += 1
            on_progress(done)
        for scope in workspaces.values():
            await self._workspace(scope, day)
        log_event("memories were maintained", **msgspec.structs.asdict(done))
        return done

    async def _safely(self, scope: Scope, about: About, day: str) -> Maintained:
        try:
            if day and not await self._is_first(scope, f"daily {day}"):
                return Maintained()
            async with claimed(self.runs.scopes.store, scope, "maintain") as is_ours:
                reader = self._operator(about)
                return await self._maintain(scope, about, reader) if is_ours else Maintained()
        except FAILURES as failure:
            log_failure("a memory was not maintained", failure)
        except Exception as error:  # noqa: BLE001 - one scope's fault is not the others'
            log_fault("a memory was not maintained", error)
        return Maintained(failed=1)

    async def _is_first(self, scope: Scope, work: str) -> bool:
        """Whether nobody else has done this work of a day."""
        return await self.runs.scopes.store.claim_work(scope, work, secrets.token_hex(8), 2 * _DAY)

    async def _maintain(
        self, scope: Scope, about: About, reader: Reader | None, before: float | None = None
    ) -> Maintained:
        """Keep one scope; threads count that had no turn since ``before`` (now, less the rest)."""
        policy = self._policy_of(about)
        rules, ttl = policy.memory, policy.store.ttl if scope.kind is ScopeKind.THREAD else None
        done = Maintained(
            rescored=await self.upkeep.rescore(scope, rules, ttl),
            archived=await self.upkeep.put_away(scope, rules, ttl, reader),
            deleted=await self.upkeep.delete_expired(scope, rules, ttl),
        )
        await self.upkeep.forget_ended(scope, policy.store.ttl, ttl)
        if reader is None or not policy.memory.enabled:
            return done
        home = _home(scope, about, ttl)
        rested = min(before or self.runs.clock.now(), self.runs.clock.now() - self.rest)
        for session, thread in (await self.runs.scopes.store.threads(scope, _THREADS)).items():
            if thread.texts.read_up_to < thread.updated <= rested:
                done.threads += await self._read(home, session, reader)
        now = (await self.runs.scopes.remembered(scope)).about
        if now is not None and now.runs:
            await self.runs.channel(home, reader)
        return done

    async def _read(self, home: Home, session: SessionKey, reader: Reader) -> bool:
        try:
            return await self.runs.thread(home, session, reader)
        except FAILURES as failure:
            log_failure("a thread was not read to be remembered", failure)
            return False

    async def _workspace(self, scope: Scope, day: str) -> None:
        try:
            if day and not await self._is_first(scope, f"workspace {day}"):
                return
            channels = await self.runs.scopes.store.channels(scope)
            abouts = [(await self.runs.scopes.remembered(each)).about for each in channels]
            reader = next((self._operator(each) for each in abouts if each is not None), None)
            if reader is not None:
                await self.runs.workspace(scope, reader)
        except FAILURES as failure:
            log_failure("a workspace was not maintained", failure)

    def _policy_of(self, about: About) -> Policy:
        """The policy under which a scope was last written; the default one, where that is no more."""
        policies = self.policies()
        try:
            return policies.named(about.policy)
        except InvalidPolicy:
            return policies.default

    def _operator(self, about: About) -> Reader | None:
        policy = self._policy_of(about)
        if not self.credentials or not policy.memory.enabled:
            return None
        return Reader(Caller.for_summaries(policy.summary, about.model, self.credentials), policy)


def _home(scope: Scope, about: About, ttl: float | None) -> Home:
    """A scope as the home of its threads."""
    workspace = Scope(ScopeKind.WORKSPACE, about.workspace) if about.workspace else None
    return Home(about.tenant, scope, about.name, workspace=workspace, ttl=ttl)


def last_at(time: str, now: float) -> float:
    """When it was last this time of day (``HH:MM``, UTC), in seconds since 1970."""
    hour, minute = time.split(":")
    moment = datetime.fromtimestamp(now, UTC)
    at = moment.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
    return (at if at <= moment else at - timedelta(days=1)).timestamp()
