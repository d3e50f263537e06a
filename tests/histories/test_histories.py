"""Random clients, retries, disconnects and faults: whatever happens, no turn is lost, doubled or torn.

`make soak` plays ten thousand; here are two hundred.
"""

from __future__ import annotations

import pytest

from tests.histories import bugs
from tests.histories.evidence import Kind
from tests.histories.history import Mode
from tests.histories.runner import Failure, run
from tests.histories.scripts import STORE_FAULTS, script
from tests.histories.site import open_site

FULL, APPEND = (Mode.FULL,), (Mode.APPEND,)


def told(failures: list[Failure]) -> str:
    return "\n\n".join(map(str, failures))


@pytest.mark.parametrize("first", range(0, 160, 40))
async def test_no_turn_is_lost_doubled_or_torn(first: int) -> None:
    async with open_site() as site:
        failures = await run(site, map(script, range(first, first + 40)))
    assert not failures, told(failures)


@pytest.mark.parametrize("first", range(200, 240, 20))
async def test_no_turn_is_lost_doubled_or_torn_while_the_store_fails(first: int) -> None:
    async with open_site(disturbed=True) as site:
        failures = await run(site, [script(seed, faults=STORE_FAULTS) for seed in range(first, first + 20)])
    assert not failures, told(failures)


@pytest.mark.parametrize("faults", [(), STORE_FAULTS], ids=["calm", "disturbed"])
async def test_nor_where_a_proxy_alone_remembers_what_it_has_written(faults: tuple[str, ...]) -> None:
    async with open_site(alone=True, disturbed=bool(faults)) as site:
        failures = await run(site, [script(seed, faults=faults) for seed in range(300, 330)])
    assert not failures, told(failures)


PLANTED = {
    "a write that is applied twice": (bugs.WritesTwice, FULL, Kind.TWICE),
    "a write that is applied twice, appended": (bugs.WritesTwice, APPEND, Kind.TWICE),
    "a turn that is promised and not written": (bugs.LosesTurns, FULL, Kind.LOST),
    "a turn that is promised and not written, appended": (bugs.LosesTurns, APPEND, Kind.LOST),
    "two turns in one another": (bugs.Interleaves, FULL, Kind.UNEXPLAINED),
    "two turns in one another, appended": (bugs.Interleaves, APPEND, Kind.INTERLEAVED),
    "a part for an answer": (bugs.TakesPartsForAnswers, APPEND, Kind.PARTIAL_IN_VIEW),
}


@pytest.mark.parametrize(("bug", "modes", "kind"), PLANTED.values(), ids=PLANTED)
async def test_a_planted_bug_is_found(bug: type[bugs.Bug], modes: tuple[Mode, ...], kind: Kind) -> None:
    async with open_site(plant=bug.plant) as site:
        failures = await run(site, [script(seed, modes) for seed in range(8)], settling=0.3)
    assert kind in {violation.kind for failure in failures for violation in failure.violations}
