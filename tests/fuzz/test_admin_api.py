"""The admin API against its own OpenAPI document, by requests that schemathesis makes up from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.clients import ADMIN, admin, making_chats, question
from tests.support.remembering import ana_speaks, noting_ana, remembering
from tests.support.upstreams import running

pytest.importorskip("schemathesis")

EXAMPLES = 50
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
)
KNOWN = """
[[operations]]
include-path-regex = "/sessions/"
parameters = {{ "path.id" = "chat" }}

[[operations]]
include-path-regex = "/memory/"
parameters = {{ "path.id" = "{item}" }}
"""


class Served(NamedTuple):
    """A proxy that holds a session, and remembers what was said in another."""

    url: str
    item: str


@pytest.fixture
async def served(tmp_path: Path) -> AsyncGenerator[Served]:
    model = noting_ana()
    async with running(model), remembering(model, tmp_path) as url, making_chats() as chats:
        chat = chats(url, X_Unabridged_Session="chat")
        for number in range(5):
            await chat.ask(question(number))
        await ana_speaks(model, url, chats)
        yield Served(url, (await admin(url, "memory", query="Oslo"))["items"][0]["id"])


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("parameters", "methods"),
    [(KNOWN, ("--exclude-method", "DELETE")), ("", ())],
    ids=["of a session and an item", "of any that may be named"],
)
async def test_it_answers_whatever_is_asked_as_its_document_says(
    served: Served, tmp_path: Path, parameters: str, methods: tuple[str, ...]
) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(parameters.format(item=served.item))
    options = [
        *("--header", f"Authorization: {ADMIN['Authorization']}", "--checks", ",".join(CHECKS)),
        *("--max-examples", str(EXAMPLES), "--no-color", "--seed", "1", *methods),
        *("--exclude-path", "/unabridged/v1/events"),  # a stream, which lasts as long as it is asked to
    ]
    program = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    running_now = await asyncio.create_subprocess_exec(
        *(*program, f"{served.url}/unabridged/v1/openapi.json", *options),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await running_now.communicate()
    assert running_now.returncode == 0, said.decode()[-8000:]
