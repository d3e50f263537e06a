"""Random scripts: what clients do, and what happens to their requests. A seed always gives the same one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from tests.histories.history import Mode

WORKERS = 2


class Act(StrEnum):
    """What a client does next."""

    SAY = "say"
    YES = "yes"
    """Say "yes", a message that occurs again and again."""
    REGENERATE = "regenerate"
    EDIT = "edit"
    """Change an older message, and drop what followed it."""
    FORK = "fork"
    """Make two turns at once after the same history; continue with one of them."""
    TITLE = "title"
    """Make a turn, and at the same time request a title under the same id."""
    TWICE = "twice"
    """Send the same request to both workers at once."""


class Then(StrEnum):
    """What a client does about a turn that was not answered."""

    RETRY = "retry"
    KEEP = "keep"
    """Keep the part of the answer that arrived, and continue; if nothing arrived, drop the turn."""
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a client, and what happens to it."""

    act: Act = Act.SAY
    worker: int = 0
    streams: bool = True
    fate: str = "answer"
    """What the upstream does: see :mod:`tests.histories.model`."""
    leave: int | None = None
    """Number of chunks (milliseconds if not streamed) after which the client leaves."""
    then: Then = Then.RETRY
    keyed: bool = False
    """Whether the request has an Idempotency-Key."""
    pick: int = 0
    """Selects the older message that is edited."""
    pause: int = 0
    """Milliseconds to wait before the step."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its kind, and its steps."""

    talk: str
    """The name of its conversation; several clients may share one."""
    mode: Mode
    steps: tuple[Step, ...]
    header: str = ""
    """The session's name; without one it is found by its chain."""
    credential: str = "Bearer sk-one"
    user: str = ""
    has_clock: bool = False
    """Whether it sends a system message with the time."""
    greets: bool = False
    """Whether it begins with the same greeting as everybody."""
    budget: int = 0
    """The budget that it requests; then its turns are long, and epochs begin. 0: none."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is done to the store or the workers once the history has made so many attempts."""

    after: int
    kind: str
    milliseconds: int
    worker: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """A script: everything that is to happen."""

    seed: int
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...] = ()


STORE_FAULTS = (
    *("lose replies", "lag", "cut", "freeze", "kill"),
    *("cut replies", "swallow replies", "stray replies", "fill", "make read-only"),
)
WORKER_FAULTS = ("crash", "crash", "lose replies", "cut")


def script(seed: int, modes: tuple[Mode, ...] = tuple(Mode), faults: tuple[str, ...] = ()) -> Script:
    """Return the script of a seed. With `faults`, a quarter of all scripts have one of these."""
    random = Random(seed)
    clients: list[Client] = []
    for number in range(random.choice((1, 1, 1, 2))):
        write = random.choice([_append_talk if mode is Mode.APPEND else _full_talk for mode in modes])
        clients += write(random, f"h{seed}.talk{number}")
    made = [_fault(random, faults) for _ in range(random.choice((0, 0, 0, 1)))] if faults else []
    return Script(seed, tuple(clients), tuple(made))


def _fault(random: Random, kinds: tuple[str, ...]) -> Fault:
    milliseconds = random.choice((10, 40, 150, 400))
    return Fault(random.randrange(1, 12), random.choice(kinds), milliseconds, random.randrange(WORKERS))


def _full_talk(random: Random, talk: str) -> list[Client]:
    """One client, or two that share a session's name and not their histories."""
    base = Client(
        talk=talk,
        mode=Mode.FULL,
        steps=(),
        header=talk if random.random() < 0.6 else "",
        credential=random.choice(("Bearer sk-one", "Bearer sk-two")),
        user=random.choice(("", "", "jo")),
        has_clock=random.random() < 0.3,
        greets=random.random() < 0.2,
        budget=random.choice((0, 0, 0, 400)),
    )
    count = random.choice((1, 1, 1, 2)) if base.header else 1
    return [replace(base, steps=_steps(random, base)) for _ in range(count)]


def _append_talk(random: Random, talk: str) -> list[Client]:
    """One client, or several that append to one session at once."""
    base = Client(
        talk=talk,
        mode=Mode.APPEND,
        steps=(),
        header=talk,
        credential=random.choice(("Bearer sk-one", "Bearer sk-two")),
        has_clock=random.random() < 0.3,
        budget=random.choice((0, 0, 0, 400)),
    )
    count = random.choice((1, 1, 2, 3))
    return [replace(base, steps=_steps(random, base, alone=count == 1)) for _ in range(count)]


_FULL_ACTS = [Act.SAY] * 8 + [Act.YES] * 2 + [Act.REGENERATE, Act.EDIT, Act.FORK, Act.TITLE, Act.TWICE]
_APPEND_ACTS = [Act.SAY] * 5 + [Act.YES]
_FATES = ["answer"] * 10 + ["slow"] * 2 + ["calls:1", "calls:2", "429", "500"]
_CUTS = ("break:{}", "error:{}")


def _steps(random: Random, client: Client, *, alone: bool = True) -> tuple[Step, ...]:
    most = 10 if client.budget else 6
    return tuple(_step(random, client, alone=alone) for _ in range(random.randrange(2, most)))


def _step(random: Random, client: Client, *, alone: bool) -> Step:
    """A step. Clients that share an appended session say nothing twice: nobody could tell a retry from it.

    Nor do they call tools: the turn of one between the other's call and its result is nobody's wish.
    """
    acts = _FULL_ACTS if client.mode is Mode.FULL else _APPEND_ACTS if alone else [Act.SAY]
    fate = random.choice(_FATES)
    if fate.startswith("calls") and not alone:
        fate = "slow"
    if random.random() < 0.12:
        fate = random.choice(_CUTS).format(random.randrange(6))
    return Step(
        act=random.choice(acts),
        worker=random.randrange(WORKERS),
        streams=random.random() < 0.7,
        fate=fate,
        leave=random.randrange(7) if random.random() < 0.1 else None,
        then=random.choice((Then.RETRY, Then.RETRY, Then.KEEP, Then.DROP)),
        keyed=random.random() < 0.3,
        pick=random.randrange(4),
        pause=random.choice((0, 0, 0, 5, 20)),
    )
