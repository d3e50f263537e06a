"""What is installed beside the proxy: under licences that fit, and asked about where somebody answers."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.supply import audit, licences

_ROW = re.compile(r"^\| ([a-z0-9._-]+) \| (\d\S* \| .+) \|$", re.MULTILINE)
TOLD = dict(_ROW.findall(licences.PAGE.read_text(encoding="utf-8")))


# --- licences ---


def test_every_package_of_the_lock_has_its_line_and_no_other() -> None:
    assert {name: told.partition(" | ")[0] for name, told in TOLD.items()} == {
        package.name: package.version for package in licences.locked()
    }


@pytest.mark.parametrize("name", TOLD)
def test_every_licence_lets_the_whole_be_under_mit(name: str) -> None:
    assert licences.is_taken(TOLD[name].partition(" | ")[2])


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "MIT AND AGPL-3.0-or-later", "LicenseRef-Proprietary", ""]
)
def test_a_licence_that_does_not_is_seen(licence: str) -> None:
    assert not licences.is_taken(licence)


def test_the_page_says_what_the_installed_packages_state() -> None:
    """Of those whose installed version is the locked one: elsewhere tests may run beside others."""
    checked = 0
    for package in licences.locked():
        stated = licences.stated(package.name)
        if package.name != "async-timeout" and version(package.name) == package.version:
            assert TOLD[package.name] == f"{package.version} | {stated}"
            checked += 1
    assert checked


def test_what_is_installed_on_other_machines_alone_is_listed_and_what_is_nowhere_is_not(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "run.txt"
    lock.write_text(
        "one==1.0 \\\n    --hash=sha256:aa\n"
        "two==2.0 ; sys_platform == 'darwin' \\\n    --hash=sha256:bb\n"
        "three==3.0 ; sys_platform == 'emscripten' \\\n    --hash=sha256:cc\n"
    )
    assert [package.name for package in licences.locked([lock])] == ["one", "two"]


# --- advisories ---


def says(text: str, *, code: int = 0, error: str = "") -> list[str]:
    """A program in the place of pip-audit."""
    program = f"import sys; sys.stdout.write({text!r}); sys.stderr.write({error!r}); sys.exit({code})"
    return [sys.executable, "-c", program]


def report(*vulnerabilities: dict[str, object]) -> str:
    skipped = {"name": "other", "skip_reason": "not there"}
    package = {"name": "one", "version": "1.0", "vulns": list(vulnerabilities)}
    return json.dumps({"dependencies": [package, skipped], "fixes": []})


def test_what_is_known_fails_and_says_what_to_take(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pip_audit")
    known: dict[str, object] = {"id": "CVE-1", "fix_versions": ["1.1"], "aliases": []}
    assert audit.main(says(report(known), code=1)) == 1
    assert capsys.readouterr().out == "audit: one 1.0: CVE-1, fixed in 1.1\n"
    assert audit.main(says(report())) == 0
    assert capsys.readouterr().out == "audit: nothing is known against 1 packages\n"


def test_a_service_that_does_not_answer_is_no_failure_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pip_audit")
    assert audit.main(says("", code=1, error="Traceback\nConnectionError: no route")) == 0
    assert capsys.readouterr().out.endswith("does not answer: ConnectionError: no route\n")


def test_a_mirror_without_advisories_does_not_pass_for_one_that_knows_of_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pip_audit")
    nowhere = {"dependencies": [{"name": "one", "version": "1.0", "skip_reason": "not found"}]}
    assert audit.main(says(json.dumps(nowhere))) == 0
    assert "it knows none of 1 packages" in capsys.readouterr().out


def test_nobody_waits_for_it_longer_than_said() -> None:
    with pytest.raises(audit.UnansweredError, match=r"0\.2 seconds"):
        audit.asked([sys.executable, "-c", "import time; time.sleep(60)"], patience=0.2)
