"""One table of operations: what is routed, and what the OpenAPI document tells of, are read from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_type_hints

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request

from proxy.http.admin.schemas import ErrorTold, NoBody

PREFIX = "/unabridged/v1"
OPENAPI = "3.1.0"
_REFERENCE = "#/components/schemas/{model}"

Method = Literal["GET", "POST", "DELETE"]
Endpoint = Callable[[Any, Request, Any], Awaitable[BaseModel]]
"""A method that answers a request and its ``body``; its annotations say of which models these are."""
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
    endpoint: Endpoint
    query: Sequence[Query] = ()

    @cached_property
    def body(self) -> type[BaseModel]:
        """What it takes."""
        return get_type_hints(self.endpoint)["body"]

    @cached_property
    def answer(self) -> type[BaseModel]:
        """What it answers."""
        return get_type_hints(self.endpoint)["return"]


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
        described = "An id, the beginning of one, or a name; of one session alone."
        of_path = [_parameter("id", "path", described, "string") | {"required": True}]
        of_query = [_parameter(query.name, "query", query.description, query.type) for query in each.query]
        made: Schema = {
            "operationId": each.endpoint.__name__,
            "summary": each.endpoint.__doc__ or "",
            "parameters": [*(of_path if "{id}" in each.path else ()), *of_query],
            "responses": {
                "200": _content("Done.", references[each.answer, "serialization"]),
                "default": _content("An error.", references[ErrorTold, "serialization"]),
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
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _parameter(name: str, place: str, description: str, kind: str) -> Schema:
    return {"name": name, "in": place, "description": description, "schema": {"type": kind}}
