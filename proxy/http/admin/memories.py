"""The operations on memories: all of them for operators, and a client's own for the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from string import whitespace

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proxy.core.memory.records import Scope
from proxy.engine.admin.forgetting import Forgetting, Forgotten, cannot_be_read
from proxy.engine.admin.inspection import AmbiguousSession, Inspection
from proxy.engine.admin.memories import MemoryAdmin, scope_of
from proxy.engine.intake.homes import MemoryHome, named_home
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.maintenance import Maintained, Maintenance
from proxy.engine.memory.model import logged_failure
from proxy.errors import InvalidType, MissingParameter, NotFound
from proxy.http.admin import memory_schemas as schemas
from proxy.http.admin.api import Query, number, operation
from proxy.http.admin.schemas import NoBody
from proxy.http.request_head import by_name
from proxy.ports import SessionKey, UnreadableRecord

_MOST = 100_000
_FOUND, _LISTED = 5, 50
_EVENTS = "application/x-ndjson"
_REPEATED = 10.0
"""Seconds after which progress is told again, so that one who waits knows that the run goes on."""
_QUERY = Query("query", "What is looked for, in words; the newest items, if absent.", "string")
_K = Query(
    "k", f"How many items, and memories, at most {_MOST:,}; {_FOUND} with a query, else {_LISTED}.", "integer"
)
_SCOPE = Query("scope", "The id of one memory; all of them, if absent.", "string")
_SESSION = Query("session", "Or an id or a name of a session: what was learned from it.", "string")
_PERSON = Query(
    "person", "Or the name of a person: what is remembered of them, and what they said.", "string"
)
_TENANT = Query("tenant", "Whose person is meant, where several tenants have one of the name.", "string")
_OWN = (
    Query("user", "Whose memory: that of a person, as request bodies name them,", "string"),
    Query("channel", "or of a channel,", "string"),
    Query("workspace", "or of a workspace; with a channel, that in which it lies.", "string"),
)


@dataclass(frozen=True)
class MemoryOperations:
    """The operations of :class:`MemoryAdmin` and :class:`Forgetting` in the admin API."""

    memories: MemoryAdmin
    forgetting: Forgetting
    inspection: Inspection
    daily: Maintenance
    naming: Naming

    @operation("GET", "/memory", _QUERY, _K, _SCOPE)
    async def memory(self, request: Request, body: NoBody) -> schemas.MemoryReport:
        """Search what is remembered, or list the newest items."""
        query = request.query_params.get("query", "").strip()
        most = number(request, "k", _FOUND if query else _LISTED, _MOST)
        name = request.query_params.get("scope", "")
        found = await self.memories.found(name, query, most)
        return await asyncio.to_thread(
            lambda: schemas.MemoryReport(
                scopes=[schemas.scope(each) for each in found.scopes[:most]],
                items=[schemas.item(each) for each in found.items],
                said=[schemas.UtteranceReport.model_validate(each) for each in found.said],
                left_out=[schemas.unread(each) for each in found.unread],
                enabled=self.daily.policies().remembers,
            )
        )

    @operation("DELETE", "/memory", _SCOPE, _SESSION, _PERSON, _TENANT)
    async def forget_all(self, request: Request, body: NoBody) -> schemas.Forgotten:
        """Forget a scope, or what was learned from a session or about a person; exactly one must be named."""
        asked = {name: value for name, value in request.query_params.items() if value and name != "tenant"}
        if len(asked) != 1:
            raise MissingParameter("Name a scope, a session or a person.", param="scope")
        tenant = request.query_params.get("tenant", "")
        if tenant and "person" not in asked:
            raise InvalidType("`tenant` says whose person is meant.", param="tenant")
        match next(iter(asked.items())):
            case "scope", name:
                count = 0
                with suppress(UnreadableRecord):  # then it is forgotten unread
                    count = len((await self.memories.scope(name)).entries)
                was_there = await self.forgetting.scope(scope_of(name))
                return schemas.Forgotten(id=name, items=count, forgotten=was_there)
            case "session", name:
                done = await self._forget_session(name)
            case _, name:
                done = await self.forgetting.person(name, tenant)
        return schemas.Forgotten(id="", items=done.items, forgotten=done.is_known, unread=done.unread)

    @operation("GET", "/memory/{id}")
    async def item(self, request: Request, body: NoBody) -> schemas.ItemReport:
        """Read an item."""
        return schemas.item(await self.memories.item(request.path_params["id"]))

    @operation("DELETE", "/memory/{id}")
    async def forget(self, request: Request, body: NoBody) -> schemas.Forgotten:
        """Forget an item, and the lines of texts that mention it."""
        entry = await self.forgetting.item(request.path_params["id"])
        return schemas.Forgotten(id=entry.id, items=1, forgotten=True)

    @operation("GET", "/memory/{id}/log")
    async def memory_log(self, request: Request, body: NoBody) -> schemas.LogReport:
        """Read the log of an item, also of a forgotten one."""
        name = request.path_params["id"]
        events = await self.memories.log(name)
        return schemas.LogReport(
            id=name, events=[schemas.EventReport.model_validate(each) for each in events]
        )

    @operation("POST", "/memory/{id}/restore")
    async def restore_item(self, request: Request, body: NoBody) -> schemas.ItemReport:
        """Restore an item that was archived or superseded, with the score of a new one."""
        return schemas.item(await self.memories.restore(request.path_params["id"]))

    @operation("POST", "/memory/maintain")
    async def maintain(self, request: Request, body: NoBody) -> schemas.Maintained | Response:
        """Run the daily maintenance now; `Accept: application/x-ndjson` returns the progress line by line."""
        if request.headers.get("accept") == _EVENTS:
            scopes = await self.daily.listed()  # a store that is away can still be told by the status
            return StreamingResponse(self._maintaining(scopes), media_type=_EVENTS)
        return schemas.Maintained.model_validate(await self.daily.run())

    async def _maintaining(self, scopes: Sequence[Scope]) -> AsyncIterator[bytes]:
        """Yield a line after each scope, again while nothing new has come, and the totals at the end.

        Of a run that breaks off these are what was done until then.
        """
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        encode, totals = msgspec.json.Encoder().encode, Maintained(of=len(scopes))

        def tell(done: Maintained) -> None:
            nonlocal totals
            totals = done
            lines.put_nowait(encode(done))

        async def run() -> None:
            with logged_failure("the maintenance of memories broke off"):
                await self.daily.run(on_progress=tell, scopes=scopes)

        running = self.daily.background.run(run(), is_needed=False)
        running.add_done_callback(lambda _: lines.put_nowait(None))
        line: bytes | None = b""
        while line is not None:
            with suppress(TimeoutError):
                line = await asyncio.wait_for(lines.get(), _REPEATED)
            if line:
                yield line + b"\n"
        yield encode(totals) + b"\n"

    # --- a client's own ---

    @operation("GET", "/me/memory", *_OWN, is_for_clients=True)
    async def own_memory(self, request: Request, body: NoBody) -> schemas.OwnMemory:
        """Read what is remembered of a person, channel or workspace of the client's own."""
        homes = self._homes(request)
        kept = await self.memories.own(homes)
        texts = [each.copy.texts for each in kept]
        return schemas.OwnMemory(
            kind=homes[0].scope.kind.value,
            name=schemas.named(homes[0].scope, homes[0].name),
            long="\n".join(each.long for each in texts if each.long),
            short="\n".join(each.short for each in texts if each.short),
            items=[schemas.item(each) for each in self.memories.listed(kept, _MOST)],
        )

    @operation("DELETE", "/me/memory", *_OWN, is_for_clients=True)
    async def forget_own_memory(self, request: Request, body: NoBody) -> schemas.Forgotten:
        """Forget what is remembered of a person, channel or workspace of the client's own."""
        kept = await self.memories.own(self._homes(request))
        were_there = [await self.forgetting.scope(each.scope) for each in kept]
        count = sum(len(each.entries) for each in kept)
        return schemas.Forgotten(id="", items=count, forgotten=any(were_there))

    def _homes(self, request: Request) -> list[MemoryHome]:
        """Return the memory homes that a client may mean by its names, one for each encoding of a header.

        Names in headers are bytes, mostly UTF-8, else Latin-1. Raises MissingParameter and InvalidType.
        """
        asked = {name: request.query_params.get(name, "") for name in ("user", "channel", "workspace")}
        for name in ("channel", "workspace"):
            asked[name] = asked[name].strip(whitespace)  # no more, as a chat reads its headers
        if not any(asked.values()):
            raise MissingParameter("Name a `user`, a `channel` or a `workspace`.", param="user")
        if asked["user"] and (asked["channel"] or asked["workspace"]):
            raise InvalidType("Name a person, or a channel or a workspace, not both.", param="user")
        headers = by_name(request.scope["headers"])
        channel, workspace = asked["channel"], asked["workspace"]
        written = {(channel, workspace), (_as_bytes(channel), _as_bytes(workspace))}
        homes = [
            named_home(self.naming, headers, channel=one, workspace=other, person=asked["user"])
            for one, other in sorted(written)
        ]
        return [home for home in homes if home is not None]

    async def _forget_session(self, name: str) -> Forgotten:
        """Forget what was learned from a session.

        A session that is no longer stored is found by its complete id, or by its name. Raises NotFound and
        AmbiguousSession: a name may be that of a session that is stored, and of another one that was.
        """
        remembered, unread = await self.forgetting.remembered_as({name, _as_bytes(name)})
        try:
            found = await self.inspection.find(name)
        except NotFound as error:
            if not remembered and name.count(".") != 2:
                raise NotFound(f"{error.message}{cannot_be_read(unread)}") from error
            stored = {} if remembered else _names([name])
        else:
            is_named = name in (found.id, found.session.name)  # else by the beginning of its id
            stored = _names([found.id, *found.session.former]) if is_named or not remembered else {}
        others = {key: tenant for key, tenant in remembered.items() if key not in stored}
        if len(others) + bool(stored) > 1:
            ids = [key.id_for(tenant) for key, tenant in (*[*stored.items()][:1], *others.items())]
            raise AmbiguousSession(name, [{"id": each, "name": name, "began_with": ""} for each in ids])
        return await self.forgetting.session(stored or others)


def _names(ids: Iterable[str]) -> dict[SessionKey, str]:
    """Return the keys of a session, each with its tenant, from its ids: its own and those of old secrets."""
    return {SessionKey.of_id(each): each.partition(".")[0] for each in ids}


def _as_bytes(name: str) -> str:
    """Return a name as it is read from a header in which it is encoded as UTF-8."""
    return name.encode(errors="surrogatepass").decode("latin-1")
