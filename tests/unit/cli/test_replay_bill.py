"""The bill of a replay, and how its epochs were decided."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from proxy.core.budget.prices import Prices, Prompt
from tests.support.replays import replayed, session, written

LONG = 120


def played(path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The one policy's sums for a long session under a budget of 4,000 tokens."""
    (told,) = replayed(capsys, written(path / "a.jsonl", session(exchanges=LONG)), "--budget", "4000", *words)
    return told


def test_what_was_sent_costs_less_than_the_whole_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = played(tmp_path, capsys, "--model", "gpt-4o")["totals"]["bill"]
    assert 0 < bill["sent_dollars"] < bill["whole_dollars"]
    assert bill["total_dollars"] == pytest.approx(bill["sent_dollars"] + bill["summary_dollars"], abs=1e-5)
    assert bill["ratio"] == pytest.approx(bill["total_dollars"] / bill["whole_dollars"], abs=1e-3)
    assert bill["summary_tokens"] > 0


def test_dollars_are_those_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    totals = played(tmp_path, capsys, "--policy", "off", "--model", "gpt-5")["totals"]
    bill, paid = totals["bill"], Prices(fresh=1.25, cached=0.125, written=1.25)
    expected = Prompt(totals["full_tokens"], bill["full_cached_tokens"]).dollars(paid)
    assert bill["whole_dollars"] == bill["sent_dollars"] == pytest.approx(expected, abs=1e-5)
    assert (bill["summary_dollars"], bill["ratio"]) == (0, 1)


def test_summaries_cost_what_the_model_that_writes_them_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "frugal.toml"
    policy.write_text('extends = "default"\nsummary.model = "gpt-5-nano"\n')
    own = played(tmp_path, capsys, "--model", "gpt-5")["totals"]["bill"]
    small = played(tmp_path, capsys, "--model", "gpt-5", "--policy", str(policy))["totals"]["bill"]
    assert 0 < small["summary_dollars"] < own["summary_dollars"] / 8


def test_the_bill_is_a_range_from_summaries_as_they_usually_are_to_summaries_as_long_as_they_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bill = played(tmp_path, capsys, "--model", "gpt-5")["totals"]["bill"]
    assert bill["usual_ratio"] < bill["ratio"]
    assert bill["usual_total_dollars"] == pytest.approx(
        bill["sent_dollars"] + bill["usual_summary_dollars"], abs=1e-5
    )
    longer = played(tmp_path, capsys, "--model", "gpt-5", "--summary-tokens", "2000")["totals"]["bill"]
    assert longer["usual_ratio"] == longer["ratio"] == bill["ratio"]
    file = written(tmp_path / "a.jsonl", session(exchanges=LONG))
    assert main(["replay", file, "--budget", "2000", "--model", "gpt-5"]) == 0
    assert re.search(r"\d+-\d+%", capsys.readouterr().out)


def test_where_cutting_costs_more_than_the_whole_history_a_replay_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = written(tmp_path / "short.jsonl", session(exchanges=20))
    words = ("--policy", "balanced", "--model", "gpt-5", "--budget")
    (told,) = replayed(capsys, short, *words, "1200")
    assert told["totals"]["bill"]["ratio"] > 1
    assert "more than sending the whole histories" in told["warning"]
    assert main(["replay", short, *words, "1200"]) == 0
    assert "Under balanced cutting" in capsys.readouterr().out
    (told,) = replayed(capsys, short, *words, "100000")
    assert told["warning"] is None


def test_with_a_warm_cache_a_whole_history_is_cached_but_for_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    totals = played(tmp_path, capsys, "--policy", "off")["totals"]
    assert totals["bill"]["full_cached_tokens"] > 0.9 * totals["full_tokens"]


def test_with_a_cold_cache_nothing_is_cached_and_epochs_begin_at_trim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eager = 'extends = "default"\nimportance.low = 1.0\neconomy.expected_turns = 1\n'
    policy = tmp_path / "eager.toml"
    policy.write_text(eager)
    warm = played(tmp_path, capsys, "--policy", str(policy), "--idle", "599")
    cold = played(tmp_path, capsys, "--policy", str(policy), "--idle", "600")
    assert cold["totals"]["bill"]["sent_cached_tokens"] == cold["totals"]["bill"]["full_cached_tokens"] == 0
    assert {each["stage"] for each in warm["sessions"][0]["decided"]} == {"compact"}
    assert {each["stage"] for each in cold["sessions"][0]["decided"]} == {"trim"}
    assert {each["account"]["verdict"] for each in cold["sessions"][0]["decided"]} == {"cold"}


def test_a_session_that_waits_says_so_at_its_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "thrifty.toml"
    policy.write_text('extends = "default"\nimportance.low = 1.0\neconomy.expected_turns = 1\n')
    told = played(tmp_path, capsys, "--policy", str(policy), "--turns")
    waiting = [turn for turn in told["sessions"][0]["turns"] if turn["waits"]]
    assert waiting
    assert not any(turn["began"] for turn in waiting)
    assert {turn["stage"] for turn in waiting} == {"trim"}


def test_people_are_told_the_bill_and_what_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.jsonl", session(exchanges=LONG))
    assert main(["replay", file, "--budget", "4000", "--model", "gpt-5", "--turns"]) == 0
    out = capsys.readouterr().out
    assert "the bill" in out
    assert "decided by" in out
    assert "1.25 fresh, 0.125 cached" in out
    assert re.search(r"compact is not optional|pays: |costs more than it saves: ", out)


class _Page(HTMLParser):
    """What a page names, and which elements it has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]


def test_a_page_stands_alone_and_nothing_in_it_is_taken_for_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.jsonl", session("<script>alert(1)</script>", LONG), session("second", 0))
    assert main(["replay", file, "--budget", "4000", "--html", str(tmp_path / "bill.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    text = (tmp_path / "bill.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.tags.count("svg") == 1
    assert not {"script", "link", "img", "iframe"} & {*page.tags}
    assert not page.addresses
    assert "url(" not in text
    assert "http" not in text
    epochs = told["policies"][0]["sessions"][0]["decided"]
    assert epochs
    assert text.count('class="epoch"') == len(epochs)


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session(exchanges=1))
    assert main(["replay", file, "--html", str(tmp_path / "missing" / "bill.html")]) == 1
    assert "bill.html cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["-1", "soon", "inf", "nan"])
def test_a_pause_is_a_number_of_seconds(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["replay", "-", f"--idle={word}"])
    assert "must be a number of seconds" in capsys.readouterr().err
