"""The operations on sessions. Whatever takes long for a long session is computed in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from proxy.core.formats.json import loads
from proxy.core.planning.explain import explain
from proxy.core.planning.plan import Verb
from proxy.engine.admin.edits import Edits, Ranges
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Branch, Inspected, Inspection, NewestExchange
from proxy.engine.admin.stats import Stats
from proxy.engine.state import SessionSnapshot, SummaryCounts, role_texts
from proxy.errors import InvalidType, InvalidValue, MissingParameter, NotFound
from proxy.http.admin import schemas
from proxy.http.admin.api import Query, number, operation
from proxy.http.admin.bills import BilledSession, BillReport
from proxy.http.admin.export import Export, export
from proxy.http.admin.schemas import time

_ONE = "/sessions/{id}"
_MOST = 1_000
_USUAL = 50
_LIMIT = Query("limit", f"How many, at most {_MOST:,}; {_USUAL} if absent.", "integer")
_TIP = Query("tip", "The end of a branch, a chain hash; the newest completed turn, if absent.", "string")


@dataclass(frozen=True)
class SessionOperations:
    """The operations on sessions in the admin API. ``now`` returns seconds since 1970."""

    inspection: Inspection
    edits: Edits
    forks: Forks
    stats: Stats
    now: Callable[[], float]

    async def _found(self, request: Request) -> Inspected:
        return await self.inspection.find(request.path_params["id"])

    async def _branch(self, request: Request) -> Branch:
        """Return the branch whose tip is in the query, else the session's own."""
        return await self.inspection.branch(await self._found(request), request.query_params.get("tip"))

    async def _shown(self, found: Inspected) -> BilledSession:
        branch, bill = await self.inspection.branch(found), await self.stats.of_session(found.key)
        session = await asyncio.to_thread(lambda: session_report(found, branch.newest_exchange()))
        return BilledSession.from_object(session, bill=BillReport.of(bill))

    # --- looking ---

    @operation("GET", "/sessions", _LIMIT)
    async def sessions(self, request: Request, body: schemas.NoBody) -> schemas.Sessions:
        """List the sessions used last."""
        found, left_out = await self.inspection.newest(number(request, "limit", _USUAL, _MOST))
        return schemas.Sessions(sessions=[*map(session_report, found)], left_out=schemas.LeftOut(**left_out))

    @operation("GET", _ONE)
    async def session(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """Read a session."""
        return await self._shown(await self._found(request))

    @operation("GET", f"{_ONE}/transcript", _TIP)
    async def transcript(self, request: Request, body: schemas.NoBody) -> schemas.Transcript:
        """Read all messages as they arrived."""
        found = await self._found(request)
        numbered = await self.inspection.transcript(found, request.query_params.get("tip"))

        def entries() -> list[schemas.Entry]:
            of_head = partial(schemas.Entry, number=None, tokens=None, answer=False, complete=True)
            at, entry = time(found.session.updated), schemas.Entry.from_object
            return [
                *(of_head(message=loads(raw), at=at) for raw in found.session.head),
                *(entry(node, number=number, message=loads(node.raw)) for number, node in numbered),
            ]

        tip = numbered[-1][1].hash.hex() if numbered else ""
        return schemas.Transcript(id=found.id, tip=tip, messages=await asyncio.to_thread(entries))

    @operation("GET", f"{_ONE}/view", _TIP)
    async def view(self, request: Request, body: schemas.NoBody) -> schemas.View:
        """Read what the model gets."""
        branch = await self._branch(request)
        return await asyncio.to_thread(
            lambda: schemas.View(
                id=branch.found.id,
                tip=branch.tip,
                epoch=branch.epoch.number if branch.epoch else 0,
                tokens=branch.tokens,
                budget=branch.situation.budget.tokens,
                messages=[loads(raw) for raw in branch.view(branch.epoch)],
            )
        )

    @operation("GET", f"{_ONE}/explain", _TIP)
    async def explain(self, request: Request, body: schemas.NoBody) -> schemas.Explanation:
        """Explain what happened to each message, and why."""
        return await asyncio.to_thread(_explanation, await self._branch(request))

    @operation("GET", f"{_ONE}/tools", _TIP)
    async def tools(self, request: Request, body: schemas.NoBody) -> schemas.ToolResults:
        """List the tool results that are fresh."""
        branch = await self._branch(request)
        policy = self.inspection.policy_of(branch.found.session).name
        results = await asyncio.to_thread(tool_results, branch)
        return schemas.ToolResults(id=branch.found.id, tip=branch.tip, policy=policy, tools=results)

    @operation("GET", f"{_ONE}/state", _TIP)
    async def state(self, request: Request, body: schemas.NoBody) -> schemas.StateReport:
        """Read the state of a session: summaries, tool results, and what the model gets."""
        return await asyncio.to_thread(_state, await self._branch(request))

    @operation("GET", f"{_ONE}/export")
    async def export(self, request: Request, body: schemas.NoBody) -> Export:
        """Export everything that is stored of a session."""
        found = await self._found(request)
        branch, everything = await self.inspection.branch(found), await self.inspection.everything(found)
        return await asyncio.to_thread(
            lambda: export(
                branch, session_report(found, branch.newest_exchange()), everything, time(self.now())
            )
        )

    # --- changing ---

    @operation("DELETE", _ONE)
    async def delete(self, request: Request, body: schemas.NoBody) -> schemas.Deleted:
        """Delete a session, or by its whole id what is stored of one whose first request failed."""
        try:
            found = await self._found(request)
            key, tenant, name = found.key, found.session.tenant, found.session.name
            former = found.session.former
        except NotFound:
            key, tenant = await self.inspection.find_unrecorded(request.path_params["id"])
            name, former = "", ()
        await self.edits.delete(key, tenant, former)
        return schemas.Deleted(id=key.id_for(tenant), name=name, deleted=True)

    @operation("POST", f"{_ONE}/fork")
    async def fork(self, request: Request, body: schemas.ForkBody) -> BilledSession:
        """Copy a branch into a session of its own."""
        found = await self._found(request)
        return await self._shown(await self.forks.fork(found, body.tip, body.at, body.name))

    @operation("POST", f"{_ONE}/compact")
    async def compact(self, request: Request, body: schemas.CompactBody) -> schemas.Compacted:
        """Cut messages now."""
        epoch, summary = await self.edits.compact(await self._found(request), ranges(body.messages))
        return schemas.Compacted.from_object(epoch, summary=summary)

    @operation("POST", f"{_ONE}/restore")
    async def restore(self, request: Request, body: schemas.RestoreBody) -> schemas.EpochReport:
        """Undo cuts."""
        if body.messages is not None and body.epoch is not None:
            raise InvalidType("Name messages or an epoch, not both.", param="epoch")
        epoch = await self.edits.restore(await self._found(request), ranges(body.messages), body.epoch)
        return schemas.EpochReport.model_validate(epoch)

    @operation("POST", f"{_ONE}/pin")
    async def pin(self, request: Request, body: schemas.PinBody) -> schemas.Pinned:
        """Pin messages: they are cut only when nothing else is left to cut."""
        found, messages = await self._found(request), ranges(body.messages)
        if not messages:
            raise MissingParameter("Name the messages.", param="messages")
        return schemas.Pinned(id=found.id, pins=await self.edits.pin(found, messages))

    @operation("POST", f"{_ONE}/pause")
    async def pause(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """Pause a session: appended turns wait."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=True))

    @operation("POST", f"{_ONE}/resume")
    async def resume(self, request: Request, body: schemas.NoBody) -> BilledSession:
        """Resume a session: appended turns go on."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=False))


def ranges(messages: str | list[int] | None) -> Ranges | None:
    """Parse numbers of messages: single ones and ranges, such as `4,17-20`.

    Raises InvalidValue for a range whose end is before its beginning.
    """
    if messages is None:
        return None
    if isinstance(messages, list):
        return [range(number, number + 1) for number in messages]
    ends = [each.partition("-") for each in messages.split(",")]
    for first, _, last in ends:
        if last and int(last) < int(first):
            raise InvalidValue(f"`messages`: {first}-{last} ends before it begins.", param="messages")
    return [range(int(first), int(last or first) + 1) for first, _, last in ends]


# --- in the shapes of the API ---


def session_report(found: Inspected, newest: NewestExchange | None = None) -> schemas.SessionReport:
    """Return a session, with its newest exchange if that is given."""
    record, summarised = found.session, SummaryCounts.of(found.epochs)
    return schemas.SessionReport.from_object(
        record,
        id=found.id,
        began_with=record.began_with or None,
        budget=record.budget or None,
        window=record.window or None,
        shadow=record.is_shadow,
        blocked=record.blocked or None,
        prune_count=sum(epoch.asked is not Verb.RESTORE for epoch in found.epochs),
        summary_bytes=summarised.bytes,
        llm_compressions=summarised.written,
        current_cycle=newest,
        epochs=found.epochs,
    )


def _explanation(branch: Branch) -> schemas.Explanation:
    record, situation = branch.found.session, branch.situation
    budget, policy = situation.budget, situation.policy
    return schemas.Explanation(
        id=branch.found.id,
        policy=policy.name,
        policy_by=record.chosen_by if policy.name == record.policy else "",
        stage=branch.stage,
        usage=round(budget.usage(situation.view_tokens), 4),
        tokens=branch.tokens,
        full_tokens=branch.full_tokens,
        budget=budget.tokens,
        window=budget.window.tokens,
        window_from=budget.window.source.value,
        ratio=budget.ratio,
        head_tokens=budget.head,
        stages=policy.stages.model_dump(),
        lacking=budget.real(record.lacking),
        injected=len(branch.prelude) - len(record.head),
        pins=situation.pinned,
        epochs=[schemas.EpochReport.model_validate(each) for each in branch.found.epochs],
        missing_summaries=[schemas.MissingSummary.model_validate(each) for each in branch.missing()],
        units=explain(situation, branch.epochs),
    )


def tool_results(branch: Branch) -> list[schemas.ToolResult]:
    """Return the tool results that are fresh at the end of a branch."""
    arrivals = {node.hash: node.at for node in branch.nodes}
    results: list[schemas.ToolResult] = []
    for fresh in branch.fresh():
        try:
            parameters = loads(fresh.arguments or "{}")
        except ValueError:
            parameters = fresh.arguments
        result = schemas.ToolResult.from_object(
            fresh,
            tool_name=fresh.tool,
            parameters=parameters,
            result=fresh.text,
            remaining_duration=fresh.remaining,
            original_duration=fresh.duration,
            cached_at=arrivals.get(fresh.message_hash, branch.found.session.created),
        )
        results.append(result)
    return results


def _state(branch: Branch) -> schemas.StateReport:
    """Return the state of a session, as the log has it for a request."""
    session, summarised = branch.found.session, SummaryCounts.of(branch.found.epochs)
    functions = [*branch.fresh()]
    messages = role_texts(branch.view(branch.epoch), branch.dialect)
    state = SessionSnapshot(branch.found.id, session.name, session.exchanges, summarised, functions, messages)
    return schemas.StateReport(
        session=session.name,
        exchanges=session.exchanges,
        summary_bytes=summarised.bytes,
        llm_compressions=summarised.written,
        functions=[schemas.CachedFunction.model_validate(each) for each in functions],
        messages=[schemas.Received(role=role, text=text) for role, text in messages],
        lines=state.lines(with_content=True),
    )
