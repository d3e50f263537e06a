"""The `llm` command, once for each turn, as somebody types it. It keeps its history in its own database."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import dialogue


def main() -> None:
    task = dialogue.read()
    with tempfile.TemporaryDirectory() as home:
        model = {
            "model_id": "scripted",
            "model_name": task.model,
            "api_base": task.base_url,
            "api_key_name": "scripted",
            "headers": task.headers,
            "supports_tools": True,
        }
        Path(home, "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
        llm = [sys.executable, "-m", "llm", "prompt", "--model", "scripted", "--key", task.api_key]
        llm += ["--functions", inspect.getsource(dialogue.look_up)]
        for number, turn in enumerate(task.turns):
            words = [*llm, *(() if turn.stream else ("--no-stream",)), *(("--continue",) if number else ())]
            asked = subprocess.run(
                [*words, turn.text],
                env={**os.environ, "LLM_USER_PATH": home},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            dialogue.tell(asked.stdout.removesuffix("\n"))


main()
