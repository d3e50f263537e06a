"""What the demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from proxy.cli.demo.conversation import QUESTIONS, TALK, TurnSeen
from proxy.cli.demo.show import Picture

HEADERS = {"stage": "trim", "epoch": "2", "tokens": "sent=820;full=2400;budget=984"}
DIRECT = TurnSeen(1, "Hello", "Good day to you.", 65, 0, 0, {})
PROXIED = TurnSeen(30, "Hello", "Good day to you.", 800, 760, 0, HEADERS)


def shown(*, is_live: bool) -> str:
    out = io.StringIO()
    picture = Picture(Console(file=out, force_terminal=is_live, width=160, height=40), is_live=is_live)
    with picture.shown():
        picture.say("1. Hello")
        picture.row(Text("refused"), Text("65 tokens"), Text("trim"))
        picture.answering([Text("refused")], "reading\x1b[2J")
        picture.note("Summary of 14 earlier messages: they greeted.\n- Never\x1b[2J suggest a boat trip.")
    return out.getvalue()


@pytest.mark.parametrize("is_live", [True, False])
def test_each_turn_has_a_row_of_three_columns_and_a_note_all_its_lines(*, is_live: bool) -> None:
    out = shown(is_live=is_live)
    (row,) = [line for line in out.splitlines() if "65 tokens" in line]
    assert row.index("refused") < row.index("65 tokens") < row.index("trim")
    assert "1. Hello" in out
    assert "they greeted." in out
    assert "suggest a boat trip." in out


def test_a_terminal_shows_what_is_being_said() -> None:
    assert "reading" in shown(is_live=True)
    assert "reading" not in shown(is_live=False)


def test_what_a_model_says_never_commands_the_terminal() -> None:
    assert "\x1b[2J" not in shown(is_live=False)
    assert "\x1b[2J" not in shown(is_live=True)


def test_a_turn_reads_the_tokens_of_the_proxy() -> None:
    assert [PROXIED.tokens(kind) for kind in ("sent", "full", "budget", "other")] == [820, 2_400, 984, 0]
    assert (DIRECT.tokens("sent"), DIRECT.stage, DIRECT.usage) == (0, "", 0.0)


def test_the_script_asks_something_new_each_turn() -> None:
    assert len({*TALK, *QUESTIONS}) == len(TALK) + len(QUESTIONS)
