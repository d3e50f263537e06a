"""`docs/faults.md` names, for each fault, a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
NAMED = sorted(set(re.findall(r"`([a-z0-9_/]+\.py::\w+)`", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_exists(name: str) -> None:
    file, _, function = name.partition("::")
    source = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:async )?def {function}\(", source, re.MULTILINE)


def test_every_fault_has_a_test() -> None:
    unshown = [row for row in ROWS if "shown by" not in row and "::test_" not in row]
    assert unshown == []
    assert len(ROWS) > 60
