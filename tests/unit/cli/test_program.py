"""The command line's frame: what it loads, how it fails, what it answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import main

GROUPS = ["serve", "check", "schema", "replay", "explain", "sessions", "demo"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, check=False)


def test_help_loads_no_command_and_nothing_heavy() -> None:
    program = (
        "import sys; from proxy.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & "
        "{'pydantic', 'rich', 'uvicorn', 'tiktoken', 'httpx2', 'redis', 'starlette'}), file=sys.stderr)"
    )
    done = run("-c", program)
    assert done.stderr.strip() == "[]"
    assert all(f"\n    {name} " in done.stdout for name in GROUPS)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_what_a_terminal_has_no_character_for_is_escaped(
    option: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = run("-m", "proxy", "check", "default", *option)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u" in done.stdout


def test_python_m_proxy_is_the_same_command() -> None:
    done = run("-m", "proxy", "check", "no-such-policy")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("unabridged: no-such-policy: there is no such policy; there are `agent`, ")


@pytest.mark.parametrize(
    "words", [[], ["nonsense"], ["check"], ["sessions"], ["replay", "x", "--budget", "0"]]
)
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: unabridged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["serve", "--polici", "agent"], "--policy"),
        (["serve", "--upsream=http://h/v1"], "--upstream"),
        (["sessions", "list", "--limt", "3"], "--limit"),
        (["--verson"], "--version"),
        (["serv"], "serve"),
        (["sessions", "lst"], "list"),
    ],
)
def test_a_word_or_flag_that_there_is_not_is_answered_with_the_one_that_may_be_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    wrong = next((word for word in words if word.startswith("--")), words[-1]).partition("=")[0]
    assert f"there is no {wrong}; did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "check default --policies",
        "replay x.jsonl --policies",
        "replay x.jsonl --html",
        "sessions export x --output",
        "memory export --output",
        "serve --policies",
        "serve --config",
        "doctor --upstream-ca",
    ],
)
def test_an_empty_variable_does_not_mean_the_directory_in_which_one_stands(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), ""])
    assert ended.value.code == 2
    assert f"{words.rsplit(maxsplit=1)[-1]}: must not be empty\n" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["watch --every", "replay x.jsonl --idle"])
@pytest.mark.parametrize("seconds", ["1e300", "1000000001"])
def test_more_seconds_than_a_clock_can_count_are_refused(
    words: str, seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), seconds])
    assert ended.value.code == 2
    assert ": must be at most 1,000,000,000\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", GROUPS)
def test_every_command_explains_itself_and_offers_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [name, "show", "--help"] if name == "sessions" else [name, "--help"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_a_secret_is_never_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    flags = {word for word in capsys.readouterr().out.split() if word.startswith("--")}
    flags.remove("--upstream-cert-key")  # it names a file
    assert not {flag for flag in flags if "secret" in flag or "token" in flag or "key" in flag}


def test_a_reader_that_has_seen_enough_is_no_crash(tmp_path: Path) -> None:
    closed_early = f"{sys.executable} -m proxy schema | true"
    done = subprocess.run(["sh", "-c", closed_early], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("words", ["schema", "check default", "check default --json"])
def test_what_cannot_be_written_is_said_in_one_line(words: str) -> None:
    program = f"{sys.executable} -m proxy {words} > /dev/full"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    said = "unabridged: what was asked for cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("goes", ["> /dev/full", "| true"])
def test_an_error_that_cannot_be_written_as_json_is_told_all_the_same(goes: str) -> None:
    program = f"{sys.executable} -u -m proxy check no-such-policy --json {goes}"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.startswith("unabridged: no-such-policy: there is no such policy; ")
    assert "Traceback" not in done.stderr


def test_closed_input_is_empty_input() -> None:
    program = f"{sys.executable} -m proxy replay - <&-"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "unabridged: - has no session\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_whoever_started_it_has_closed_is_no_crash(closed: str) -> None:
    for words, code in (("check default", 0), ("check no-such-policy", 1)):
        program = f"{sys.executable} -m proxy {words} {closed}"
        done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False)


IMPATIENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from proxy.cli import main
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "proxy.cli." + sys.argv[2]:
            signal.raise_signal(int(sys.argv[1]))
sys.meta_path.insert(0, Impatient())
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("words", "code"), [("serve", 0), ("sessions list", 130)])
def test_a_signal_while_the_command_is_still_loaded_ends_it_without_a_word(
    number: signal.Signals, words: str, code: int
) -> None:
    done = run("-c", IMPATIENT, str(int(number)), *words.split())
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


HOMELESS = """
import os, pwd, sys
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
    os.environ.pop(name, None)
from proxy.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", ["serve --port 0 --store memory://", "sessions list"])
def test_a_user_without_a_home_is_told_what_to_set(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UNABRIDGED_DATA_DIR", "UNABRIDGED_ADMIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    done = run("-c", HOMELESS, *words.split())
    assert done.stderr.startswith("unabridged: ")
    assert "this user has no home directory: set UNABRIDGED_DATA_DIR" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_user_without_a_home_needs_none_where_the_data_directory_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABRIDGED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("UNABRIDGED_SECRET", "0123456789abcdef")
    (tmp_path / "config.toml").write_text('policy = "nope"\n')
    for words in (["--policy", "nope"], ["--config", str(tmp_path / "config.toml")]):
        done = run("-c", HOMELESS, "serve", "--port", "0", "--store", "memory://", *words)
        assert "there is no such policy" in done.stderr  # which is looked for once all is read
        assert done.stderr.count("\n") == 1


def test_the_schema_is_json_and_knows_the_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    properties = json.loads(capsys.readouterr().out)["properties"]
    assert {"budget", "stages", "summary", "retention"} <= properties.keys()
    assert "name" not in properties
