"""The admin API's operations: reading requests, asking the engine, answering in the shapes of the contract.

A client's own key opens nothing here: without a token it is 401, with anything else 403. What a long session
costs to tell is spent in a thread, so that nobody's stream waits for it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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
from proxy.http.admin import schemas as shapes
from proxy.http.admin import views as telling
from proxy.http.admin.openapi import PREFIX, Operation, Query, document
from proxy.http.asgi import request_id, require_json
from proxy.http.headers import check_credentials

_MOST = 1_000
_USUAL = 50
_BODY_BYTES = 64 * 1024
_ONE = "/sessions/{id}"
_LIMIT = Query("limit", f"How many, at most {_MOST:,}; {_USUAL} if absent.", "integer")
_TIP = Query("tip", "The end of a branch, a chain hash; the newest completed turn, if absent.", "string")


class AdminAPI:
    """Sessions for people and scripts. ``now`` tells seconds since 1970."""

    def __init__(
        self, inspection: Inspection, curation: Edits, forks: Forks, now: Callable[[], float], token: str
    ) -> None:
        self._inspection = inspection
        self._curation = curation
        self._forks = forks
        self._now = now
        self._token = token

    def operations(self) -> list[Operation]:
        """Everything that the API does."""
        return [
            Operation("GET", "/openapi.json", "openapi", "This document.", self._openapi, shapes.Document),
            *self._looking(),
            *self._changing(),
        ]

    def _looking(self) -> list[Operation]:
        return [
            Operation(
                *("GET", "/sessions", "sessions", "The sessions used last."),
                self._sessions,
                shapes.Sessions,
                query=(_LIMIT,),
            ),
            Operation("GET", _ONE, "session", "A session.", self._session, shapes.SessionTold),
            Operation(
                *("GET", f"{_ONE}/transcript", "transcript", "All messages as they came."),
                self._transcript,
                shapes.Transcript,
                query=(_TIP,),
            ),
            Operation(
                *("GET", f"{_ONE}/view", "view", "What the model gets."),
                self._view,
                shapes.View,
                query=(_TIP,),
            ),
            Operation(
                *("GET", f"{_ONE}/explain", "explain", "What became of each message, and why."),
                self._explain,
                shapes.Explanation,
                query=(_TIP,),
            ),
            Operation(
                *("GET", f"{_ONE}/tools", "tools", "Tool results that are fresh."),
                self._tools,
                shapes.ToolResults,
                query=(_TIP,),
            ),
            Operation(
                *("GET", f"{_ONE}/export", "export", "All that is kept of a session."),
                self._export,
                shapes.Export,
            ),
        ]

    def _changing(self) -> list[Operation]:
        return [
            Operation("DELETE", _ONE, "delete", "Forget a session.", self._delete, shapes.Deleted),
            Operation(
                *("POST", f"{_ONE}/fork", "fork", "Make a branch a session of its own."),
                self._fork,
                shapes.SessionTold,
                shapes.ForkBody,
            ),
            Operation(
                *("POST", f"{_ONE}/compact", "compact", "Cut messages now."),
                self._compact,
                shapes.EpochTold,
                shapes.CompactBody,
            ),
            Operation(
                *("POST", f"{_ONE}/restore", "restore", "Undo cuts."),
                self._restore,
                shapes.EpochTold,
                shapes.RestoreBody,
            ),
            Operation(
                *("POST", f"{_ONE}/pause", "pause", "Let appended turns wait."),
                self._pause,
                shapes.SessionTold,
            ),
            Operation(
                *("POST", f"{_ONE}/resume", "resume", "Let appended turns go on."),
                self._resume,
                shapes.SessionTold,
            ),
        ]

    def routes(self) -> list[Route]:
        """The API's routes."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in self.operations():
            by_path.setdefault(operation.path, {})[operation.method] = operation
        return [self._route(path, by_method) for path, by_method in by_path.items()]

    def _route(self, path: str, by_method: dict[str, Operation]) -> Route:
        async def guarded(request: Request) -> Response:
            operation = by_method["GET" if request.method == "HEAD" else request.method]
            try:
                self._authorise(request)
                answer = await operation.endpoint(request, await _body(request, operation.body))
            except UnabridgedError as error:
                headers = {"X-Request-Id": request_id(request.scope)}
                if error.retry_after is not None:
                    headers["Retry-After"] = str(error.retry_after)
                return JSONResponse(error.body(), error.status, headers)
            content = await asyncio.to_thread(lambda: dumps(answer.model_dump()))
            return Response(content, media_type="application/json")

        return Route(PREFIX + path, guarded, methods=[*by_method])

    def _authorise(self, request: Request) -> None:
        check_credentials(request.scope["headers"])
        scheme, token = [*request.headers.get("authorization", "").split(None, 1), "", ""][:2]
        if not token:
            raise Unauthorized("The admin API needs the admin token: Authorization: Bearer …")
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.encode(), self._token.encode()):
            raise Forbidden("This is not the admin token.")

    async def _found(self, request: Request) -> Inspected:
        return await self._inspection.find(request.path_params["id"])

    async def _told(self, found: Inspected) -> shapes.SessionTold:
        branch = await self._inspection.branch(found)
        return await asyncio.to_thread(lambda: telling.session(found, self._inspection.cycle(branch)))

    # --- looking ---

    async def _openapi(self, request: Request, _: shapes.NoBody) -> shapes.Document:
        return shapes.Document(**document(self.operations()))

    async def _sessions(self, request: Request, _: shapes.NoBody) -> shapes.Sessions:
        found, left_out = await self._inspection.newest(_limit(request))
        told = [telling.session(each) for each in found]
        return shapes.Sessions(sessions=told, left_out=shapes.LeftOut(**left_out))

    async def _session(self, request: Request, _: shapes.NoBody) -> shapes.SessionTold:
        return await self._told(await self._found(request))

    async def _transcript(self, request: Request, _: shapes.NoBody) -> shapes.Transcript:
        found = await self._found(request)
        numbered = await self._inspection.transcript(found, request.query_params.get("tip"))
        return await asyncio.to_thread(telling.transcript, found, numbered)

    async def _view(self, request: Request, _: shapes.NoBody) -> shapes.View:
        found = await self._found(request)
        branch = await self._inspection.branch(found, request.query_params.get("tip"))
        injection = await self._inspection.injection(found)
        return await asyncio.to_thread(telling.view, self._inspection, found, branch, injection)

    async def _explain(self, request: Request, _: shapes.NoBody) -> shapes.Explanation:
        found = await self._found(request)
        branch = await self._inspection.branch(found, request.query_params.get("tip"))
        injection = await self._inspection.injection(found)
        return await asyncio.to_thread(telling.explanation, self._inspection, found, branch, injection)

    async def _tools(self, request: Request, _: shapes.NoBody) -> shapes.ToolResults:
        found = await self._found(request)
        branch = await self._inspection.branch(found, request.query_params.get("tip"))
        injection = await self._inspection.injection(found)
        return await asyncio.to_thread(telling.tools, self._inspection, found, branch, injection)

    async def _export(self, request: Request, _: shapes.NoBody) -> shapes.Export:
        found = await self._found(request)
        branch = await self._inspection.branch(found)
        everything = await self._inspection.everything(found)
        return await asyncio.to_thread(
            lambda: telling.export(found, branch, self._inspection.cycle(branch), everything, self._now())
        )

    # --- changing ---

    async def _delete(self, request: Request, _: shapes.NoBody) -> shapes.Deleted:
        found = await self._found(request)
        await self._curation.delete(found)
        return shapes.Deleted(id=found.id, name=found.session.name, deleted=True)

    async def _fork(self, request: Request, body: shapes.ForkBody) -> shapes.SessionTold:
        found = await self._found(request)
        return await self._told(await self._forks.fork(found, body.tip, body.at, body.name))

    async def _compact(self, request: Request, body: shapes.CompactBody) -> shapes.EpochTold:
        found = await self._found(request)
        return telling.epoch(await self._curation.compact(found, _ranges(body.messages)))

    async def _restore(self, request: Request, body: shapes.RestoreBody) -> shapes.EpochTold:
        if body.messages is not None and body.epoch is not None:
            raise InvalidType("Name messages or an epoch, not both.", param="epoch")
        found = await self._found(request)
        return telling.epoch(await self._curation.restore(found, _ranges(body.messages), body.epoch))

    async def _pause(self, request: Request, _: shapes.NoBody) -> shapes.SessionTold:
        return await self._told(await self._curation.pause(await self._found(request), paused=True))

    async def _resume(self, request: Request, _: shapes.NoBody) -> shapes.SessionTold:
        return await self._told(await self._curation.pause(await self._found(request), paused=False))


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(_USUAL))
    if not (text.isascii() and text.isdigit()):
        raise InvalidType("`limit` must be a number.", param="limit")
    return min(max(int(text[:9]), 1), _MOST)


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
    if not raw or shape is shapes.NoBody:
        return shape()
    require_json(request.headers.get("content-type", "").encode("latin-1"))
    try:
        return shape.model_validate(_json(bytes(raw)))
    except ValidationError as error:
        raise _refusal(error) from None


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise InvalidEncoding from error
    except RecursionError as error:
        raise JSONTooDeep from error
    except json.JSONDecodeError as error:
        raise InvalidJSON(offset=len(error.doc[: error.pos].encode())) from error


def _refusal(error: ValidationError) -> InvalidType:
    """What is wrong with the first member that is wrong."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    member = str(first["loc"][0]) if first["loc"] else None
    said = first["msg"][:1].lower() + first["msg"][1:]
    return InvalidType(f"`{member}`: {said}." if member else f"The body: {said}.", param=member)
