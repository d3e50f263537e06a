"""One table of operations: what is routed, and what the OpenAPI document tells of, are read from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request

from proxy.http.admin.schemas import ErrorTold, NoBody

PREFIX = "/unabridged/v1"
OPENAPI = "3.1.0"
_REFERENCE = "#/components/schemas/{model}"

Method = Literal["GET", "POST", "DELETE"]
Endpoint = Callable[[Request, Any], Awaitable[BaseModel]]
"""Answers a request and its body, which is of the operation's ``body``."""
Schema = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A parameter of the query."""

    name: str
    description: str
    type: Literal["string", "integer"]


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: Method
    path: str
    """After the prefix; a member in braces is a part of the path."""
    name: str
    summary: str
    endpoint: Endpoint
    answer: type[BaseModel]
    body: type[BaseModel] = NoBody
    query: Sequence[Query] = ()


def document(operations: Sequence[Operation]) -> Schema:
    """The OpenAPI document of a table."""
    shapes: list[tuple[type[BaseModel], Literal["serialization", "validation"]]] = [
        (ErrorTold, "serialization"),
        *((each.answer, "serialization") for each in operations),
        *((each.body, "validation") for each in operations if each.body is not NoBody),
    ]
    references, definitions = models_json_schema(shapes, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Schema]] = {}
    for each in operations:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _operation(each, references)
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
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, references: Any) -> Schema:
    told: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation.path), *map(_query_parameter, operation.query)],
        "responses": {
            "200": _content("Done.", references[operation.answer, "serialization"]),
            "default": _content("An error.", references[ErrorTold, "serialization"]),
        },
    }
    if operation.body is not NoBody:
        schema = references[operation.body, "validation"]
        told["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
    return told


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _path_parameters(path: str) -> list[Schema]:
    if "{id}" not in path:
        return []
    described = "An id, the beginning of one, or a name; of one session alone."
    return [_parameter("id", "path", described, "string") | {"required": True}]


def _query_parameter(query: Query) -> Schema:
    return _parameter(query.name, "query", query.description, query.type)


def _parameter(name: str, place: str, description: str, kind: str) -> Schema:
    return {"name": name, "in": place, "description": description, "schema": {"type": kind}}
