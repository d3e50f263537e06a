"""A proxy of its own for a benchmark: `unabridged serve` on a free port, its data deleted afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_TOKEN = "bench"
STARTS = 60.0
"""Seconds in which it must be ready."""


@dataclass(frozen=True)
class Served:
    """A running proxy."""

    process: subprocess.Popen[str]
    base_url: str

    def bill(self) -> Any:
        """The bill of all that was asked, as `unabridged stats` has it."""
        request = urllib.request.Request(f"http://{self.host}/unabridged/v1/stats")
        request.add_header("Authorization", f"Bearer {_TOKEN}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["total"]

    @property
    def host(self) -> str:
        """Where it listens, as `host:port`."""
        return self.base_url.removeprefix("http://").removesuffix("/v1")


@contextmanager
def serving(upstream: str, *options: str) -> Generator[Served]:
    """The proxy in front of ``upstream``, started with further ``options``; it is ready."""
    with tempfile.TemporaryDirectory(prefix="ua-") as home:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "proxy", "serve", "--port=0", "--json"),
                *(f"--upstream={upstream}", *options),
            ],
            env=os.environ | {"UNABRIDGED_DATA_DIR": home, "UNABRIDGED_ADMIN_TOKEN": _TOKEN},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        try:
            served = Served(process, json.loads(process.stdout.readline())["base_url"])
            _wait_until_ready(served)
            yield served
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


def _wait_until_ready(served: Served) -> None:
    deadline = time.monotonic() + STARTS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{served.host}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the proxy did not get ready")
