"""`make soak`: thousands of random histories, in groups that share proxies, a store and their faults.

A history is named by its seed. One that fails is printed as it happened, is made as small as it still fails,
and can be played alone: `make soak SEED=… COUNT=1`. What happens depends on time as well, and on what else
goes on, so a history that is played alone is played several times.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rich.console import Console

from tests.histories.runner import Failure, run
from tests.histories.scripts import STORE_FAULTS, WORKER_FAULTS, Script, script
from tests.histories.shrinking import smaller
from tests.histories.site import Site, open_site, open_site_of_workers

_OFTEN = 5
"""How often a history that is played alone is repeated."""
_SHRINKING = 120.0
"""Seconds spent on making a failure smaller."""
_TELLING = 3
"""Most failures per kind of site that are printed in full."""
Open = Callable[[], AbstractAsyncContextManager[Site]]
_console = Console()


@dataclass(frozen=True)
class Ground:
    """A kind of site, its faults, and how many histories it plays at once."""

    name: str
    open: Open
    faults: tuple[str, ...]
    at_once: int

    def script(self, seed: int) -> Script:
        return script(seed, faults=self.faults)


GROUNDS = (
    Ground("calm", open_site, (), 50),
    Ground("with a failing store", partial(open_site, disturbed=True), STORE_FAULTS, 20),
    Ground("with workers killed", open_site_of_workers, WORKER_FAULTS, 20),
)
"""A seed belongs to one of them, so that it is played alone as it was played among others."""


def ground_of(seed: int) -> Ground:
    """Return the kind of site of a seed; half of the seeds are undisturbed."""
    return GROUNDS[(0, 1, 0, 2)[seed % 4]]


async def soak(first: int, count: int) -> list[Failure]:
    """Play `count` histories from a seed on, and print failures as they are found."""
    failures: list[Failure] = []
    for ground in GROUNDS:
        seeds = [seed for seed in range(first, first + count) if ground_of(seed) is ground]
        told = 0
        async for done, found in _play(ground, seeds):
            for failure in found[: max(0, _TELLING - told)]:
                _print(str(failure))
                told += 1
            failures += found
            _print(f"{ground.name}: {done} of {len(seeds)}, {len(failures)} failed so far")
    return failures


async def _play(ground: Ground, seeds: list[int]) -> AsyncGenerator[tuple[int, list[Failure]]]:
    if not seeds:
        return
    async with ground.open() as site:
        left, done = iter(seeds), 0
        while group := list(islice(left, ground.at_once)):
            done += len(group)
            yield done, await run(site, map(ground.script, group))


async def alone(failing: Script) -> Failure | None:
    """Play one script alone until it fails, each time on a new site."""
    for _ in range(_OFTEN):
        async with ground_of(failing.seed).open() as site:
            if found := await run(site, [failing]):
                return found[0]
    return None


async def shrunk(failure: Failure) -> Failure:
    """Return the smallest history that fails in the same way, found by leaving out parts."""
    began = asyncio.get_running_loop().time()
    kind = failure.violations[0].kind
    candidates = smaller(failure.script)
    while asyncio.get_running_loop().time() < began + _SHRINKING:
        candidate = next(candidates, None)
        if candidate is None:
            break
        found = await alone(candidate)
        if found is not None and kind in {violation.kind for violation in found.violations}:
            failure, candidates = found, smaller(found.script)
    return failure


async def _main(first: int, count: int) -> int:
    failures = await soak(first, count)
    if failures and (again := await alone(failures[0].script)):
        _console.print("\nMade smaller:")
        _console.print(str(await shrunk(again)), markup=False, highlight=False, soft_wrap=True)
    for failure in failures:
        _print(f"make soak SEED={failure.script.seed} COUNT=1  # {failure.violations[0]}")
    return 1 if failures else 0


def _print(text: str) -> None:
    _console.print(text, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first history (a random one)")
    parser.add_argument("--count", type=int, default=10_000, help="of histories")
    given = parser.parse_args()
    seed: int = random.randrange(10**9) if given.seed is None else given.seed
    _print(f"SEED={seed} COUNT={given.count}")
    logging.disable(logging.CRITICAL)
    sys.exit(asyncio.run(_main(seed, given.count)))
