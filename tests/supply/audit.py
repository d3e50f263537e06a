"""Ask for known vulnerabilities in what is installed at run time: `make audit`.

Fails where there are any. Where the advisory service does not answer, or not within `PATIENCE`, it says so
and passes: a server of others must not stop work here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[2] / "requirements" / "run.txt"
PATIENCE = 30.0
"""Seconds for all of it."""
PIP_AUDIT = (
    *(sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip"),
    *("--format", "json", "--progress-spinner", "off", "--timeout", "5"),
)


Package = dict[str, Any]
"""What is said of one package."""


class UnansweredError(Exception):
    """The advisory service could not be asked."""


def asked(command: Sequence[str] = PIP_AUDIT, patience: float = PATIENCE) -> list[Package]:
    """What pip-audit finds, package by package. Raises UnansweredError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnansweredError(f"not within {patience:g} seconds") from error
    if not done.stdout.lstrip().startswith("{"):
        last = done.stderr.strip().rpartition("\n")[2]
        raise UnansweredError(last[:200] or f"exit code {done.returncode}")
    packages: list[Package] = json.loads(done.stdout)["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    if not known:  # a mirror without advisories
        raise UnansweredError(f"it knows none of {len(packages)} packages")
    return known


def findings(packages: Sequence[Package]) -> Iterator[str]:
    """One line for each vulnerability."""
    for package in packages:
        for found in package.get("vulns", ()):
            fixed = ", ".join(found.get("fix_versions", ())) or "no version yet"
            yield f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}"


def main(command: Sequence[str] = PIP_AUDIT) -> int:
    """The exit code."""
    if find_spec("pip_audit") is None:
        sys.stdout.write("audit: pip-audit is not installed\n")
        return 1
    try:
        packages = asked(command)
    except UnansweredError as error:
        sys.stdout.write(f"audit: skipped, the advisory service does not answer: {error}\n")
        return 0
    found = list(findings(packages))
    sys.stdout.writelines(f"audit: {line}\n" for line in found)
    if not found:
        sys.stdout.write(f"audit: nothing is known against {len(packages)} packages\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
