"""The admin API against its own OpenAPI document, by requests that schemathesis makes up from it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.support.clients import ADMIN, Chat, proxying, question
from tests.support.upstreams import Model, running

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
CHAT = """
[parameters]
"path.id" = "chat"
"""


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    """A proxy that holds a session."""
    async with running(Model()) as model, proxying(model.url) as served:
        chat = Chat(served)
        chat.headers["X-Unabridged-Session"] = "chat"
        for number in range(5):
            await chat.ask(question(number))
        await chat.client.aclose()
        yield served


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("parameters", "methods"),
    [(CHAT, ("--exclude-method", "DELETE")), ("", ())],
    ids=["of a session", "of any that may be named"],
)
async def test_it_answers_whatever_is_asked_as_its_document_says(
    url: str, tmp_path: Path, parameters: str, methods: tuple[str, ...]
) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(parameters)
    options = [
        *("--header", f"Authorization: {ADMIN['Authorization']}", "--checks", ",".join(CHECKS)),
        *("--max-examples", str(EXAMPLES), "--no-color", "--seed", "1", *methods),
    ]
    program = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    running_now = await asyncio.create_subprocess_exec(
        *(*program, f"{url}/unabridged/v1/openapi.json", *options),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await running_now.communicate()
    assert running_now.returncode == 0, said.decode()[-8000:]
