"""Strategies of other packages: installed by a directory on the path, found by their entry point."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.ports import Passage

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(LARGEST_FIRST,) = [each for each in EXAMPLES if "LargestFirst" in each]
(CHANGELOG,) = [each for each in EXAMPLES if "Changelog" in each]
(LONGEST,) = [each for each in EXAMPLES if "Longest" in each]
Install = Callable[..., None]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Installs a package with entry points: `install("largest_first = my_package:LargestFirst", code)`."""

    def installed(
        points: str, code: str = LARGEST_FIRST, package: str = "my_package", group: str = "strategies"
    ) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[unabridged.{group}]\n{points}\n")
        (tmp_path / f"{package}.py").write_text(code)

    return installed


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the program in a process of its own, which sees what is installed."""

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(tmp_path), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-m", "proxy", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return ran


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "mine.toml"
    file.write_text('[strategy]\nname = "largest_first"\n[budget]\ntokens = 600\n[ledger]\nshare = 0.0\n')
    return str(file)


def test_an_installed_strategy_may_be_named_in_a_policy_and_decides(
    install: Install, run: Run, policy: str, tmp_path: Path
) -> None:
    install("largest_first = my_package:LargestFirst")
    assert run("check", policy).stdout.startswith("ok: mine")
    said = [("user", "Tell me of the river."), ("assistant", "word " * 480), ("user", "And the boats?")]
    said += [("assistant", "They sail. " * 30), ("user", "When do they sail, and where to?" * 2)]
    messages = [{"role": role, "content": text} for role, text in said]
    (tmp_path / "session.jsonl").write_text(json.dumps({"id": "a", "messages": messages}) + "\n")
    done = run("replay", "session.jsonl", "--policy", policy, "--policy", "balanced", "--turns", "--json")
    assert done.returncode == 0, done.stderr
    by_policy = {each["policy"]: each for each in json.loads(done.stdout)["policies"]}
    turns = by_policy["mine"]["sessions"][0]["turns"]
    assert [turn["cut"] for turn in turns] == [0, 1, 1]


def test_the_schema_knows_an_installed_strategy(install: Install, run: Run) -> None:
    install("largest_first = my_package:LargestFirst")
    schema = json.loads(run("schema").stdout)
    assert schema["$defs"]["Strategy"]["properties"]["name"]["enum"][-2:] == ["off", "largest_first"]


def test_a_misspelt_name_is_told_the_nearest_installed_one(
    install: Install, run: Run, tmp_path: Path
) -> None:
    install("largest_first = my_package:LargestFirst")
    (tmp_path / "wrong.toml").write_text('[strategy]\nname = "largest-first"\n')
    done = run("check", "wrong.toml")
    assert done.returncode == 1
    assert "did you mean `largest_first`?" in done.stderr


def test_without_its_package_a_policy_that_names_a_strategy_is_refused(run: Run, policy: str) -> None:
    done = run("check", policy)
    assert done.returncode == 1
    assert "`strategy.name` must be" in done.stderr


BROKEN = {
    "a name that is taken": ("topic = my_package:LargestFirst", "the name `topic` is taken"),
    "no such module": ("x = nowhere:LargestFirst", "cannot be loaded: ModuleNotFoundError"),
    "no such class": ("x = my_package:Nothing", "cannot be loaded: AttributeError"),
    "not a strategy": ("x = my_package:Stage", "cannot be loaded: TypeError"),
    "not even a class": ("x = my_package:FREE", "is no proxy.core.planning.strategy.Strategy"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_cannot_be_used_stops_the_start_and_names_the_package(
    install: Install, run: Run, how: str
) -> None:
    points, complaint = BROKEN[how]
    install(points)
    done = run("check", "default")
    assert done.returncode == 1
    assert done.stderr.startswith(f"unabridged: entry point `{points}` of my_package 1.0")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_server_does_not_start_with_a_strategy_that_cannot_be_used(install: Install, run: Run) -> None:
    install("x = my_package:Nothing")
    done = run("serve", "--store", "memory://", "--port", "0")
    assert done.returncode == 1
    assert "entry point `x = my_package:Nothing` of my_package 1.0" in done.stderr


def test_one_name_in_two_packages_is_refused(install: Install, run: Run) -> None:
    install("largest_first = my_package:LargestFirst")
    install("largest_first = other:LargestFirst", package="other")
    done = run("schema")
    assert done.returncode == 1
    assert "the name `largest_first` is taken" in done.stderr


KINDS = {
    "compactors": ('[[compactors]]\nname = "changelog"\n', "changelog = my_package:Changelog", CHANGELOG),
    "searches": ('[recall]\nenabled = true\nsearch = "longest"\n', "longest = my_package:Longest", LONGEST),
}
"""A policy that names what is installed, its entry point, and itself."""


@pytest.mark.parametrize(
    ("group", "without_it"),
    [("compactors", 'must be "working_flow"'), ("searches", "`recall.search` must be")],
)
def test_what_is_installed_may_be_named_in_a_policy(
    install: Install, run: Run, tmp_path: Path, group: str, without_it: str
) -> None:
    policy, point, source = KINDS[group]
    file = tmp_path / "naming.toml"
    file.write_text(policy)
    assert without_it in run("check", str(file)).stderr
    install(point, source, group=group)
    assert run("check", str(file)).stdout.startswith("ok: naming")


@pytest.mark.parametrize(
    ("group", "source", "method"),
    [
        ("compactors", "class Changelog: can_compact = print", "compact"),
        ("searches", "class Longest: find = print", "search"),
    ],
)
def test_what_lacks_a_method_stops_the_program(
    install: Install, run: Run, tmp_path: Path, group: str, source: str, method: str
) -> None:
    policy, point, _ = KINDS[group]
    file = tmp_path / "naming.toml"
    file.write_text(policy)
    install(point, source, group=group)
    done = run("check", str(file))
    assert done.returncode != 0
    assert f"my_package 1.0 in unabridged.{group}: has no method `{method}`" in done.stderr


async def test_the_search_of_the_manual_finds_the_longest_passage_first() -> None:
    made: dict[str, Any] = {}
    exec(LONGEST, made)
    texts = ["a red car", "tea", "the red car of my neighbour"]
    passages = [Passage(text.encode(), partial(str, text)) for text in texts]
    assert await made["Longest"]().search("shelf", passages, "red", 5) == [2, 0]
