"""What the session verbs show."""

import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from proxy.cli.sessions import listing, tools
from proxy.cli.terminal import show

TENANT = "3f" * 16


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def session(tag: str, name: str) -> dict[str, object]:
    numbers = {"tokens": 112_000, "budget": 112_000, "full_tokens": 250_000, "turns": 1000, "prune_count": 12}
    told = {"id": f"{TENANT}.{tag}.named", "name": name, "model": "gpt-4o-mini", "stage": "emergency"}
    told["began_with"] = "Where do we \x1b[31mgo from here?"
    return {**told, **numbers, "updated": "2026-11-22T03:47:42.000Z"}


def test_the_ids_and_numbers_of_a_listing_are_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tag, other = "0123456789abcdef01234567", "f" * 24
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    listed = [session(tag, "a trip to the harbour"), session(other, f"ub-{other}-x")]
    listed[1]["began_with"] = None
    show(*listing({"sessions": listed}), wraps=False)
    lines = Text.from_ansi(terminal.getvalue()).plain.splitlines()
    assert [line.split()[0] for line in lines] == ["id", *(each["id"] for each in listed)]
    assert "112,000  112,000  250,000  1,000      12" in lines[1]
    assert "Where do we  [31mgo from here?  " in lines[1]
    assert "ub-" not in "".join(lines)


def test_the_name_of_a_model_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    listed = session("0" * 24, "a trip")
    listed["model"] = "small\x1b[31m"
    show(*listing({"sessions": [listed]}), wraps=False)
    assert "small·[31m" in capsys.readouterr().out


def test_a_listing_says_how_many_sessions_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = {"unknown_secret": 1, "newer_release": 12, "damaged": 0}
    show(*listing({"sessions": [], "left_out": left_out}), wraps=False)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1 session is not shown: it was written under an UNABRIDGED_SECRET that the server does not know",
        "12 sessions are not shown: they were written by a newer release",
    ]


def test_fresh_results_are_shown_a_line_each_without_what_a_terminal_would_obey() -> None:
    result = {
        "tool_name": "get_user",
        "parameters": {"id": 5},
        "result": "Mia\x1b[2J\nand more",
        "result_bytes": 1_234,
        "remaining_duration": 2,
        "original_duration": 3,
        "call_id": "c1",
        "cached_at": "2026-11-22T03:47:42.000Z",
        "hits": 1,
    }
    console = Console(width=160, record=True, force_terminal=False)
    for each in tools({"policy": "p", "tools": [result, {**result, "parameters": "{broken"}]}):
        console.print(each)
    lines = [line for line in console.export_text().splitlines() if "get_user" in line]
    assert 'get_user({"id":5})' in lines[0]
    assert "get_user({broken)" in lines[1]
    assert all(
        "\x1b" not in line and "2 of 3" in line and "1,234" in line and "Mia [2J and more" in line
        for line in lines
    )


def test_without_a_fresh_result_the_policy_is_named() -> None:
    assert list(tools({"policy": "support", "tools": []})) == [
        "no tool result is fresh under the policy support"
    ]
