"""Nothing is downloaded at run time: it starts, counts, prices and answers where only loopback is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.clients import Chat, metrics, question, told
from tests.support.processes import environment, serving
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import Model

MODELS = ["gpt-4o", "gpt-4", "o3-mini", "claude-sonnet-4-5", "gemini-2.5-pro", "llama-3.1-8b", "nobody-knows"]


def offline(notes: Path) -> list[str]:
    return [sys.executable, "-m", "tests.supply.offline", str(notes)]


async def test_it_starts_and_answers_for_every_kind_of_model_and_asks_nobody_else(
    model: Model, tmp_path: Path
) -> None:
    noted: list[bytes] = []

    async def note(exchange: Exchange) -> None:
        noted.append(exchange.request.line)
        exchange.close()

    notes = tmp_path / "asked"
    async with FakeUpstream(note).serve() as trap:
        proxies: dict[str, Any] = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), trap.url)
        aside: dict[str, Any] = {"NO_PROXY": "127.0.0.1,localhost"}
        async with serving(
            tmp_path, "--upstream", model.url, program=offline(notes), **proxies, **aside
        ) as served:
            for name in MODELS:
                chat = Chat(served.url)
                chat.members["model"] = name
                async with chat.client:
                    for number in range(3):
                        answer = await chat.ask(question(number))
                        assert (answer.status_code, told(answer, "stage")) == (200, "calm"), answer.text
            assert (await metrics(served.url))["unabridged_degraded"] == 0, "the embedded store is up"
    assert not notes.exists(), notes.read_text()
    assert noted == []


def test_the_watch_sees_who_asks(tmp_path: Path) -> None:
    notes = tmp_path / "asked"
    server = {"UNABRIDGED_SERVER": "http://somewhere.example", "UNABRIDGED_ADMIN_TOKEN": "t"}
    asking = [*offline(notes), "sessions", "list"]
    done = subprocess.run(asking, env=environment(tmp_path) | server, capture_output=True, check=False)
    assert done.returncode != 0
    assert "somewhere.example" in notes.read_text()
