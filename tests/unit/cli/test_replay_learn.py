"""`unabridged replay --learn`: rules out of recorded sessions, and what they come to on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from tests.support.replays import Session, session, written

Message = dict[str, Any]
POLICY = """
extends = "default"
[budget]
tokens = 2500
[ledger]
share = 0
[economy]
enabled = false
[tool_results]
clear_first = false
"""


def called(number: int, tool: str, result: str) -> list[Message]:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": tool, "arguments": f'{{"of": {number}}}'},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def needing(name: str, rounds: int = 24) -> Session:
    """A session in which what one tool has told is used long after, and what another has told never is."""
    messages: list[Message] = [{"role": "user", "content": "Look after the bookings of the harbour, please."}]
    for number in range(rounds):
        messages += called(2 * number, "find_booking", f"booking QX{name}{number:04}Z is paid")
        messages += called(2 * number + 1, "weather", "It is fine, and so it goes on. " * 12)
        known = f"QX{name}{number // 2:04}Z"
        messages += [
            {"role": "assistant", "content": f"Of these I have written down {known}, which is settled."},
            {"role": "user", "content": f"Then go on with number {number}."},
        ]
    return {"id": name, "messages": messages}


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path / "talks.jsonl", *(needing(f"s{number}") for number in range(6)))


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "harbour.toml"
    path.write_text(POLICY)
    return str(path)


def learned(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["replay", "--learn", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_never_asked_for_goes_first_and_less_is_missed_on_sessions_not_learned_from(
    file: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = learned(capsys, file, "--policy", policy)
    assert told["learned_from"] + told["tried_on"] == 6
    assert min(told["learned_from"], told["tried_on"]) > 0
    assert told["before"]["missed"]["used"] > 0
    assert any(
        "weather are cut first" in change or "find_booking are kept" in change for change in told["changes"]
    )
    assert sum(told["after"]["missed"].values()) < sum(told["before"]["missed"].values())


def test_it_is_the_same_each_time(file: str, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert learned(capsys, file, "--policy", policy) == learned(capsys, file, "--policy", policy)


def test_what_it_prints_is_a_policy_that_check_accepts(
    file: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--learn", file, "--policy", policy]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "learned.toml"
    path.write_text(printed)
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    assert 'tool = "weather"' in out or 'tool = "find_booking"' in out
    assert [line for line in out.splitlines() if line.startswith("warning")] == []
    assert "# On the other" in printed


def test_where_nothing_is_missed_the_policy_stays_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "short.jsonl", *(session(f"s{number}", 3) for number in range(6)))
    assert main(["replay", "--learn", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ['extends = "default"']


def test_one_session_teaches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "one.jsonl", session("one", 3))
    assert main(["replay", "--learn", file]) == 1
    assert "nothing to learn" in capsys.readouterr().err


def test_it_learns_under_one_policy_at_a_time(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "--learn", file, "--policy", "default", "--policy", "agent"]) == 1
    assert "one policy" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--turns", "--idle=5", "--html=page.html"])
def test_what_it_would_not_heed_is_refused(
    file: str, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["replay", "--learn", file, option]) == 2
    said = f"unabridged: --learn makes no report: leave out {option.partition('=')[0]}\n"
    assert capsys.readouterr() == ("", said)
