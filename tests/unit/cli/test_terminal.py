"""What goes to a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli.terminal import bar, print_json, printable, show, table, words
from proxy.core.policy.sections import Stages
from proxy.core.text.cutting import one_line

STAGES = Stages().model_dump()


def test_the_marks_are_where_stages_begin() -> None:
    assert bar(0, STAGES, 10).plain == "░░░░░│░│││ "


def test_a_bar_fills_up_to_the_usage_and_keeps_its_marks() -> None:
    assert bar(0.7, STAGES, 10).plain == "█████┃█│││ "


def test_what_is_over_the_budget_is_seen() -> None:
    assert bar(1.3, STAGES, 10).plain == "█████┃█┃┃┃▶"


@given(st.floats(0, 5), st.integers(1, 60))
def test_a_bar_has_its_width_whatever_the_usage(usage: float, width: int) -> None:
    assert len(bar(usage, STAGES, width).plain) == width + 1


@pytest.mark.parametrize(
    ("usage", "style"), [(0.1, "green"), (0.6, "yellow"), (0.85, "dark_orange"), (1.2, "bold red")]
)
def test_a_bar_has_the_colour_of_its_stage(usage: float, style: str) -> None:
    assert bar(usage, STAGES).style == style


@given(st.text())
def test_no_text_of_a_client_commands_the_terminal(text: str) -> None:
    assert one_line(text, 40).isprintable()
    assert len(one_line(text, 40)) <= 40
    assert printable(text).replace("\t", "").isprintable()


@pytest.mark.parametrize("text", ["日本 😀 \u202e", "half an emoji \ud83d, and a whole one 😀"])
def test_json_is_printed_exactly_whatever_a_client_has_said(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json({"content": text})
    assert json.loads(capsys.readouterr().out) == {"content": text}


def test_spaces_of_other_scripts_are_spaces() -> None:
    assert words("明日の\u3000予定: 10\u202f000\u00a0€") == "明日の 予定: 10 000 €"


def test_cells_read_as_people_write() -> None:
    assert [words(cell) for cell in (None, 1234, 0.5, True, "x")] == ["", "1,234", "0.50", "yes", "x"]


def test_a_table_that_is_too_wide_has_every_digit_and_every_column(
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = [1_000_001 + place for place in range(30)]
    show(table(("policy", *(f">column{place}" for place in numbers)), [("conservative", *numbers)]))
    header, row, *_ = capsys.readouterr().out.splitlines()
    assert header.split() == ["policy", *(f"column{place}" for place in numbers)]
    assert row.split()[1:] == [f"{each:,}" for each in numbers]
