"""The admin API: one table of operations, from which its routes and its OpenAPI document are made.

A client's own key gives access only to what is remembered under its own names. All other operations need the
admin token: without any token the answer is 401, with another one 403.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy import errors
from proxy.core.formats.json import dumps
from proxy.core.text.similarity import did_you_mean
from proxy.http.admin.auth import AdminAuth
from proxy.http.admin.schemas import OUT_OF_RANGE, Document, ErrorReport, NoBody
from proxy.http.request_head import check_credentials, request_id, require_json

PREFIX = "/unabridged/v1"
OPENAPI = "3.1.0"
_REFERENCE = "#/components/schemas/{model}"

Method = Literal["GET", "POST", "DELETE"]
Endpoint = Callable[[Request, Any], Awaitable[BaseModel | Response]]
"""A method that answers a request and its ``body``; its annotations say of which models these are."""
Schema = dict[str, Any]
_JSON = "application/json"
Body = TypeVar("Body", bound=BaseModel)
_Made = TypeVar("_Made", bound=Callable[..., Any])
_BODY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Query:
    """A parameter of the query."""

    name: str
    description: str
    type: Literal["string", "integer"]


@dataclass(frozen=True)
class Operation:
    """An operation: one method of one path."""

    method: Method
    path: str
    """The path after the prefix; names in braces stand for segments."""
    endpoint: Endpoint
    query: Sequence[Query]
    is_for_clients: bool
    """Whether it is authorised by a client's own key, which also says whose data it is about."""
    media: str
    """The content type of the response; for events, `answer` describes one event."""

    @cached_property
    def body(self) -> type[BaseModel]:
        return get_type_hints(self.endpoint)["body"]

    @cached_property
    def answer(self) -> type[BaseModel]:
        hint = get_type_hints(self.endpoint)["return"]
        return next(each for each in get_args(hint) or (hint,) if issubclass(each, BaseModel))


_TABLE: list[Operation] = []
"""All operations, with functions of classes as endpoints."""


def operation(
    method: Method, path: str, *query: Query, is_for_clients: bool = False, media: str = _JSON
) -> Callable[[_Made], _Made]:
    """Enter a method of a class as an operation: its docstring is the summary, its types are the schemas."""

    def enter(endpoint: _Made) -> _Made:
        _TABLE.append(Operation(method, path, endpoint, query, is_for_clients, media))
        return endpoint

    return enter


def operations_of(part: object) -> list[Operation]:
    """Return the operations of the class of ``part``, with its own methods as endpoints."""
    own = [each for each in _TABLE if each.endpoint in vars(type(part)).values()]
    return [replace(each, endpoint=getattr(part, each.endpoint.__name__)) for each in own]


def number(request: Request, name: str, usual: int, most: int) -> int:
    """Return a positive number from the query. Raises InvalidType, and InvalidValue above ``most``."""
    text = request.query_params.get(name, str(usual))
    given = int(text[:9]) if text.isascii() and text.isdigit() else 0
    if not given:
        raise errors.InvalidType(f"`{name}` must be a whole number above 0.", param=name)
    if given > most:
        raise errors.InvalidValue(f"`{name}` is at most {most:,}.", param=name)
    return given


class AdminAPI:
    """Serves the operations of all ``parts`` to those whom ``auth`` admits."""

    def __init__(self, auth: AdminAuth, *parts: object) -> None:
        self._operations = [each for part in (self, *parts) for each in operations_of(part)]
        self._auth = auth

    def routes(self) -> list[Route]:
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
                        self._auth.check(request)
                    names = [each.name for each in asked.query]
                    for unknown in (each for each in request.query_params if each not in names):
                        hint = did_you_mean(unknown, names) or "."
                        raise errors.UnknownParameter(
                            f"There is no parameter `{unknown}`{hint}", param=unknown
                        )
                    answer = await asked.endpoint(request, await _body(request, asked.body))
                except errors.UnabridgedError as error:
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

    @operation("GET", "/openapi.json")
    async def openapi(self, request: Request, body: NoBody) -> Document:
        """Read this document."""
        return Document(**document(self._operations))


async def raw_body(request: Request) -> bytes:
    """Return a request's body, which must be short. Raises RequestTooLarge."""
    raw = bytearray()
    async for part in request.stream():
        raw += part
        if len(raw) > _BODY_BYTES:
            raise errors.RequestTooLarge
    return bytes(raw)


async def _body(request: Request, shape: type[Body]) -> Body:
    """Decode a request's body; a missing body is an empty object. Raises RequestError."""
    raw = await raw_body(request)
    if not raw or shape is NoBody:
        return shape()
    require_json(request.headers.get("content-type", "").encode("latin-1"))
    try:
        value = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise errors.InvalidEncoding from error
    except RecursionError as error:
        raise errors.JSONTooDeep from error
    except json.JSONDecodeError as error:
        raise errors.InvalidJSON(offset=len(error.doc[: error.pos].encode())) from error
    except ValueError as error:  # Python's own limit
        raise errors.InvalidType("The body: a number has too many digits.") from error
    return validated(shape, value)


def validated(shape: type[Body], value: object) -> Body:
    """Return a request's values as a model.

    Raises InvalidType, InvalidValue or UnknownParameter, which names the first wrong member.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        member = str(first["loc"][0]) if first["loc"] else None
        if member and first["type"] == "extra_forbidden":
            hint = did_you_mean(member, shape.model_fields) or "."
            raise errors.UnknownParameter(f"There is no parameter `{member}`{hint}", param=member) from None
        why = first["msg"][:1].lower() + first["msg"][1:]
        kind = errors.InvalidValue if first["type"] in OUT_OF_RANGE else errors.InvalidType
        raise kind(f"`{member}`: {why}." if member else f"The body: {why}.", param=member) from None


# --- the document ---

_IDS = {
    "sessions": "An id, the beginning of one, or a name; of one session alone.",
    "memory": "The id of an item.",
}
"""What the id in a path identifies, by the path's first segment."""
_KEYS = {
    "token": "The admin token.",
    "client": "A client's own key. Who sends none is a caller of its own, as in a chat.",
}


def document(operations: Sequence[Operation]) -> Schema:
    """Return the OpenAPI document of these operations."""
    shapes: list[tuple[type[BaseModel], Literal["serialization", "validation"]]] = [
        (ErrorReport, "serialization"),
        *((each.answer, "serialization") for each in operations),
        *((each.body, "validation") for each in operations if each.body is not NoBody),
    ]
    references, definitions = models_json_schema(shapes, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Schema]] = {}
    for each in operations:
        about = _IDS.get(each.path.split("/")[1], "")
        of_path = [_parameter("id", "path", about, "string") | {"required": True}]
        of_query = [_parameter(query.name, "query", query.description, query.type) for query in each.query]
        made: Schema = {
            "operationId": each.endpoint.__name__,
            "summary": each.endpoint.__doc__ or "",
            "security": [{"client": []}, {}] if each.is_for_clients else [{"token": []}],
            "parameters": [*(of_path if "{id}" in each.path else ()), *of_query],
            "responses": {
                "200": _content("Done.", references[each.answer, "serialization"], each.media),
                "default": _content("An error.", references[ErrorReport, "serialization"]),
            },
        }
        if each.body is not NoBody:
            schema = references[each.body, "validation"]
            made["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = made
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Unabridged: the admin API",
            "version": "1",
            "description": "For whoever holds the admin token. Times are UTC, tokens are the model's.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": description}
                for name, description in _KEYS.items()
            },
        },
    }


def _content(description: str, schema: Schema, media: str = _JSON) -> Schema:
    return {"description": description, "content": {media: {"schema": schema}}}


def _parameter(name: str, place: str, description: str, kind: str) -> Schema:
    return {"name": name, "in": place, "description": description, "schema": {"type": kind}}
