"""The admin API's document says what the API does, and nobody else may ask it."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from proxy.http.admin import bills, export, memory_schemas, schemas, watching
from tests.support.clients import ADMIN, KEY, Chat, admin
from tests.support.operator import ask, code, do

CHANGES = [("DELETE", "")] + [
    ("POST", f"/{verb}") for verb in ("fork", "compact", "restore", "pin", "pause", "resume")
]

PARTS = ("transcript", "view", "explain", "tools", "state", "export")
MEMORIES = [(method, f"{of}memory") for of in ("", "me/") for method in ("GET", "DELETE")] + [
    *(("GET", "memory/{id}"), ("DELETE", "memory/{id}"), ("GET", "memory/{id}/log")),
    *(("POST", "memory/{id}/restore"), ("POST", "memory/maintain")),
]


class TestTheDoor:
    @pytest.mark.parametrize(("method", "verb"), [*CHANGES, ("GET", "/export")])
    async def test_no_verb_is_open_without_the_token_or_to_a_clients_key(
        self, url: str, chat: Chat, method: str, verb: str
    ) -> None:
        before = await admin(url, "sessions/chat/export")
        for key, expected in (("", (401, "unauthorized")), (KEY, (403, "forbidden"))):
            response = await ask(url, method, f"sessions/chat{verb}", Authorization=key)
            assert code(response) == expected
        assert {**await admin(url, "sessions/chat/export"), "exported": ""} == {**before, "exported": ""}

    @pytest.mark.parametrize(("method", "verb"), CHANGES)
    async def test_a_session_that_is_not_there_is_not_found(self, url: str, method: str, verb: str) -> None:
        assert code(await ask(url, method, f"sessions/nobody{verb}")) == (404, "not_found")

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (b"{", (400, "invalid_json")),
            (b"\xff", (400, "invalid_encoding")),
            (b"[]", (400, "invalid_type")),
            (b'{"mesages": "1-2"}', (400, "unknown_parameter")),
            (b'{"messages": "4-"}', (400, "invalid_type")),
            (b'{"messages": [-1]}', (400, "invalid_value")),
            (b'{"messages": "0-999999"}', (400, "invalid_value")),
            (b'{"epoch": -1}', (400, "invalid_value")),
            (b'{"messages": "0", "epoch": 1}', (400, "invalid_type")),
            (b'{"epoch": %b}' % (b"1" * 5_000), (400, "invalid_type")),
            (b"[" * 60_000, (400, "json_too_deep" if sys.version_info < (3, 14) else "invalid_json")),
            (b" " * 70_000, (413, "request_too_large")),
        ],
        ids=lambda value: str(value)[:30],
    )
    async def test_a_body_that_makes_no_sense_is_refused(
        self, url: str, chat: Chat, body: bytes, expected: tuple[int, str]
    ) -> None:
        headers = {**ADMIN, "Content-Type": "application/json"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            response = await client.post("/unabridged/v1/sessions/chat/restore", content=body)
        assert code(response) == expected

    @pytest.mark.parametrize("body", [None, {}])
    async def test_without_messages_nothing_can_be_pinned(
        self, url: str, chat: Chat, body: dict[str, Any] | None
    ) -> None:
        answer = await ask(url, "POST", "sessions/chat/pin", body)
        assert code(answer) == (400, "missing_required_parameter")
        assert answer.json()["error"]["param"] == "messages"

    async def test_a_form_is_no_body(self, url: str, chat: Chat) -> None:
        headers = {**ADMIN, "Content-Type": "application/x-www-form-urlencoded"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            response = await client.post("/unabridged/v1/sessions/chat/fork", content=b"at=1")
        assert code(response) == (415, "unsupported_media_type")

    @pytest.mark.parametrize(
        ("method", "path", "message"),
        [
            ("GET", "sessions?limt=5", "There is no parameter `limt`; did you mean `limit`?"),
            ("GET", "sessions/chat/view?everything=1", "There is no parameter `everything`."),
            (
                "DELETE",
                "me/memory?workspace=w&chanel=c",
                "There is no parameter `chanel`; did you mean `channel`?",
            ),
        ],
    )
    async def test_a_parameter_that_there_is_not_is_refused_with_the_nearest(
        self, url: str, chat: Chat, method: str, path: str, message: str
    ) -> None:
        answer = await ask(url, method, path)
        assert code(answer) == (400, "unknown_parameter")
        assert answer.json()["error"]["message"] == message

    async def test_another_method_is_not_allowed(self, url: str) -> None:
        assert code(await ask(url, "PUT", "sessions/chat")) == (405, "method_not_allowed")


@pytest.fixture
async def document(url: str) -> dict[str, Any]:
    return await admin(url, "openapi.json")


def references(value: Any) -> list[str]:
    return re.findall(r'"\$ref": "([^"]+)"', json.dumps(value))


class TestTheDocument:
    async def test_every_reference_leads_to_a_schema_and_every_operation_has_its_name(
        self, document: dict[str, Any]
    ) -> None:
        assert document["openapi"].startswith("3.1")
        schemas = document["components"]["schemas"]
        assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= schemas.keys()
        operations = [each for path in document["paths"].values() for each in path.values()]
        assert len({each["operationId"] for each in operations}) == len(operations)
        for path, methods in document["paths"].items():
            for operation in methods.values():
                named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
                assert named == ({"id"} if "{id}" in path else set())

    async def test_it_has_every_route_of_the_contract(self, document: dict[str, Any]) -> None:
        told_of = {
            (method.upper(), path) for path, methods in document["paths"].items() for method in methods
        }
        one = "/unabridged/v1/sessions/{id}"
        assert told_of == {
            ("GET", "/unabridged/v1/openapi.json"),
            ("GET", "/unabridged/v1/events"),
            ("GET", "/unabridged/v1/sessions"),
            ("GET", one),
            ("GET", "/unabridged/v1/stats"),
            ("GET", "/unabridged/v1/notices"),
            *(
                ("GET", f"{one}/{part}")
                for part in ("transcript", "view", "explain", "tools", "state", "export")
            ),
            *((method, f"{one}{verb}") for method, verb in CHANGES),
            *((method, f"/unabridged/v1/{path}") for method, path in MEMORIES),
        }

    async def test_every_answer_is_of_its_schema(
        self, url: str, chat: Chat, document: dict[str, Any]
    ) -> None:
        await do(url, "compact", {"messages": "0-3"})
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if method == "delete" or "/memory/{id}" in path or path.endswith("/events"):
                    continue  # nothing is remembered here: `tests.e2e.memory` has items; events do not end
                body = {"messages": "4-7"} if path.endswith(("/compact", "/pin")) else None
                route = (
                    path.removeprefix("/unabridged/v1/")
                    .replace("{id}", "chat")
                    .replace("me/memory", "me/memory?user=ana")
                )
                answer = await ask(url, method.upper(), route, body)
                assert answer.status_code == 200, (path, answer.text)
                shape(operation, "200").model_validate_json(answer.content)
        deleted = await ask(url, "DELETE", "sessions/chat")
        shape(document["paths"]["/unabridged/v1/sessions/{id}"]["delete"], "200").model_validate(
            deleted.json()
        )
        refused = await ask(url, "GET", "sessions/chat")
        operation = document["paths"]["/unabridged/v1/sessions/{id}"]["get"]
        shape(operation, "default").model_validate(refused.json())


def shape(operation: dict[str, Any], status: str) -> type[BaseModel]:
    """The model that the document names for an answer; the schema is made from it."""
    reference: str = operation["responses"][status]["content"]["application/json"]["schema"]["$ref"]
    models = {**vars(schemas), **vars(export), **vars(memory_schemas), **vars(bills), **vars(watching)}
    return models[reference.rpartition("/")[2]]
