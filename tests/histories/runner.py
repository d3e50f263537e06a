"""Plays scripts, many at once, and asks the oracle about each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.histories import checker
from tests.histories.clients import Player, Sender
from tests.histories.evidence import GRACE, Kind, Violation
from tests.histories.history import Attempt, History, log
from tests.histories.scripts import Script
from tests.histories.site import Site

SETTLING = 3.0
"""Seconds within which running writes have ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A history with faults."""

    script: Script
    history: History
    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        told = "\n".join(f"  {violation}" for violation in self.violations)
        return f"SEED={self.script.seed}\n{told}\n{log(self.history)}"


class Play:
    """A script while it is played."""

    def __init__(self, site: Site, script: Script) -> None:
        self.script = script
        self.history = History(script.seed)
        self._site = site
        self._faults = sorted(script.faults, key=lambda fault: fault.after)
        self._harm: list[asyncio.Task[None]] = []
        sender = Sender(self.history, site.urls, self._attempted)
        self._players = [
            Player(sender, client, number, script.seed) for number, client in enumerate(script.clients)
        ]

    async def play(self) -> None:
        """Play the whole script, its faults included."""
        await asyncio.gather(*(player.play() for player in self._players))
        self._faults.clear()  # what comes after is said in peace
        await asyncio.gather(*self._harm)

    async def say_last(self) -> None:
        """Make one more turn of each client, once nothing is disturbed any more."""
        for number, player in enumerate(self._players):
            await player.say_last(self.script.seed + number)

    def _attempted(self, _: Attempt) -> None:
        while self._faults and self._faults[0].after <= len(self.history.attempts):
            fault = self._faults.pop(0)
            what = f"{fault.kind} for {fault.milliseconds} ms, worker {fault.worker}"
            self.history.faults.append((asyncio.get_running_loop().time(), what))
            self._harm.append(asyncio.create_task(self._site.disturb(fault)))


async def run(site: Site, scripts: Iterable[Script], settling: float = SETTLING) -> list[Failure]:
    """Play these scripts at once on one site, and return the failures."""
    counted = await site.lost_turns()
    plays = [Play(site, script) for script in scripts]
    await asyncio.gather(*(play.play() for play in plays))
    if not site.is_calm:
        await asyncio.sleep(GRACE)
        await asyncio.gather(*(play.say_last() for play in plays))
    for play in plays:
        play.history.is_calm = site.is_calm
        play.history.crashes = list(site.crashes)
    failures = await _settled(site, plays, settling)
    return failures or _uncounted(plays, counted, await site.lost_turns())


def _uncounted(plays: Sequence[Play], before: float | None, after: float | None) -> list[Failure]:
    """Return the histories with lost turns, if more were lost than the metric counted."""
    if before is None or after is None:
        return []
    counted = after - before
    lost = {play.script.seed: checker.lost_turns(play.history) for play in plays}
    if sum(lost.values()) <= counted:
        return []
    why = f"of {sum(lost.values())} lost turns {counted:.0f} were counted"
    return [
        Failure(
            play.script, play.history, (Violation(Kind.UNCOUNTED, f"{lost[play.script.seed]} here", why),)
        )
        for play in plays
        if lost[play.script.seed]
    ]


async def _settled(site: Site, plays: Sequence[Play], settling: float) -> list[Failure]:
    """Return the faults, once running writes have ended."""
    deadline = asyncio.get_running_loop().time() + settling
    left: list[Play] = list(plays)
    failures: list[Failure] = []
    while left:
        for play in left:  # a request whose client has left may arrive after all others
            play.history.forwarded += site.model.take(f"h{play.script.seed}")
        await asyncio.gather(*(site.read(play.history) for play in left))
        checked = [(play, checker.check(play.history)) for play in left]
        failures = [Failure(play.script, play.history, tuple(found)) for play, found in checked if found]
        if asyncio.get_running_loop().time() > deadline:
            break
        left = [play for play, found in checked if found]
        if left:
            await asyncio.sleep(0.1)
    return failures
