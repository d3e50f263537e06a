"""What the demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from proxy.cli.demo.conversation import QUESTIONS, Refusal, TurnSeen
from proxy.cli.demo.show import Picture

HEADERS = {"stage": "trim", "epoch": "2", "tokens": "sent=820;full=2400;budget=984"}
DIRECT = TurnSeen(1, "Hello", "Good day to you.", 65, 0, {})
PROXIED = TurnSeen(30, "Hello\x1b[2J", "Good day\x1b[2J to you.", 800, 760, HEADERS)


def shown(*, is_live: bool) -> str:
    out = io.StringIO()
    picture = Picture(Console(file=out, force_terminal=is_live, width=160, height=40), is_live=is_live)
    with picture.shown():
        picture.title("Without the proxy")
        picture.remark("Hello")
        picture.answered(DIRECT)
        picture.refused(Refusal(15, "And then?", "It does not fit."))
        picture.title("With it")
        picture.answered(PROXIED)
        picture.remark("reading")
        picture.summary("Summary of 14 earlier messages: they greeted.")
    return out.getvalue()


@pytest.mark.parametrize("is_live", [True, False])
def test_lines_tell_each_turn_the_refusal_and_the_summary(*, is_live: bool) -> None:
    out = re.sub(r"\x1b\[[\d;?]*\w", "", shown(is_live=is_live))
    assert "turn 1: 65 tokens sent  Good day to you." in out
    assert "turn 15: refused. It does not fit." in out
    assert "turn 30: 2,400 tokens, 820 sent  trim (83%), epoch 2  760 cached" in out
    assert "Summary of 14 earlier messages: they greeted." in out


def test_a_terminal_shows_the_budget_with_its_marks_and_what_is_going_on() -> None:
    out = shown(is_live=True)
    for piece in ("83% of the budget", "┃", "│", "reading"):
        assert piece in out
    assert "reading" not in shown(is_live=False)


def test_what_a_model_says_never_commands_the_terminal() -> None:
    assert "\x1b[2J" not in shown(is_live=False)
    assert "\x1b[2J" not in shown(is_live=True)


def test_a_turn_reads_the_tokens_of_the_proxy() -> None:
    assert [PROXIED.tokens(kind) for kind in ("sent", "full", "budget", "other")] == [820, 2_400, 984, 0]
    assert (DIRECT.tokens("sent"), DIRECT.stage, DIRECT.usage) == (0, "", 0.0)


def test_the_script_asks_something_new_each_turn() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) > 40
