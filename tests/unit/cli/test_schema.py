"""`unabridged schema`: what an editor is told about policy files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.adapters.files.policies import shipped_policies
from proxy.cli import main

CHECKER = Path(sys.executable).with_name("check-jsonschema")


@pytest.fixture
def schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["schema"]) == 0
    path = tmp_path / "policy.schema.json"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def checked(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECKER, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )


def failing_paths(schema: Path, *files: Path) -> dict[str, list[str]]:
    """The keys that the schema refuses, by file."""
    done = checked("--schemafile", schema, "--output-format", "json", *files)
    found: dict[str, list[str]] = {}
    for error in json.loads(done.stdout)["errors"]:
        found.setdefault(Path(error["filename"]).stem, []).append(f"{error['path']}: {error['message']}")
    return found


def test_the_schema_is_one_by_its_own_dialect(schema: Path) -> None:
    done = checked("--check-metaschema", schema)
    assert done.returncode == 0, done.stdout


def test_the_schema_takes_every_preset_and_what_a_policy_may_say(schema: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        '#:schema ./policy.schema.json\nextends = "default"\nlimits.body = "4MiB"\nstore.ttl = "30d"\n'
        '[[retention]]\nmatch = {tool = "x*"}\nclass = "critical"\n[[tools]]\nmatch = "get_*"\n'
        '[summary]\nwait = 1\nalternate = true\n[budget.windows]\n"qwen*" = 32768\n'
    )
    assert failing_paths(schema, mine, *shipped_policies().glob("*.toml")) == {}


def test_the_schema_refuses_unknown_keys_and_wrong_values_in_every_table(
    schema: Path, tmp_path: Path
) -> None:
    tables: dict[str, Any] = json.loads(schema.read_text(encoding="utf-8"))["properties"]
    wrong = {table: f"{table} = {{nonsense = 1}}" for table in tables if table != "extends"}
    wrong |= {table: f"[[{table}]]\nnonsense = 1" for table in ("retention", "compactors", "tools")}
    wrong |= {
        "top": "nonsense = 1",
        "name": 'name = "x"',
        "python": '[[retention]]\nmatch = {role = "tool"}\nclass_ = "critical"',
        "share": "stages.warn = 60",
        "duration": 'summary.wait = "2 seconds"',
        "negative": "summary.wait = -1",
        "zero": "store.ttl = 0",
        "size": "limits.body = 0",
        "choice": 'strategy.name = "sliding-window"',
        "time": 'memory.maintain_at = "3:00"',
    }
    for name, text in wrong.items():
        (tmp_path / f"{name}.toml").write_text(text + "\n")
    assert failing_paths(schema, *tmp_path.glob("*.toml")).keys() == wrong.keys()


def test_an_editor_is_told_what_a_key_is_for(schema: Path) -> None:
    told = json.loads(schema.read_text(encoding="utf-8"))
    keep = told["$defs"]["Keep"]
    assert keep["description"] == "What is not cut as long as the rest of the budget suffices."
    assert (
        keep["properties"]["pins"]["description"]
        == "Messages are kept if any of these regular expressions is found in their text."
    )
    assert keep["properties"]["recent"]["default"] == 0.25


def test_an_editor_is_told_of_every_key(schema: Path) -> None:
    told = json.loads(schema.read_text(encoding="utf-8"))
    tables = told["$defs"] | {"": told}
    untold = {
        f"{name}.{key}"
        for name, table in tables.items()
        for key, it in table["properties"].items()
        if not (it.get("description") or _table_of(it, told).get("description"))
    }
    assert untold == set()


def _table_of(key: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The table that is the value of a key, or of which it is a list; nothing if it has another value."""
    name = key.get("items", key).get("$ref", "")
    return told["$defs"].get(name.removeprefix("#/$defs/"), {})


def test_the_schema_speaks_no_word_that_no_schema_knows(schema: Path) -> None:
    text = schema.read_text(encoding="utf-8")
    assert not [word for word in ("ge", "gt", "le", "lt") if f'"{word}":' in text]
