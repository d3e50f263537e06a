"""The command line against a running proxy: the verbs for memory."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.support.command_line import Run, told
from tests.support.remembering import ALLERGIC, LIVES, OSLO


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def first(cli: Run) -> str:
    """The id of an item."""
    return (await told(cli, "search", "Oslo"))["items"][0]["id"]


async def test_memories_and_their_items_are_listed(cli: Run) -> None:
    code, out, _ = await cli("list")
    assert code == 0
    answer = await told(cli, "list")
    (scope,) = answer["scopes"]
    assert scope["id"] in out
    for each in answer["items"]:
        (line,) = [line for line in out.splitlines() if line.startswith(each["id"])]
        assert f"{each['text']} fact user remembered 0.50 0 " in " ".join(line.split())
    assert await told(cli, "list", "--scope", scope["id"]) == answer


async def test_a_search_finds_the_best_first(cli: Run) -> None:
    code, out, _ = await cli("search", "who is allergic?", "-k", "1")
    assert (code, out.count("Ana ")) == (0, 1)
    assert ALLERGIC in out


async def test_an_item_is_shown_with_its_source_and_its_log(cli: Run) -> None:
    name = await first(cli)
    _, out, _ = await cli("show", name)
    assert LIVES in out
    assert OSLO in out
    assert "said by ana on 20" in out
    _, out, _ = await cli("log", name)
    assert out.splitlines()[1].split()[1:] == ["create", "0.50", "fact,", "said", "by", "the", "user"]


async def test_what_is_there_needs_no_restoring_and_what_is_not_is_told(cli: Run) -> None:
    code, out, err = await cli("restore", await first(cli))
    assert (code, out) == (1, "")
    assert "answers 409: The item is remembered as it is." in err
    for verb in ("show", "log", "restore", "forget"):
        code, out, err = await cli(verb, "person.00.00")
        assert (code, out, "answers 404" in err) == (1, "", True)
        for name in (".", "..", "a/b"):
            assert await cli(verb, name) == (1, "", f"unabridged: no item has the id {name}\n")


async def test_an_export_has_a_line_for_each_memory_with_all_that_is_in_it(cli: Run, tmp_path: Path) -> None:
    code, out, _ = await cli("export")
    (scope,) = [json.loads(line) for line in out.splitlines()]
    assert (code, scope["name"], len(scope["items"])) == (0, "ana", 2)
    assert "Oslo" in scope["long"]
    await cli("export", "--scope", scope["id"], "-o", str(tmp_path / "kept.jsonl"))
    assert json.loads((tmp_path / "kept.jsonl").read_text(encoding="utf-8")) == scope


@pytest.mark.parametrize("words", ["list", "search nuts", "export", "forget"])
async def test_an_empty_id_of_a_memory_does_not_mean_all(cli: Run, words: str) -> None:
    assert await cli(*words.split(), "--scope", "") == (2, "", "unabridged: what follows --scope is empty\n")


async def test_nothing_is_forgotten_where_whose_or_which_is_empty(cli: Run) -> None:
    for name in ("--person", "--session"):
        told = (2, "", f"unabridged: what follows {name} is empty\n")
        assert await cli("forget", name, "", "--yes") == told
    assert await cli("forget", "", "--yes") == (2, "", "unabridged: the item's id is empty\n")


async def test_an_empty_id_of_a_tenant_does_not_mean_whoever_has_the_name(cli: Run) -> None:
    told = (2, "", "unabridged: what follows --tenant is empty\n")
    assert await cli("forget", "--person", "ana", "--tenant", "", "--yes") == told


async def test_whoever_sits_at_a_terminal_is_asked_before_anything_is_forgotten(
    cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    code, _, err = await cli("forget", "--person", "ana")
    assert (code, err) == (1, "Forget person ana for good? [y/N] unabridged: not forgotten\n")
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert (await cli("forget", "--person", "ana"))[0] == 0
    assert (await told(cli, "list"))["items"] == []


@pytest.mark.parametrize("words", [[], ["a.b.c", "--person", "x"], ["--person", "x", "--scope", "y"]])
async def test_one_thing_alone_is_forgotten_at_a_time(cli: Run, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        await cli("forget", *words)
    assert ended.value.code == 2


async def test_maintenance_tells_what_it_did(cli: Run) -> None:
    code, out, err = await cli("maintain")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()][:2] == [["scopes", "1"], ["of", "1"]]
    assert (await told(cli, "maintain"))["failed"] == 0
