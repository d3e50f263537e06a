"""A real agent as a user has it: Qwen Code, told nothing but a base URL, at work with a shell.

Its system prompt and tools are some 19,000 tokens, it asks for 8,000 tokens of answer, and each listing is
some 1,500 more. The model is scripted: it wants the listing so many times, and then says that it is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import MODULES, ROOT, node
from tests.clients.serving import serving, sessions
from tests.support.clients import admin, write_policy
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import (
    COUNTER,
    EVENTS,
    Message,
    calling,
    count_tokens,
    events,
    fault_in,
    said,
    sse,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

QWEN = MODULES / "@qwen-code" / "qwen-code"
PATIENCE = 240.0
"""Seconds for the whole task: each round starts a shell."""
LISTING = 'for i in $(seq 120); do echo "line $i of the listing, order A-$((i * 7919))"; done'
DONE = "All done: the listing was read."
WINDOW = 40_000


@dataclass
class Worker:
    """A model that asks for the listing `rounds` times."""

    rounds: int
    bodies: list[Message] = field(default_factory=list[Message])
    others: list[str] = field(default_factory=list[str])

    async def serve_one(self, exchange: Exchange) -> None:
        whole = await exchange.body()
        if not exchange.request.target.endswith("/chat/completions"):
            self.others.append(exchange.request.target)
            await exchange.answer_json({"error": {"message": "not found"}}, 404)
            return
        body = json.loads(whole)
        self.bodies.append(body)
        number = len(self.bodies)
        arguments = json.dumps(
            {"command": f"{LISTING} # {number}", "description": "list", "is_background": False}
        )
        is_over = number > self.rounds
        answer = said(DONE) if is_over else calling((f"call_{number}", "run_shell_command", arguments))
        await exchange.start(200, [EVENTS])
        for event in events(answer, count_tokens(body)):
            await exchange.chunk(sse(event))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()


async def work(base_url: str, home: Path) -> str:
    """Let the agent do its task in an empty directory; what it says in the end."""
    if not QWEN.is_dir():
        pytest.skip(f"{QWEN.name} not in {MODULES.relative_to(ROOT)}: `make clients` installs it")
    await asyncio.to_thread(home.mkdir)
    process = await asyncio.create_subprocess_exec(
        *(str(node()), str(QWEN / "cli.js"), "--yolo", "--auth-type", "openai", "-p", "List it."),
        cwd=home,
        env={
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "OPENAI_API_KEY": "sk-agent",
            "OPENAI_BASE_URL": base_url,
            "OPENAI_MODEL": "m",
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            told, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaint.decode()
    return told.decode().strip()


async def only_session(url: str) -> Any:
    (session,) = (await sessions(url)).values()
    return session


async def test_with_a_model_that_nobody_knows_nothing_is_cut_and_it_answers_as_without_the_proxy(
    upstream: FakeUpstream, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    await asyncio.to_thread(data.mkdir)
    alone, through = Worker(rounds=12), Worker(rounds=12)
    upstream.script = alone.serve_one
    without = await work(f"{upstream.url}/v1", tmp_path / "alone")
    upstream.script = through.serve_one
    async with serving(f"{upstream.url}/v1", data) as url:
        assert await work(f"{url}/v1", tmp_path / "through") == without == DONE
        session = await only_session(url)
    assert (session["epochs"], session["budget"], session["window_from"]) == ([], None, "unknown")
    roles = [
        [[message["role"] for message in body["messages"]] for body in each.bodies]
        for each in (alone, through)
    ]
    assert roles[0] == roles[1]
    assert all(body["max_tokens"] == 8_000 for body in through.bodies), "what made a budget of 1,000 once"


async def test_in_a_known_window_it_goes_on_far_beyond_it(upstream: FakeUpstream, tmp_path: Path) -> None:
    data = tmp_path / "data"
    await asyncio.to_thread(data.mkdir)
    worker = Worker(rounds=24)
    upstream.script = worker.serve_one
    policy = write_policy(tmp_path, "known", f'extends = "default"\n[budget.windows]\nm = {WINDOW}\n')
    async with serving(f"{upstream.url}/v1", data, "--policy", str(policy)) as url:
        assert await work(f"{url}/v1", tmp_path / "home") == DONE
        session = await only_session(url)
        kept = await admin(url, f"sessions/{session['id']}/export")
    assert session["full_tokens"] > WINDOW
    assert max(map(count_tokens, worker.bodies)) <= WINDOW - 8_000
    assert [fault_in(body["messages"]) for body in worker.bodies] == [None] * len(worker.bodies)
    assert 1 <= len(session["epochs"]) <= 8
    originals = [json.dumps(message) for message in kept["messages"] if message["role"] != "system"]
    notes = [
        cut for epochs in kept["epochs"].values() for epoch in epochs for cut in epoch["cut"] if cut["note"]
    ]
    assert notes
    for note in notes:
        stood_there = sum(COUNTER.count(text) for text in originals[note["start"] : note["end"]])
        assert COUNTER.count(note["note"]) <= stood_there
        numbers = re.findall(r"PGID: ([\d ]+)", note["note"])
        assert all(len(found.split()) <= 1 for found in numbers), (
            "a number that is another each time is no fact"
        )
