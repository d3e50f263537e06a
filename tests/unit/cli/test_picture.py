"""What the demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from proxy.cli.demo.conversation import Refusal, TurnSeen
from proxy.cli.demo.picture import Picture
from proxy.cli.demo.script import QUESTIONS

HEADERS = {"stage": "trim", "epoch": "2", "tokens": "sent=820;full=2400;budget=984"}
DIRECT = TurnSeen(1, "Hello", "Good day to you.", 65, 0, {})
PROXIED = TurnSeen(30, "Hello\x1b[2J", "Good day\x1b[2J to you.", 800, 760, HEADERS)


def shown(*, is_live: bool) -> str:
    out = io.StringIO()
    picture = Picture(Console(file=out, force_terminal=is_live, width=160, height=40), is_live=is_live)
    with picture.shown():
        picture.title("Without the proxy")
        picture.writing("Hello", "Good")
        picture.answered(DIRECT)
        picture.refused(Refusal(15, "And then?", "It does not fit."))
        picture.title("With it")
        picture.answered(PROXIED)
        picture.remark("reading")
        picture.summary("Summary of 14 earlier messages: they greeted.")
    return out.getvalue()


def test_lines_tell_each_turn_the_refusal_and_the_summary() -> None:
    out = shown(is_live=False)
    assert "turn 1: 65 tokens sent  Good day to you." in out
    assert "turn 15: refused. It does not fit." in out
    assert "turn 30: 2,400 tokens, 820 sent  trim (83%), epoch 2  760 cached" in out
    assert "Summary of 14 earlier messages: they greeted." in out


def test_the_screen_keeps_what_came_before_and_shows_the_bar_with_its_marks() -> None:
    out = shown(is_live=True)
    for piece in (
        "Without the proxy",
        "It does not fit.",
        "With it",
        "2,400",
        "760 of 800",
        "83%",
        "in place of",
    ):
        assert piece in out
    assert "┃" in out
    assert "│" in out


def test_what_a_model_says_never_commands_the_terminal() -> None:
    assert "\x1b[2J" not in shown(is_live=False)
    assert "\x1b[2J" not in shown(is_live=True)


def test_a_turn_reads_the_tokens_of_the_proxy() -> None:
    assert [PROXIED.tokens(kind) for kind in ("sent", "full", "budget", "other")] == [820, 2_400, 984, 0]
    assert (DIRECT.tokens("sent"), DIRECT.stage, DIRECT.usage) == (0, "", 0.0)


def test_the_script_asks_something_new_each_turn() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS) > 40
