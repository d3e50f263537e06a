"""The changes that people make to sessions through the admin API: compact, restore, pin, pause, delete.

Reading sessions is in :mod:`proxy.engine.admin.inspection`. Keeps law 3 (stable): a cut that is made or
undone on request is an epoch like any other, written by compare-and-set, so that every worker forwards the
same from then on. Keeps law 5 (nothing is lost): only deleting a session removes data, and it removes all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.core.budget.budget import Stage
from proxy.core.economics.bill import Bill
from proxy.core.planning.changes import Change, compacted, restored
from proxy.core.planning.draft import Draft
from proxy.core.planning.plan import Epoch, Plan, Verb
from proxy.core.planning.planner import finish
from proxy.core.planning.situation import Situation
from proxy.engine.admin.inspection import Branch, Inspected, Inspection
from proxy.engine.answers.tool_cache import ToolCaches
from proxy.engine.append.turn_queue import TurnQueue
from proxy.engine.planning.epochs import Epochs
from proxy.engine.recording.recorder import Recorder
from proxy.engine.sessions.attachments import MAX_PINS
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.summaries.jobs import Owner, SummaryJobs
from proxy.engine.summaries.pool import GapSummaries
from proxy.errors import InvalidValue, NotFound, NothingToChange, SessionBusy
from proxy.ports import COMPACTOR, Clock, Header, SessionKey, SessionStore

_RACES = 4
"""The most attempts at a change; an attempt fails if somebody else changed the same lane meanwhile."""

Ranges = Sequence[range]
"""Ranges of message numbers, as the transcript numbers them."""
Planning = Callable[[Branch], Awaitable[Plan]]
"""Returns a new plan for the default branch of a session."""


@dataclass(frozen=True)
class Edits:
    """Changes sessions on request. Every method raises NotFound if the session is gone."""

    store: SessionStore
    inspection: Inspection
    recognition: Recognition
    epochs: Epochs
    tool_caches: ToolCaches
    summary_jobs: SummaryJobs
    turn_queue: TurnQueue
    clock: Clock
    recorder: Recorder
    forget_own_scope: Callable[[SessionKey, str], Awaitable[object]]
    """Deletes the memories of a session's own scope; takes its key and its tenant."""
    credentials: Sequence[Header]
    """Headers for the requests for summaries; if empty, no summaries are written on request."""

    async def delete(self, key: SessionKey, tenant: str, former: Sequence[str] = ()) -> None:
        """Delete all that is stored of a session, also where it has had no turn.

        ``former`` are the ids that it had under old secrets: an interrupted move may have left a copy there.
        """
        await self.recorder.forget(key)
        # First, since who asks again after a fault finds no session any more; and again at the end, as memory
        # may have been written meanwhile.
        await self.forget_own_scope(key, tenant)
        for each in former:
            await self.store.delete(SessionKey.of_id(each))
        was_there = await self.store.delete(key)
        self.recognition.forget(key)
        self.epochs.forget(key)
        self.tool_caches.forget(key)
        await self.forget_own_scope(key, tenant)
        if not was_there:
            raise NotFound("There is no such session.")

    async def pause(self, found: Inspected, *, paused: bool) -> Inspected:
        """Make appended turns of the session wait, or let them go on."""
        await self.store.pause(found.key, paused=paused)
        return await self.inspection.read(found.key)

    async def pin(self, found: Inspected, messages: Ranges) -> list[int]:
        """Pin messages: they are cut only when nothing else is left to cut. Return the numbers of all pins.

        Raises InvalidValue for messages that do not exist, and if the session would have too many pins.
        """
        nodes = (await self.inspection.branch(found)).nodes
        before = frozenset(found.session.pins)
        wanted = {nodes[place].hash for place in numbered(messages, len(nodes))} - before
        if len(before) + len(wanted) > MAX_PINS:
            raise InvalidValue(f"A session has at most {MAX_PINS} pins.", param="messages")
        if wanted:
            ttl = self.inspection.policy_of(found.session).store.ttl
            await self.store.pin(found.key, sorted(wanted), ttl)
            self.recognition.forget(found.key)
        pinned = before | wanted
        return [place for place, node in enumerate(nodes) if node.hash in pinned]

    async def restore(
        self, found: Inspected, messages: Ranges | None = None, epoch: int | None = None
    ) -> Epoch:
        """Undo cuts: those of ``messages``, those that the epoch of number ``epoch`` made, or all.

        Raises NothingToChange if none of it is cut, InvalidValue for messages that do not exist, and NotFound
        for an epoch that is not in force.
        """
        return await self._change(found, Verb.RESTORE, partial(_restored, messages, epoch))

    async def compact(self, found: Inspected, messages: Ranges | None = None) -> tuple[Epoch, str]:
        """Cut these messages, or all that may be cut; other turns of the session wait meanwhile.

        Returns the epoch, and in words what becomes of its summary. Raises NothingToChange if nothing would
        become smaller, SessionBusy if others hold the session for longer than the policy lets a turn wait,
        and InvalidValue for messages that do not exist.
        """
        summary = ""

        async def plan(branch: Branch) -> Plan:
            nonlocal summary
            rules = branch.situation.policy.summary
            owner = branch.found.owner(rules, self.credentials)
            draft, summaries = await self._compacted(branch, messages, owner)
            is_begun = bool(self.credentials) and summaries.start_missing()
            if is_begun:
                await summaries.wait(rules.wait)
            new = await asyncio.to_thread(finish, draft, summaries.texts())
            summary = self._summary(draft.situation.under(new), owner, is_begun=is_begun)
            if new == branch.situation.plan:
                raise NothingToChange(f"There is nothing left to cut. The summary of what was: {summary}.")
            return new

        rules = self.inspection.policy_of(found.session).append
        async with self.turn_queue.place(found.key, COMPACTOR, wait=rules.wait, queue=rules.queue):
            return await self._change(found, Verb.COMPACT, plan), summary

    async def preview(
        self, found: Inspected, asked: Verb, messages: Ranges | None = None, epoch: int | None = None
    ) -> tuple[Branch, Epoch]:
        """Return the branch as it is now, and the epoch that compacting or restoring it would write.

        A compaction uses the summaries that exist.

        Raises the same errors as :meth:`compact` and :meth:`restore`.
        """

        async def cut(branch: Branch) -> Plan:
            owner = branch.found.owner(branch.situation.policy.summary)
            draft, summaries = await self._compacted(branch, messages, owner)
            return await asyncio.to_thread(finish, draft, summaries.texts())

        plan = partial(_restored, messages, epoch) if asked is Verb.RESTORE else cut
        now, change = await self._decided(found, asked, plan)
        return now, await asyncio.to_thread(change.epoch, self.clock.now())

    async def _compacted(
        self, branch: Branch, messages: Ranges | None, owner: Owner
    ) -> tuple[Draft, GapSummaries]:
        """Return what a compaction of these messages (None: all that may be) cuts, and its summaries."""
        wanted = None if messages is None else numbered(messages, len(branch.nodes))
        informed = await self.summary_jobs.informed(branch.situation, owner)
        draft = await asyncio.to_thread(compacted, informed, wanted)
        return draft, await self.summary_jobs.wanted(draft, owner)

    def _summary(self, situation: Situation, owner: Owner, *, is_begun: bool) -> str:
        """Describe the state of the summary. ``is_begun``: this compaction has requested it from a model."""
        if not situation.policy.summary.enabled:
            return "none, as the policy says"
        whys = [each.why for each in self.summary_jobs.missing(situation, owner)]
        if "not yet" in whys:
            by_whom = "is being written with the operator's key"
            return by_whom if self.credentials else "comes with the tenant's next request"
        if whys:
            return whys[0]
        if is_begun:
            return "written with the operator's key"
        return "written before" if situation.plan.anchors else "none, nothing of it may be told"

    async def _change(self, found: Inspected, asked: Verb, plan: Planning) -> Epoch:
        """Make a plan for the default tip and write it as an epoch; start over if another epoch was first."""
        await self.recorder.wait_written(found.key)
        for _ in range(_RACES):
            now, change = await self._decided(found, asked, plan)
            epoch = await asyncio.to_thread(change.epoch, self.clock.now())
            ttl = change.before.policy.store.ttl
            written = await self.store.begin_epoch(found.key, epoch, len(now.found.epochs), ttl)
            if written and written[0].id == epoch.id:
                self.epochs.tell(found.id, change.before.plan, epoch)
                self.recorder.add_bill(found.session.model, Bill(epochs=1), found.key, ttl)
                return epoch
        raise SessionBusy

    async def _decided(self, found: Inspected, asked: Verb, plan: Planning) -> tuple[Branch, Change]:
        """Return the branch of the default tip as it is now, and its change. Raises NothingToChange."""
        now = await self.inspection.branch(await self.inspection.read(found.key))
        situation = await asyncio.to_thread(lambda: now.situation)
        new = await plan(now)
        if new == situation.plan:
            raise NothingToChange("Nothing of these messages is cut." if asked is Verb.RESTORE else None)
        return now, Change(
            lane=now.found.session.lane,
            head_count=len(now.found.session.head),
            before=situation,
            plan=new,
            stage=Stage(now.stage),
            parent=now.epoch,
            asked=asked,
            # Notes are merged into neighbouring messages if the policy says so, or if they already are.
            alternates=situation.policy.summary.alternate is True
            or (now.epoch is not None and now.epoch.alternates),
        )


async def _restored(messages: Ranges | None, epoch: int | None, branch: Branch) -> Plan:
    """Return a plan without the cuts of ``messages`` or of one epoch; with neither, a plan without cuts.

    An epoch's own cuts are those that no earlier one made. Raises NotFound if it is not in force.
    """
    if epoch is None:
        wanted = None if messages is None else numbered(messages, len(branch.nodes))
    else:
        numbers = [each.number for each in branch.epochs]
        if epoch not in numbers:
            raise NotFound("No epoch of that number is in force.")
        place = numbers.index(epoch)
        before = branch.epochs[place - 1].plan.edited if place else set[int]()
        wanted = frozenset(branch.epochs[place].plan.edited - before)
    return await asyncio.to_thread(restored, branch.situation, wanted)


def numbered(messages: Ranges, count: int) -> frozenset[int]:
    """Return the message numbers in these ranges. Raises InvalidValue if one is not below ``count``."""
    if any(each.stop > count for each in messages) or not count:
        raise InvalidValue(f"The messages are 0 to {count - 1}.", param="messages")
    return frozenset(place for each in messages for place in each)
