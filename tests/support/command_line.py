"""The command line, as tests run it against a proxy."""

from __future__ import annotations

import json
from typing import Any, Protocol


class Run(Protocol):
    """Runs a verb beside the loop in which the upstream lives; gives its exit code, stdout and stderr."""

    async def __call__(self, *words: str) -> tuple[int, str, str]: ...


async def told(cli: Run, *words: str) -> Any:
    code, out, err = await cli(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)
