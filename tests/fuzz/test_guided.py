"""The fuzzers, for as many seconds each as FUZZ_SECONDS says; skipped where atheris has no wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris")

SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("target", ["streams", "bodies"])
def test_no_input_breaks_what_is_promised(target: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"tests.fuzz.{target}", f"-max_total_time={SECONDS}"]
    ended = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
