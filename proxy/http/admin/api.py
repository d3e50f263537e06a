"""The admin API's operations: reading requests, asking the engine, answering in the shapes of the contract.

A client's own key opens nothing here: without a token it is 401, with anything else 403. What a long session
costs to tell is spent in a thread, so that nobody's stream waits for it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import Node
from proxy.core.formats.json import dumps
from proxy.engine.admin.edits import Edits, Ranges
from proxy.engine.admin.forks import Forks
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.errors import (
    Forbidden,
    InvalidEncoding,
    InvalidJSON,
    InvalidType,
    JSONTooDeep,
    RequestTooLarge,
    UnabridgedError,
    Unauthorized,
)
from proxy.http.admin import schemas, views
from proxy.http.admin.export import Export, export
from proxy.http.admin.openapi import PREFIX, Method, Operation, Query, document
from proxy.http.request_head import check_credentials, request_id, require_json

_MOST = 1_000
_USUAL = 50
_BODY_BYTES = 64 * 1024
_ONE = "/sessions/{id}"
_LIMIT = Query("limit", f"How many, at most {_MOST:,}; {_USUAL} if absent.", "integer")
_TIP = Query("tip", "The end of a branch, a chain hash; the newest completed turn, if absent.", "string")
_TABLE: list[Operation] = []
"""Every operation, by the method that does it: its docstring is the summary, its types are the contract."""

_Made = TypeVar("_Made", bound=Callable[..., Any])


def _operation(method: Method, path: str, *query: Query) -> Callable[[_Made], _Made]:
    """Make a method of the API what answers this method of this path."""

    def enter(endpoint: _Made) -> _Made:
        _TABLE.append(Operation(method, path, endpoint, query))
        return endpoint

    return enter


@dataclass(frozen=True)
class AdminAPI:
    """Sessions for people and scripts. ``now`` tells seconds since 1970."""

    inspection: Inspection
    edits: Edits
    forks: Forks
    now: Callable[[], float]
    token: str = field(repr=False)

    def routes(self) -> list[Route]:
        by_path: dict[str, dict[str, Operation]] = {}
        for each in _TABLE:
            by_path.setdefault(each.path, {})[each.method] = each

        def route(path: str, by_method: dict[str, Operation]) -> Route:
            async def guarded(request: Request) -> Response:
                asked = by_method["GET" if request.method == "HEAD" else request.method]
                try:
                    self._authorise(request)
                    answer = await asked.endpoint(self, request, await _body(request, asked.body))
                except UnabridgedError as error:
                    headers = {"X-Request-Id": request_id(request.scope)}
                    if error.retry_after is not None:
                        headers["Retry-After"] = str(error.retry_after)
                    return JSONResponse(error.body(), error.status, headers)
                content = await asyncio.to_thread(lambda: dumps(answer.model_dump()))
                return Response(content, media_type="application/json")

            return Route(PREFIX + path, guarded, methods=[*by_method])

        return [route(path, by_method) for path, by_method in by_path.items()]

    def _authorise(self, request: Request) -> None:
        check_credentials(request.scope["headers"])
        scheme, token = [*request.headers.get("authorization", "").split(None, 1), "", ""][:2]
        if not token:
            raise Unauthorized("The admin API needs the admin token: Authorization: Bearer …")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.encode(), self.token.encode()):
            raise Forbidden("This is not the admin token.")

    async def _found(self, request: Request) -> Inspected:
        return await self.inspection.find(request.path_params["id"])

    async def _branch(self, request: Request) -> tuple[Inspected, list[Node], Injection | None]:
        """A session, its branch of the tip that was asked for, and what was handed in for it."""
        found = await self._found(request)
        branch = await self.inspection.branch(found, request.query_params.get("tip"))
        return found, branch, await self.inspection.injection(found)

    async def _shown(self, found: Inspected) -> schemas.SessionTold:
        branch = await self.inspection.branch(found)
        return await asyncio.to_thread(lambda: views.session(found, self.inspection.cycle(found, branch)))

    # --- looking ---

    @_operation("GET", "/openapi.json")
    async def openapi(self, request: Request, body: schemas.NoBody) -> schemas.Document:
        """This document."""
        return schemas.Document(**document(_TABLE))

    @_operation("GET", "/sessions", _LIMIT)
    async def sessions(self, request: Request, body: schemas.NoBody) -> schemas.Sessions:
        """The sessions used last."""
        text = request.query_params.get("limit", str(_USUAL))
        if not (text.isascii() and text.isdigit()):
            raise InvalidType("`limit` must be a number.", param="limit")
        found, left_out = await self.inspection.newest(min(max(int(text[:9]), 1), _MOST))
        return schemas.Sessions(
            sessions=[views.session(each) for each in found], left_out=schemas.LeftOut(**left_out)
        )

    @_operation("GET", _ONE)
    async def session(self, request: Request, body: schemas.NoBody) -> schemas.SessionTold:
        """A session."""
        return await self._shown(await self._found(request))

    @_operation("GET", f"{_ONE}/transcript", _TIP)
    async def transcript(self, request: Request, body: schemas.NoBody) -> schemas.Transcript:
        """All messages as they came."""
        found = await self._found(request)
        numbered = await self.inspection.transcript(found, request.query_params.get("tip"))
        return await asyncio.to_thread(views.transcript, found, numbered)

    @_operation("GET", f"{_ONE}/view", _TIP)
    async def view(self, request: Request, body: schemas.NoBody) -> schemas.View:
        """What the model gets."""
        return await asyncio.to_thread(views.view, self.inspection, *await self._branch(request))

    @_operation("GET", f"{_ONE}/explain", _TIP)
    async def explain(self, request: Request, body: schemas.NoBody) -> schemas.Explanation:
        """What became of each message, and why."""
        return await asyncio.to_thread(views.explanation, self.inspection, *await self._branch(request))

    @_operation("GET", f"{_ONE}/tools", _TIP)
    async def tools(self, request: Request, body: schemas.NoBody) -> schemas.ToolResults:
        """Tool results that are fresh."""
        return await asyncio.to_thread(views.tools, self.inspection, *await self._branch(request))

    @_operation("GET", f"{_ONE}/export")
    async def export(self, request: Request, body: schemas.NoBody) -> Export:
        """All that is kept of a session."""
        found = await self._found(request)
        branch = await self.inspection.branch(found)
        everything = await self.inspection.everything(found)
        return await asyncio.to_thread(
            lambda: export(found, branch, self.inspection.cycle(found, branch), everything, self.now())
        )

    # --- changing ---

    @_operation("DELETE", _ONE)
    async def delete(self, request: Request, body: schemas.NoBody) -> schemas.Deleted:
        """Forget a session."""
        found = await self._found(request)
        await self.edits.delete(found)
        return schemas.Deleted(id=found.id, name=found.session.name, deleted=True)

    @_operation("POST", f"{_ONE}/fork")
    async def fork(self, request: Request, body: schemas.ForkBody) -> schemas.SessionTold:
        """Make a branch a session of its own."""
        found = await self._found(request)
        return await self._shown(await self.forks.fork(found, body.tip, body.at, body.name))

    @_operation("POST", f"{_ONE}/compact")
    async def compact(self, request: Request, body: schemas.CompactBody) -> schemas.Compacted:
        """Cut messages now."""
        epoch, summary = await self.edits.compact(await self._found(request), _ranges(body.messages))
        return schemas.Compacted(**views.epoch(epoch).model_dump(), summary=summary)

    @_operation("POST", f"{_ONE}/restore")
    async def restore(self, request: Request, body: schemas.RestoreBody) -> schemas.EpochTold:
        """Undo cuts."""
        if body.messages is not None and body.epoch is not None:
            raise InvalidType("Name messages or an epoch, not both.", param="epoch")
        found = await self._found(request)
        return views.epoch(await self.edits.restore(found, _ranges(body.messages), body.epoch))

    @_operation("POST", f"{_ONE}/pause")
    async def pause(self, request: Request, body: schemas.NoBody) -> schemas.SessionTold:
        """Let appended turns wait."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=True))

    @_operation("POST", f"{_ONE}/resume")
    async def resume(self, request: Request, body: schemas.NoBody) -> schemas.SessionTold:
        """Let appended turns go on."""
        return await self._shown(await self.edits.pause(await self._found(request), paused=False))


def _ranges(messages: str | list[int] | None) -> Ranges | None:
    """Numbers of messages as they were written: single ones, or from one to another."""
    if messages is None:
        return None
    if isinstance(messages, list):
        return [range(number, number + 1) for number in messages]
    ends = (each.partition("-") for each in messages.split(","))
    return [range(int(first), int(last or first) + 1) for first, _, last in ends]


async def _body(request: Request, shape: type[BaseModel]) -> BaseModel:
    """A request's body; none at all is an empty object.

    Raises RequestTooLarge, UnsupportedMediaType, InvalidEncoding, InvalidJSON, JSONTooDeep and InvalidType.
    """
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > _BODY_BYTES:
            raise RequestTooLarge
    if not raw or shape is schemas.NoBody:
        return shape()
    require_json(request.headers.get("content-type", "").encode("latin-1"))
    try:
        return shape.model_validate(json.loads(raw.decode()))
    except UnicodeDecodeError as error:
        raise InvalidEncoding from error
    except RecursionError as error:
        raise JSONTooDeep from error
    except json.JSONDecodeError as error:
        raise InvalidJSON(offset=len(error.doc[: error.pos].encode())) from error
    except ValidationError as error:  # the first member that is wrong is named
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        member = str(first["loc"][0]) if first["loc"] else None
        why = first["msg"][:1].lower() + first["msg"][1:]
        raise InvalidType(f"`{member}`: {why}." if member else f"The body: {why}.", param=member) from None
