"""The tests themselves: what several of them share has a module of its own, and nothing else has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
IMPORT = re.compile(r"^ *(?:from|import) tests\.([\w.]+)", re.MULTILINE)
IMPORTED = {
    file.relative_to(TESTS): set(IMPORT.findall(file.read_text(encoding="utf-8")))
    for file in TESTS.rglob("*.py")
    if "node_modules" not in file.parts
}
"""The modules of ours that each file imports."""


def test_no_test_module_imports_another() -> None:
    found = {(str(file), module) for file, modules in IMPORTED.items() for module in modules}
    assert not {pair for pair in found if re.search(r"(^|\.)(test_\w+|conftest)$", pair[1])}


def test_what_stands_in_support_is_shared() -> None:
    users = Counter(module for modules in IMPORTED.values() for module in modules)
    modules = [file.stem for file in IMPORTED if file.parent.name == "support"]
    assert [module for module in modules if users[f"support.{module}"] < 2] == []
