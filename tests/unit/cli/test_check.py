"""`unabridged check`: what a policy decides, or what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli import main


def test_a_valid_policy_is_ok_and_its_stages_are_shown_as_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "balanced"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("ok: balanced")
    for line in ("from 4,800 tokens", "from 6,400 tokens", "from 7,200 tokens", "above 8,000 tokens"):
        assert line in out


def test_the_window_of_the_example_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "default", "--window", "8000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["budget"], told["target"]) == (True, 7_000, 3_500)
    assert told["stages"] == {"warn": 4_200, "trim": 5_600, "compact": 6_300, "emergency": 7_000}


def test_what_does_not_act_yet_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[memory]\nenabled = true\n")
    assert main(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_acting"] == ["memory"]


def test_a_policy_that_is_off_has_no_stages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "off"]) == 0
    assert "emergency" not in capsys.readouterr().out


def test_a_complaint_is_one_line_with_file_and_line_and_the_nearest_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "default"\n[stages]\nwarm = 0.5\n')
    assert main(["check", str(file)]) == 1
    said = capsys.readouterr()
    assert said.err == f"unabridged: {file}:3: unknown key `stages.warm`; did you mean `warn`?\n"
    assert said.out == ""


def test_a_policy_extends_what_lies_in_the_named_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "house.toml").write_text("[budget]\ntokens = 1000\n")
    assert main(["check", "house", "--policies", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 1_000
