"""Runs `unabridged doctor` in a thread, beside the event loop of the servers that it checks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.cli import main


class Told(NamedTuple):
    """The findings of one run."""

    code: int
    checks: list[dict[str, Any]]

    def of(self, check: str) -> tuple[str, str]:
        """Return the state and the message of a check, which must have exactly one finding."""
        (found,) = (each for each in self.checks if each["check"] == check)
        return found["state"], found["message"]

    @property
    def worst(self) -> list[tuple[str, str]]:
        """The findings that are not ok."""
        return [(each["check"], each["state"]) for each in self.checks if each["state"] != "ok"]


class Doctor:
    """Runs the doctor with these arguments, in a clean environment."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._data = data
        self._capsys = capsys

    async def __call__(self, *words: str, upstream: str, store: str = "memory://", **variables: str) -> Told:
        flags = ["--upstream", upstream, *(["--store", store] if store else []), "--port", "0"]
        secret = {"UNABRIDGED_SECRET": "secret-of-the-tests"} if store else {}
        with self._environment(**secret, **variables):
            code = await asyncio.to_thread(main, ["doctor", *flags, *words, "--json"])
        said = json.loads(self._capsys.readouterr().out)
        assert said["ok"] is (code == 0)
        return Told(code, said["checks"])

    async def prose(self, *words: str, **variables: str) -> str:
        """Return its output for people."""
        with self._environment(**variables):
            await asyncio.to_thread(main, ["doctor", *words])
        return self._capsys.readouterr().out

    @contextmanager
    def _environment(self, **variables: str) -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                if name.lower().endswith("_proxy") or name.startswith(("UNABRIDGED_", "OPENAI_")):
                    patch.delenv(name)
            patch.setenv("UNABRIDGED_DATA_DIR", str(self._data))
            patch.setenv("XDG_CONFIG_HOME", str(self._data / "nothing"))
            for name, value in variables.items():
                patch.setenv(name, value)
            yield
