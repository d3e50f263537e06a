"""`unabridged replay`: files of sessions in, what would have been sent out."""

import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pytest

from proxy.cli import main, replay
from tests.support.conversations import TOO_DEEP
from tests.support.replays import replayed, session, written


def test_policies_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session("first"), session("second", 3))
    balanced, off = replayed(capsys, file, "--policy", "balanced", "--policy", "off", "--budget", "2000")
    assert [each["id"] for each in balanced["sessions"]] == ["first", "second"]
    assert balanced["totals"]["full_tokens"] == off["totals"]["full_tokens"] == off["totals"]["sent_tokens"]
    assert balanced["totals"]["sent_tokens"] < off["totals"]["sent_tokens"]
    assert (balanced["totals"]["over_budget"], off["totals"]["epochs"]) == (0, 0)
    assert off["totals"]["over_budget"] > 0


def test_policies_of_one_name_are_told_apart_by_how_they_were_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.jsonl", session())
    given: list[str] = []
    for directory, tokens in (("one", 1500), ("other", 3000)):
        (tmp_path / directory).mkdir()
        path = tmp_path / directory / "mine.toml"
        path.write_text(f'extends = "balanced"\nbudget.tokens = {tokens}\n')
        given.append(str(path))
    told = replayed(capsys, file, *(word for path in [*given, "off"] for word in ("--policy", path)))
    assert [each["policy"] for each in told] == [*given, "off"]
    assert [each["sessions"][0]["budget"] for each in told[:2]] == [1500, 3000]
    assert [len(each["sessions"]) for each in told] == [1, 1, 1]
    (once,) = replayed(capsys, file, "--policy", given[0], "--policy", given[0])
    assert (once["policy"], len(once["sessions"])) == ("mine", 1)


def test_a_budget_lowers_a_policy_and_never_raises_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "a.jsonl", session())
    (low,) = replayed(capsys, file, "--policy", "balanced", "--budget", "2000")
    (high,) = replayed(capsys, file, "--policy", "balanced", "--budget", "20000")
    assert (low["sessions"][0]["budget"], high["sessions"][0]["budget"]) == (2_000, 8_000)


def test_a_model_brings_its_window_and_its_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session(exchanges=2))
    (plain,) = replayed(capsys, file)
    (known,) = replayed(capsys, file, "--model", "gpt-4o")
    (unknown,) = replayed(capsys, file, "--model", "somebody-s-model")
    assert (plain["sessions"][0]["budget"], unknown["sessions"][0]["budget"]) == (7_000, None)
    assert known["sessions"][0]["budget"] == 112_000
    assert known["totals"]["full_tokens"] == plain["totals"]["full_tokens"] < unknown["totals"]["full_tokens"]


def test_turns_are_told_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session())
    (told,) = replayed(capsys, file, "--policy", "balanced", "--budget", "2000", "--turns")
    turns = told["sessions"][0]["turns"]
    assert [turn["number"] for turn in turns] == list(range(1, 41))
    assert turns[-1]["epoch"] == sum(turn["began"] for turn in turns) == told["totals"]["epochs"] > 0


def test_tools_count_as_part_of_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": "Looks. " * 100}}]
    plain, armed = session("plain", 2), {**session("armed", 2), "tools": tools}
    (told,) = replayed(capsys, written(tmp_path / "a.jsonl", plain, armed), "--turns")
    first = [each["turns"][0]["full_tokens"] for each in told["sessions"]]
    assert first[1] - first[0] > 100


def test_a_session_without_an_id_is_named_after_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("\n" + json.dumps(session(None, 1)) + "\n")
    (told,) = replayed(capsys, str(file))
    assert [each["id"] for each in told["sessions"]] == ["2"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl"])
def test_compressed_files_are_read_whatever_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(json.dumps(session()).encode()))
    assert replayed(capsys, str(file))[0]["totals"]["turns"] == 40


def test_a_compressed_file_is_unpacked_up_to_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(session()).encode() + b"\n"
    monkeypatch.setattr(replay, "UNPACKED", 2 * len(line))
    file = tmp_path / "a.jsonl"
    file.write_bytes(gzip.compress(2 * line))
    assert len(replayed(capsys, str(file))[0]["sessions"]) == 2
    tracemalloc.start()
    file.write_bytes(gzip.compress(2 * line) + gzip.compress(bytes(50_000_000)))
    tracemalloc.reset_peak()
    assert main(["replay", str(file)]) == 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    told = f"unabridged: {file}:3: there it has unpacked to {2 * len(line):,} bytes: split it\n"
    assert capsys.readouterr().err == told
    assert most < 25_000_000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_files_that_say_how_they_are_encoded_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(session(), ensure_ascii=False), encoding=encoding)
    assert replayed(capsys, str(file))[0]["totals"]["turns"] == 40


LINE = json.dumps(session()) + "\n"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (LINE.encode() + "gr\u00fcn\n".encode("latin-1"), 2, "not UTF-8 from byte {} of the file on"),
        (LINE.encode("utf-16")[:-1], 1, "not UTF-16 from byte {} of the file on"),
        ((2 * LINE).encode() + bytes(64), 3, "NULs to the end: the file was not written to its end"),
        (LINE.rstrip().encode() + bytes(64), 1, "NULs to the end: the file was not written to its end"),
        (LINE.encode() + b'"\0"\n', 2, "NUL, a character that no JSON has"),
        (LINE.encode("utf-16-le"), 1, "not UTF-8, but UTF-16 or UTF-32 without the mark that says so"),
        (LINE.encode("utf-32-be"), 1, "not UTF-8, but UTF-16 or UTF-32 without the mark that says so"),
    ],
)
def test_what_is_no_text_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, line: int, reason: str
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    assert main(["replay", str(file)]) == 1
    at = len(LINE) + 3 if line == 2 else len(content)
    assert capsys.readouterr().err == f"unabridged: {file}:{line}: {reason.format(at)}\n"


@pytest.mark.parametrize("indent", [None, 2], ids=["on one line", "over many lines"])
@pytest.mark.parametrize("part", ["the array", "the object"])
def test_one_session_may_be_plain_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, indent: int | None
) -> None:
    file = tmp_path / "a.json"
    value = session()["messages"] if part == "the array" else session()
    file.write_bytes(b"\xef\xbb\xbf\n" + json.dumps(value, indent=indent).encode() + b"\n\n")
    (told,) = replayed(capsys, str(file))
    assert told["totals"]["turns"] == 40
    assert [each["id"] for each in told["sessions"]] == ["2" if part == "the array" else "first"]


def test_where_plain_json_breaks_its_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_text('[\n  {"role": "user", "content": "a"},\n  {"role": user}\n]\n')
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"unabridged: {file}:3: not a session: ")


def test_an_array_of_anything_else_is_no_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps([session(), session()], indent=1))
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err.endswith("a.json:1: not a session: A message has no `role`.\n")


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(session()).encode())))
    assert replayed(capsys, "-")[0]["totals"]["turns"] == 40


def test_half_a_character_in_an_id_keeps_no_page_from_being_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, written_to = written(tmp_path / "a.jsonl", session("half \ud83d", 1)), tmp_path / "page.html"
    assert main(["replay", file, "--turns", "--html", str(written_to)]) == 0
    assert "half ?" in written_to.read_text(encoding="utf-8")


def test_an_empty_name_means_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", ""]) == 2
    assert capsys.readouterr() == ("", "unabridged: the file's name is empty\n")


def test_people_get_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session())
    assert main(["replay", file, "--policy", "balanced", "--budget", "2000", "--turns"]) == 0
    out = capsys.readouterr().out
    assert "first · balanced" in out
    assert "all sessions" in out
    assert "begins" in out


def test_an_id_in_a_file_commands_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.jsonl", session("a\x1b[31mb\nc", 1))
    assert main(["replay", file, "--turns"]) == 0
    out = capsys.readouterr().out
    assert out.count("a [31mb c ") == 2
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "x", "messages": [', "not valid JSON"),
        (b'{"id": "x"}', "messages"),
        (b'{"id": "x", "messages": ["hello"]}', "messages[0]"),
        (b"[]", "must be a JSON object"),
    ],
)
def test_a_line_that_is_no_session_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes, reason: str
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(json.dumps(session()).encode() + b"\n" + line + b"\n")
    assert main(["replay", str(file)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"unabridged: {file}:2: not a session: ")
    assert reason in said.err
    assert said.out == ""


def test_a_file_of_nothing_but_brackets_is_nested_too_deeply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("[" * TOO_DEEP)
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err.endswith(
        "a.jsonl:1: not a session: The request body is nested too deeply.\n"
    )


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_a_session_is_no_report_of_zeros(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err == f"unabridged: {file} has no session\n"


@pytest.mark.parametrize("name", ["missing.jsonl", "broken.jsonl.gz", "damaged.jsonl.gz"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(json.dumps(session()).encode())[:-9])
    packed = bytearray(gzip.compress(json.dumps(session()).encode()))
    packed[10] = 0xFF  # the head of its first block
    (tmp_path / "damaged.jsonl.gz").write_bytes(packed)
    assert main(["replay", str(tmp_path / name)]) == 1
    assert f"{name} cannot be read" in capsys.readouterr().err
