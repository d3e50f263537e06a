"""`unabridged check`: what a policy decides, or what is wrong with it."""

import json
import re
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


def told(capsys: pytest.CaptureFixture[str], policy: str, *options: str) -> dict[str, str]:
    """The lines about a policy by their first words."""
    assert main(["check", policy, *options]) == 0
    lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()[1:]
    return {
        name: rest.strip()
        for name, _, rest in (re.sub("  +", "\t", line, count=1).partition("\t") for line in lines)
    }


def test_a_policy_that_is_off_has_nothing_to_decide(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "off") == {"strategy": "off", "cuts": "nothing: requests are relayed as they come"}


def test_a_policy_says_from_which_length_on_its_cuts_cost_less_than_the_whole_history(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = re.fullmatch(
        r"in sessions of more than about ([\d,]+) tokens, at 500 a request",
        told(capsys, "balanced", "--model", "gpt-5")["pays"],
    )
    assert sentence is not None
    assert int(sentence[1].replace(",", "")) > 2 * 8_000
    assert "pays" not in told(capsys, "exchanges")


def test_a_policy_that_prunes_by_count_says_by_which(capsys: pytest.CaptureFixture[str]) -> None:
    window = told(capsys, "sliding-window")
    assert window["cuts"] == "all but the newest 20 messages, at any usage"
    assert not {"warn", "trim", "compact", "target"} & window.keys()
    assert window["emergency"] == "above 112,000 tokens, cuts as much as it takes"


def test_a_rolling_window_of_exchanges_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    rolling = told(capsys, "exchanges")
    assert rolling["cuts"] == "past 10 exchanges all but the newest 5, at any usage"
    assert rolling["summary"] == "at most 750 tokens"


def test_a_policy_that_begins_anew_after_a_pause_says_after_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[strategy]\nname = "session"\nidle = "10m"\n')
    decided = told(capsys, str(file))
    assert decided["cuts"] == "what came before a pause over 600 seconds, at any usage"
    assert decided["compact"] == "from 100,800 tokens"


def test_a_misspelt_strategy_is_told_the_nearest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[strategy]\nname = "sesion"\n')
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().err == (
        f'unabridged: {file}:2: `strategy.name` must be "importance", "sliding_window", "session", "topic", '
        '"exchanges" or "off"; did you mean `session`?\n'
    )


def test_a_policy_that_remembers_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "memory" not in told(capsys, "default")
    file = tmp_path / "mine.toml"
    file.write_text("[memory]\nenabled = true\ninject_tokens = 2000\n")
    assert told(capsys, str(file))["memory"] == "told at a session's start, at most 2,000 tokens"


@pytest.mark.parametrize("window", ["0", "-1", "many"])
def test_a_window_is_a_positive_number(window: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "default", "--window", window])
    assert ended.value.code == 2
    assert "argument --window: must be a whole number above 0" in capsys.readouterr().err


def test_a_directory_of_policies_that_is_none_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "default", "--policies", str(tmp_path / "typo")]) == 1
    assert (
        capsys.readouterr().err
        == f"unabridged: {tmp_path}/typo: is not a directory of policies that can be read\n"
    )


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


def test_all_mistakes_are_printed_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[stages]\ntrim = "80%"\nwarm = 0.5\n')
    assert main(["check", str(file)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"unabridged: {file}:2: `stages.trim` must be a number",
        f"unabridged: {file}:3: unknown key `stages.warm`; did you mean `warn`?",
    ]
    assert main(["check", str(file), "--json"]) == 1
    mistakes = json.loads(capsys.readouterr().out)["mistakes"]
    assert [(each["file"], each["line"], each["key"]) for each in mistakes] == [
        (str(file), 2, "stages.trim"),
        (str(file), 3, "stages.warm"),
    ]


def test_the_window_is_called_an_example_unless_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "default")["budget"] == "112,000 tokens; for example, in a window of 128,000"
    assert told(capsys, "default", "--window", "8000")["budget"] == "7,000 tokens; in a window of 8,000"


def test_the_window_of_a_model_is_that_of_the_policy_or_of_the_price_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[budget.windows]\n"mine-*" = 16000\n')
    stated = told(capsys, str(file), "--model", "mine-7b")["budget"]
    assert stated == "14,000 tokens; in the window of mine-7b, 16,000 by this policy"
    listed = told(capsys, str(file), "--model", "gpt-4.1")["budget"]
    assert listed == "875,000 tokens; in the window of gpt-4.1, 1,000,000 by the price list"


def test_a_window_that_nobody_knows_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = told(capsys, "default", "--model", "somebody-s")
    assert unknown.keys() == {"strategy", "budget"}
    assert unknown["budget"] == (
        "none: nobody knows the window of somebody-s; unless the upstream says it, "
        "nothing is cut by tokens until it refuses a request for length"
    )
    limited = told(capsys, "balanced", "--model", "somebody-s")
    assert limited["budget"] == "8,000 tokens; nobody knows the window of somebody-s"
    assert limited["warn"] == "from 4,800 tokens"
    assert main(["check", "default", "--model", "somebody-s", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["window"], answer["budget"], answer["stages"], answer["target"]) == (None,) * 4


ODD = """\
extends = "balanced"
keep.pins = ['(?i)"order" number', "#keep"]
recall.enabled = true
[budget.windows]
"my model*" = 32000
[[retention]]
match = {tool = "vault_*"}
class = "ephemeral"
[[tools]]
match = "get_*"
cache_exchanges = 3
"""


def test_the_whole_policy_is_shown_as_a_file_that_means_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, again = tmp_path / "mine.toml", tmp_path / "again.toml"
    file.write_text(ODD)
    assert main(["check", str(file)]) == 0
    decided, _, shown = capsys.readouterr().out.partition("\n\n")
    for line in (
        'pins = ["(?i)\\"order\\" number", "#keep"]  # default: []',
        "enabled = true  # default: false",
        'windows = {"my model*" = 32000}  # default: {}',
        'tokens = 8000  # default: "auto"',
        '[[retention]]\nmatch = {tool = "vault_*"}\nclass = "ephemeral"\n',
        '[[tools]]\nmatch = "get_*"\ncache_exchanges = 3\n',
    ):
        assert line in shown
    again.write_text(shown)
    assert main(["check", str(again)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == decided.splitlines()[0].replace("mine", "again")
    assert main(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"]["retention"][0]["class"] == "ephemeral"


def test_warnings_have_the_lines_of_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[strategy]\nlast = 5\n\n[[retention]]\nclass = "critical"\nmatch.role = "asistant"\n')
    assert main(["check", str(file)]) == 0
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning ")]
    first, second = (line.removeprefix("warning").strip() for line in found)
    assert first.startswith(f"{file}:2: `strategy.last` has no effect: ")
    assert second == f"{file}:6: no message has the role `asistant`; did you mean `assistant`?"
    assert main(["check", str(file), "--json"]) == 0
    assert [each["line"] for each in json.loads(capsys.readouterr().out)["warnings"]] == [2, 6]
