"""Fuzzing guided by coverage (atheris, on libFuzzer): `python -m tests.fuzz.bodies -max_total_time=60`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

atheris: Any = import_module("atheris")  # not installed everywhere, and it has no types


def instrumented() -> AbstractContextManager[object]:
    """Imports within are watched by the fuzzer."""
    return atheris.instrument_imports(include=["proxy"])


def fuzz(one: Callable[[bytes], None]) -> None:
    """Try inputs until told to stop by libFuzzer's options; what `one` raises ends it and names the input."""
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
