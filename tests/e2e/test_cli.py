"""The command line against a running proxy: the session verbs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import httpx2
import pytest

from proxy.cli import main
from proxy.cli.client import LISTED, LONGEST
from proxy.cli.memory import EVERY
from tests.support.clients import ADMIN, Chat, proxying, write_policy
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import Model

SMALL = 'extends = "balanced"\n[budget]\ntokens = 600\n[summary]\nwait = "0s"\nenabled = false\n'


class Run(Protocol):
    """Runs a command beside the loop in which the upstream lives; gives its exit code, stdout and stderr."""

    async def __call__(self, *words: str, server: str = ...) -> tuple[int, str, str]: ...


@pytest.fixture
async def served(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    """A proxy with a small budget, and a session in it that has been pruned."""
    policy = write_policy(tmp_path, "small", SMALL)
    async with proxying(model.url, policy=str(policy)) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "trip? to #1 & 100%"
        for place in range(8):
            await chat.ask(f"Question {place}: where do we go from here, and why would we? " * 2)
        await chat.client.aclose()
        yield url


@pytest.fixture
def cli(served: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")

    async def run(*words: str, server: str = served) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, [*words, "--server", server])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


async def test_sessions_are_listed(cli: Run) -> None:
    code, out, _ = await cli("sessions", "list")
    assert code == 0
    assert "trip? to #1 & 100%" in out


async def test_a_session_is_found_by_a_name_that_needs_encoding(cli: Run) -> None:
    _, out, _ = await cli("sessions", "list", "--json")
    (listed,) = json.loads(out)["sessions"]
    for name in ("trip? to #1 & 100%", listed["id"]):
        code, out, _ = await cli("sessions", "show", name, "--json")
        assert code == 0
        assert json.loads(out)["id"] == listed["id"]
    code, out, _ = await cli("sessions", "show", listed["id"])
    assert code == 0
    assert "prune_count" in out


@pytest.mark.parametrize("name", ["team/chat 7", "..", "back\\slash"])
async def test_a_session_is_found_by_a_name_that_no_path_can_hold(cli: Run, name: str) -> None:
    assert (await cli("sessions", "fork", "trip? to #1 & 100%", "--at", "2", "--name", name))[0] == 0
    code, out, _ = await cli("sessions", "show", name, "--json")
    assert (code, json.loads(out)["name"]) == (0, name)
    assert (await cli("sessions", "delete", name))[0] == 0
    code, _, said = await cli("explain", name)
    assert code == 1
    assert name in said


async def test_a_listing_shows_the_whole_id_and_how_the_session_began(cli: Run) -> None:
    _, out, _ = await cli("sessions", "list")
    line = out.splitlines()[1]
    code, told, _ = await cli("sessions", "show", line.split()[0], "--json")
    assert code == 0
    assert json.loads(told)["id"] == line.split()[0]
    assert json.loads(told)["began_with"].startswith("Question 0: where do we go from here")
    assert "Question 0: where do we go from here, a…" in line


async def test_a_session_is_found_by_the_beginning_of_its_id(cli: Run) -> None:
    _, out, _ = await cli("sessions", "list", "--json")
    (listed,) = json.loads(out)["sessions"]
    tenant, _, rest = listed["id"].partition(".")
    for beginning in (listed["id"][:8], rest[:8], f"{tenant}.{rest[:4]}"):
        _, out, _ = await cli("sessions", "show", beginning, "--json")
        assert json.loads(out)["id"] == listed["id"]


async def test_what_may_mean_several_sessions_is_answered_with_all_of_them(cli: Run) -> None:
    await cli("sessions", "fork", "trip? to #1 & 100%", "--name", "other")
    _, out, _ = await cli("sessions", "list", "--json")
    one, two = (each["id"] for each in json.loads(out)["sessions"])
    code, out, err = await cli("sessions", "show", one[:8])
    assert (code, out) == (1, "")
    said, *candidates = err.splitlines()
    assert said.endswith(f'answers 409: "{one[:8]}" may mean 2 sessions: give the whole id of one.')
    assert {each.split()[1] for each in candidates} == {one, two}
    assert all("Question 0: where do we go" in each for each in candidates)
    assert any("trip? to #1 & 100%" in each for each in candidates)


async def test_the_transcript_has_every_message_and_the_view_only_what_is_sent(
    cli: Run,
) -> None:
    _, transcript, _ = await cli("sessions", "transcript", "trip? to #1 & 100%")
    _, view, _ = await cli("sessions", "view", "trip? to #1 & 100%")
    assert all(f"Question {place}:" in transcript for place in range(8))
    assert "our answer" in transcript
    assert "messages omitted]" in view
    assert "messages omitted]" not in transcript


async def test_explain_shows_what_became_of_each_unit(cli: Run) -> None:
    code, out, _ = await cli("explain", "trip? to #1 & 100%")
    assert code == 0
    assert "cut, gap 1" in out
    assert "of 600 tokens" in out
    assert all(f"Question {place}: where do we go" in out for place in range(8))
    _, out, _ = await cli("explain", "trip? to #1 & 100%", "--json")
    told = json.loads(out)
    assert [unit["start"] for unit in told["units"]] == list(range(16))
    assert {"kept", "cut"} == {unit["state"] for unit in told["units"]}


async def test_a_session_that_is_not_there_is_one_clear_line(cli: Run) -> None:
    code, out, err = await cli("sessions", "show", "nobody's")
    assert (code, out) == (1, "")
    assert err.startswith("unabridged: ")
    assert "404" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        "sessions show \udcff",
        "sessions fork x --name \udcff",
        "explain \udcff",
        "memory search \udcff",
        "stats --since \udcff",
    ],
)
async def test_an_argument_that_no_request_can_carry_is_wrong_usage(cli: Run, words: str) -> None:
    assert await cli(*words.split()) == (2, "", "unabridged: an argument is not UTF-8\n")


async def test_a_wrong_token_says_what_to_set(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "guessed")
    code, _, err = await cli("sessions", "list")
    assert code == 1
    assert "403" in err
    assert "UNABRIDGED_ADMIN_TOKEN" in err


async def test_where_no_proxy_answers_server_is_named(cli: Run) -> None:
    for server in ("http://127.0.0.1:9", "http://nobody..invalid", f"http://{'x' * 64}"):
        code, _, err = await cli("sessions", "list", server=server)
        assert code == 1
        assert err.startswith(f"unabridged: no proxy answers at {server} (")
        assert err.endswith("); name it with --server\n")


@pytest.mark.parametrize(
    "server",
    [
        "127.0.0.1:8080",
        "localhost",
        "",
        "ftp://localhost",
        "http://",
        "http://[::1",
        "http://h?x",
        "http://h#x",
    ],
)
async def test_a_server_without_a_scheme_is_wrong_usage(cli: Run, server: str) -> None:
    code, out, err = await cli("sessions", "list", server=server)
    assert (code, out) == (2, "")
    assert err == f'unabridged: --server must be a URL such as http://127.0.0.1:8080, not "{server}"\n'


NAME = "trip? to #1 & 100%"


async def test_an_export_is_a_line_that_replay_takes(cli: Run, tmp_path: Path) -> None:
    code, out, _ = await cli("sessions", "export", NAME)
    assert code == 0
    assert out.count("\n") == 1
    file = tmp_path / "kept.json"
    file.write_text(out)
    assert await asyncio.to_thread(main, ["replay", str(file)]) == 0
    assert len(json.loads(out)["messages"]) == 16


async def test_an_export_to_a_file_is_for_its_owner_alone(cli: Run, tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text("something longer than nothing")
    file.chmod(0o644)
    code, out, _ = await cli("sessions", "export", NAME, "-o", str(file))
    assert (code, out) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["session"]["name"] == NAME
    code, _, err = await cli("sessions", "export", NAME, "-o", str(tmp_path / "no" / "where"))
    assert code == 1
    assert "cannot be written" in err


async def test_an_export_takes_little_more_memory_than_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    body = b'{"session": {}, "tree": [%b{}]}' % (b"{}," * 2**21)

    async def large(exchange: Exchange) -> None:
        await exchange.answer(200, body=body)

    upstream = FakeUpstream(large)
    async with upstream.serve():
        words = ["sessions", "export", "a", "-o", str(tmp_path / "a.json"), "--server", upstream.url]
        tracemalloc.start()
        try:
            assert await asyncio.to_thread(main, words) == 0
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 4 * len(body)


async def test_an_export_to_what_is_no_file_leaves_its_rights_as_they_were(cli: Run, tmp_path: Path) -> None:
    """As root it would take /dev/null from everybody else."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert await cli("sessions", "export", NAME, "-o", str(pipe)) == (0, "", "")
        assert os.read(reader, 2**20).startswith(b'{"id":')
        assert os.fstat(reader).st_mode & 0o777 == 0o666
    finally:
        os.close(reader)


async def test_a_fork_tells_what_to_send(cli: Run) -> None:
    code, out, _ = await cli("sessions", "fork", NAME, "--at", "3", "--name", "other")
    assert code == 0
    assert '"other"' in out
    assert "X-Unabridged-Session" in out
    _, transcript, _ = await cli("sessions", "transcript", "other")
    assert "Question 1:" in transcript
    assert "Question 2:" not in transcript
    code, _, err = await cli("sessions", "fork", NAME, "--name", "other")
    assert code == 1
    assert "409" in err


async def test_cuts_are_made_and_undone(cli: Run) -> None:
    code, out, _ = await cli("sessions", "restore", NAME, "--json")
    assert code == 0
    assert json.loads(out)["asked"] == "restore"
    _, view, _ = await cli("sessions", "view", NAME)
    assert "messages omitted]" not in view
    code, out, _ = await cli("sessions", "compact", NAME, "--messages", "2-7")
    assert code == 0
    assert re.match(r"epoch \d+: 16 → 11 messages, [\d,]+ → [\d,]+ tokens\n", out)
    assert out.endswith("summary: none, as the policy says\n")
    _, out, _ = await cli("explain", NAME, "--json")
    cut = [unit["start"] for unit in json.loads(out)["units"] if unit["state"] == "cut"]
    assert cut == [2, 3, 4, 5, 6, 7]
    assert (await cli("sessions", "restore", NAME, "--messages", "2-99"))[0] == 1


@pytest.mark.parametrize("word", ["abc", "4-", "-4", "9-4", "4,,5", "4;5", ""])
@pytest.mark.parametrize("verb", ["restore", "compact"])
def test_what_is_no_range_of_messages_is_said_before_anybody_is_asked(
    verb: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sessions", verb, NAME, f"--messages={word}", "--server", "http://127.0.0.1:9"])
    assert ended.value.code == 2
    assert "--messages: must be numbers of messages, such as 7, 4-19 or 4,7-9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("sessions list --limit 1001", "1,000"),
        ("watch --limit 1001", "1,000"),
        ("memory list --limit 100001", "100,000"),
        ("memory search boat -k 100001", "100,000"),
        (f"sessions list --limit {'9' * 5_000}", "1,000"),
    ],
)
def test_more_than_the_server_lists_is_refused_before_anybody_is_asked(
    words: str, most: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--server", "http://127.0.0.1:9"])
    assert ended.value.code == 2
    assert f": must be at most {most}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "most"), [("sessions?limit=", LISTED), ("memory?k=", EVERY), ("events?seconds=", LONGEST)]
)
async def test_what_is_let_through_is_what_the_server_takes(served: str, path: str, most: int) -> None:
    async with httpx2.AsyncClient(base_url=f"{served}/unabridged/v1/", headers=ADMIN) as client:
        for number, status in ((most, 200), (most + 1, 400)):
            async with client.stream("GET", f"{path}{number}") as response:
                assert response.status_code == status


@pytest.mark.parametrize("words", ["list", "search boat"])
async def test_where_memory_is_off_it_says_so_and_how_it_is_turned_on(cli: Run, words: str) -> None:
    code, out, _ = await cli("memory", *words.split())
    assert (code, out) == (0, "memory is off: a policy turns it on with enabled = true under [memory]\n")
    code, out, _ = await cli("memory", *words.split(), "--json")
    assert (code, json.loads(out)["enabled"]) == (0, False)
    assert await cli("memory", "export") == (0, "", "")


async def test_a_session_is_paused_and_resumed(cli: Run) -> None:
    for verb, told in (("pause", "is paused"), ("resume", "is not blocked")):
        code, out, _ = await cli("sessions", verb, NAME)
        assert code == 0
        assert told in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_deletion_is_confirmed_at_a_terminal(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    code, out, err = await cli("sessions", "delete", NAME)
    assert (code, out) == (1, "")
    assert "8 turns" in err
    assert (await cli("sessions", "show", NAME))[0] == 0
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert (await cli("sessions", "delete", NAME))[0] == 0
    assert (await cli("sessions", "show", NAME))[0] == 1


async def test_a_deletion_by_a_program_is_not_asked_about(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    code, out, _ = await cli("sessions", "delete", NAME, "--yes", "--json")
    assert code == 0
    assert json.loads(out)["deleted"] is True
    code, _, err = await cli("sessions", "delete", NAME, "--yes")
    assert code == 1
    assert "404" in err
