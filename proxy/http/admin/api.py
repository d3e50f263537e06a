"""The admin API: requests read, whoever asks looked at, answers in the shapes of the contract.

A client's own key opens nothing but what is remembered of itself: elsewhere without a token it is 401, with
anything else 403.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.core.formats.json import dumps
from proxy.errors import (
    InvalidEncoding,
    InvalidJSON,
    InvalidType,
    JSONTooDeep,
    RequestTooLarge,
    UnabridgedError,
)
from proxy.http.admin import schemas
from proxy.http.admin.door import Door
from proxy.http.admin.openapi import PREFIX, Operation, Table, document
from proxy.http.request_head import check_credentials, request_id, require_json

_BODY_BYTES = 64 * 1024
_TABLE = Table()


class AdminAPI:
    """All ``operations``, for whoever the ``door`` lets in."""

    def __init__(self, operations: Sequence[Operation], door: Door) -> None:
        self._operations = [*_TABLE.of(self), *operations]
        self._door = door

    def routes(self) -> list[Route]:
        """The API's routes."""
        by_path: dict[str, dict[str, Operation]] = {}
        for each in self._operations:
            by_path.setdefault(each.path, {})[each.method] = each

        def route(path: str, by_method: dict[str, Operation]) -> Route:
            async def guarded(request: Request) -> Response:
                asked = by_method["GET" if request.method == "HEAD" else request.method]
                try:
                    if asked.is_for_clients:  # whose key it is says what it is about
                        check_credentials(request.scope["headers"])
                    else:
                        self._door.check(request)
                    answer = await asked.endpoint(request, await _body(request, asked.body))
                except UnabridgedError as error:
                    headers = {"X-Request-Id": request_id(request.scope)}
                    if error.retry_after is not None:
                        headers["Retry-After"] = str(error.retry_after)
                    return JSONResponse(error.body(), error.status, headers)
                if isinstance(answer, Response):
                    return answer
                content = await asyncio.to_thread(lambda: dumps(answer.model_dump()))
                return Response(content, media_type="application/json")

            return Route(PREFIX + path, guarded, methods=[*by_method])

        return [route(path, by_method) for path, by_method in by_path.items()]

    @_TABLE.operation("GET", "/openapi.json")
    async def openapi(self, request: Request, body: schemas.NoBody) -> schemas.Document:
        """This document."""
        return schemas.Document(**document(self._operations))


async def raw_body(request: Request) -> bytes:
    """A request's body, which is a short one. Raises RequestTooLarge."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > _BODY_BYTES:
            raise RequestTooLarge
    return bytes(raw)


async def _body(request: Request, shape: type[BaseModel]) -> BaseModel:
    """A request's body; none at all is an empty object.

    Raises RequestTooLarge, UnsupportedMediaType, InvalidEncoding, InvalidJSON, JSONTooDeep and InvalidType.
    """
    raw = await raw_body(request)
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
