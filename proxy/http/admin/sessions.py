"""What the admin API does with sessions. What a long one costs to tell is spent in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import Node
from proxy.engine.admin.edits import Edits, Ranges
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.stats import Stats
from proxy.errors import InvalidType
from proxy.http.admin import memory_schemas, schemas, views
from proxy.http.admin.bill_schemas import BilledSession, BillTold
from proxy.http.admin.export import Export, export
from proxy.http.admin.openapi import Operation, Query, Table, number

_ONE = "/sessions/{id}"
_MOST = 1_000
_USUAL = 50
_LIMIT = Query("limit", f"How many, at most {_MOST:,}; {_USUAL} if absent.", "integer")
_TIP = Query("tip", "The end of a branch, a chain hash; the newest completed turn, if absent.", "string")
_TABLE = Table("An id, the beginning of one, or a name; of one session alone.")


@dataclass(frozen=True)
class SessionOperations:
    """Sessions for people and scripts. ``now`` tells seconds since 1970."""

    inspection: Inspection
    edits: Edits
    forks: Forks
    stats: Stats
    now: Callable[[], float]

    def operations(self) -> list[Operation]:
        """Everything that is done with sessions."""
        return _TABLE.of(self)

    async def _found(self, request: Request) -> Inspected:
        return await self.inspection.find(request.path_params["id"])

    async def _branch(self, request: Request) -> tuple[Inspected, list[Node], Injection | None]:
        """A session, its branch of the tip that was asked for, and what was handed in for it."""
        found = await self._found(request)
        branch = await self.inspection.branch(found, request.query_params.get("tip"))
        return found, branch, await self.inspection.injection(found)

    async def _shown(self, found: Inspected) -> BilledSession:
        branch = await self.inspection.branch(found)
        bill = await self.stats.of_session(found.key)
        session = await asyncio.to_thread(lambda: views.session(found, self.inspection.cycle(found, branch)))
        return BilledSession(**session.model_dump(), bill=BillTold.of(bill))

    # --- looking ---

    @_TABLE.operation("GET", "/sessions", _LIMIT)
    async def sessions(self, request: Request, body: schemas.NoBody) -> schemas.Sessions:
        """The sessions used last."""
        found, left_out = await self.inspection.newest(number(request, "limit", _USUAL, _MOST))
        return schemas.Sessions(
            sessions=[views.session(each) for each in found], left_out=schemas.LeftOut(**left_out)
        )

    @_TABLE.operation("GET", _ONE)
    async def session(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """A session."""
        return await self._shown(await self._found(request))

    @_TABLE.operation("GET", f"{_ONE}/transcript", _TIP)
    async def transcript(self, request: Request, body: schemas.NoBody) -> schemas.Transcript:
        """All messages as they came."""
        found = await self._found(request)
        numbered = await self.inspection.transcript(found, request.query_params.get("tip"))
        return await asyncio.to_thread(views.transcript, found, numbered)

    @_TABLE.operation("GET", f"{_ONE}/view", _TIP)
    async def view(self, request: Request, body: schemas.NoBody) -> schemas.View:
        """What the model gets."""
        return await asyncio.to_thread(views.view, self.inspection, *await self._branch(request))

    @_TABLE.operation("GET", f"{_ONE}/explain", _TIP)
    async def explain(self, request: Request, body: schemas.NoBody) -> schemas.Explanation:
        """What became of each message, and why."""
        return await asyncio.to_thread(views.explanation, self.inspection, *await self._branch(request))

    @_TABLE.operation("GET", f"{_ONE}/tools", _TIP)
    async def tools(self, request: Request, body: schemas.NoBody) -> schemas.ToolResults:
        """Tool results that are fresh."""
        return await asyncio.to_thread(views.tools, self.inspection, *await self._branch(request))

    @_TABLE.operation("GET", f"{_ONE}/state", _TIP)
    async def state(self, request: Request, body: schemas.NoBody) -> memory_schemas.StateTold:
        """What it stands at: summaries, tool results, and what the model gets."""
        return await asyncio.to_thread(views.state, self.inspection, *await self._branch(request))

    @_TABLE.operation("GET", f"{_ONE}/export")
    async def export(self, request: Request, body: schemas.NoBody) -> Export:
        """All that is kept of a session."""
        found = await self._found(request)
        branch = await self.inspection.branch(found)
        everything = await self.inspection.everything(found)
        return await asyncio.to_thread(
            lambda: export(found, branch, self.inspection.cycle(found, branch), everything, self.now())
        )

    # --- changing ---

    @_TABLE.operation("DELETE", _ONE)
    async def delete(self, request: Request, body: schemas.NoBody) -> schemas.Deleted:
        """Forget a session."""
        found = await self._found(request)
        await self.edits.delete(found)
        return schemas.Deleted(id=found.id, name=found.session.name, deleted=True)

    @_TABLE.operation("POST", f"{_ONE}/fork")
    async def fork(self, request: Request, body: schemas.ForkBody) -> BilledSession:
        """Make a branch a session of its own."""
        found = await self._found(request)
        return await self._shown(await self.forks.fork(found, body.tip, body.at, body.name))

    @_TABLE.operation("POST", f"{_ONE}/compact")
    async def compact(self, request: Request, body: schemas.CompactBody) -> schemas.Compacted:
        """Cut messages now."""
        epoch, summary = await self.edits.compact(await self._found(request), ranges(body.messages))
        return schemas.Compacted(**views.epoch(epoch).model_dump(), summary=summary)

    @_TABLE.operation("POST", f"{_ONE}/restore")
    async def restore(self, request: Request, body: schemas.RestoreBody) -> schemas.EpochTold:
        """Undo cuts."""
        if body.messages is not None and body.epoch is not None:
            raise InvalidType("Name messages or an epoch, not both.", param="epoch")
        found = await self._found(request)
        return views.epoch(await self.edits.restore(found, ranges(body.messages), body.epoch))

    @_TABLE.operation("POST", f"{_ONE}/pin")
    async def pin(self, request: Request, body: schemas.PinBody) -> schemas.Pinned:
        """Keep messages from being cut as long as anything else can be."""
        found, messages = await self._found(request), ranges(body.messages)
        if not messages:
            raise InvalidType("Name the messages.", param="messages")
        return schemas.Pinned(id=found.id, pins=await self.edits.pin(found, messages))

    @_TABLE.operation("POST", f"{_ONE}/pause")
    async def pause(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """Let appended turns wait."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=True))

    @_TABLE.operation("POST", f"{_ONE}/resume")
    async def resume(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """Let appended turns go on."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=False))


def ranges(messages: str | list[int] | None) -> Ranges | None:
    """Numbers of messages, as they were written: single ones, or from one to another."""
    if messages is None:
        return None
    if isinstance(messages, list):
        return [range(number, number + 1) for number in messages]
    ends = (each.partition("-") for each in messages.split(","))
    return [range(int(first), int(last or first) + 1) for first, _, last in ends]
