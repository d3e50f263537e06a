"""Sessions in files, and what `unabridged replay` says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main

Session = dict[str, Any]


def session(name: str | None = "first", exchanges: int = 40) -> Session:
    messages: list[dict[str, str]] = [{"role": "system", "content": "Be brief."}]
    for place in range(exchanges):
        messages.append({"role": "user", "content": f"Question {place}: " + "why is that so? " * 10})
        messages.append(
            {"role": "assistant", "content": f"Answer {place}: " + "because it was so before. " * 10}
        )
    return {"messages": messages} if name is None else {"id": name, "messages": messages}


def written(path: Path, *sessions: Session) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in sessions))
    return str(path)


def replayed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["replay", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["policies"]
