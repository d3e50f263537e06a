"""CPU a turn of one long session, and how it grows with the turns already past (law 8).

    make bench-turns

A real `unabridged serve` with its embedded store, a scripted upstream, and one client whose messages all have
one size. In windows of turns the CPU time of the server and of everything that it has started is read, Valkey
included. Between them stands the *reference*: `X-Unabridged-Mode: off`, which moves bytes and does nothing
else, for as many bytes as the turns took in and sent on. What is over that is our own. Wall time is never
read. Ends with 1 where the aim is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.bench.answering import answering
from tests.bench.serving import Served, serving

AIM = 1.5
"""CPU a turn in the last window over that in the first, the bytes' own cost apart."""
BLOCKS, BLOCK = 10, 5
"""Blocks of a window, and turns of a block. The cheapest block counts: on a busy machine others only add."""
AT = (100, 200, 500, 1_000, 2_000)
"""Turns past in the middle of each window."""
REST = 0.08
"""Seconds in which what is written after an answer is written."""
WORDS = (
    "harbour bridge crane ferry tower market garden library station museum mill orchard quarry pier".split()
)
PROSE, RULES = "In view", "You must never forget that in view"
"""How each sentence begins. One that lays something down is held against all others that do."""
PLAIN = 'extends = "default"\n[budget]\ntokens = 100_000_000\n'
PRUNED = 'extends = "default"\n[budget]\ntokens = 8_000\n'


@dataclass(frozen=True)
class Way:
    """One way to hold a session."""

    name: str
    policy: str
    is_named: bool = True
    """Whether a header names it; else it is recognised by its chain."""
    appends: bool = False
    opens: str = PROSE

    @property
    def headers(self) -> dict[str, str]:
        mode = {"X-Unabridged-Mode": "append"} if self.appends else {}
        return mode | ({"X-Unabridged-Session": "long"} if self.is_named else {})


WAYS = (
    Way("full", PLAIN),
    Way("full, no header", PLAIN, is_named=False),
    Way("full, pruned", PRUNED),
    Way("full, pruned, four rules a message", PRUNED, opens=RULES),
    Way("append", PLAIN, appends=True),
    Way("append, pruned", PRUNED, appends=True),
)


# --- the upstream


@dataclass
class Upstream:
    """Answers each turn with a text of the size of its question, and every summary with two sentences."""

    answer: str = ""
    received: int = 0
    """Bytes of the newest body of a turn."""

    def reply(self, body: bytes) -> str:
        """What is said to a request."""
        if b"<transcript " in body[-200_000:] and b'"max_' in body:
            text = "They spoke of the town's works. All of it went as planned."
            return json.dumps({"summary": text}) if b'"response_format"' in body else text
        self.received = len(body)
        return self.answer


# --- the server


def cpu_of(served: Served) -> float:
    """Milliseconds that a proxy and all that it has started have run."""
    return sum(map(_ran, _family(served.process.pid))) / 1e6


def _family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    tasks = Path(f"/proc/{pid}/task")
    children = " ".join((task / "children").read_text() for task in tasks.iterdir()).split()
    return [pid, *(each for child in children for each in _family(int(child)))]


def _ran(pid: int) -> int:
    """Nanoseconds of CPU that a process's threads have had."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


# --- the client


@dataclass
class Talk:
    """The conversation as the client tells it."""

    size: int
    """Bytes of each text."""
    opens: str = PROSE
    raw: bytearray = field(default_factory=bytearray)
    """Its messages so far, with commas between them."""

    def text(self, who: str, turn: int) -> str:
        """What is said at a turn: no two texts are alike; all are of one size and one kind."""
        one, other, third = (WORDS[turn // len(WORDS) ** place % len(WORDS)] for place in range(3))
        said = (
            f"{self.opens} of the {who} the {one} by the {other} near the {third} was looked at once more. "
        )
        return (said * (self.size // len(said) + 1))[: self.size]

    def add(self, role: str, text: str) -> None:
        """Go on by one message."""
        self.raw += (b"," if self.raw else b"") + message(role, text)


def message(role: str, text: str) -> bytes:
    """A message's JSON."""
    return json.dumps({"role": role, "content": text}).encode()


def request(messages: bytes | bytearray) -> bytes:
    """A body, with the members in the order in which SDKs write them."""
    return b'{"messages":[' + messages + b'],"model":"gpt-long","stream":false}'


@dataclass
class Client:
    """Sends requests on one connection."""

    connection: HTTPConnection
    headers: dict[str, str]

    def send(self, body: bytes, **headers: str) -> dict[str, str]:
        """Ask, and read the answer to its end; its headers."""
        known = {"Authorization": "Bearer sk-long", "Content-Type": "application/json", **self.headers}
        self.connection.request("POST", "/v1/chat/completions", body, known | headers)
        response = self.connection.getresponse()
        told = response.read()
        if response.status != 200:
            raise SystemExit(f"{response.status}: {told[:500]!r}")
        return {name.lower(): value for name, value in response.getheaders()}


@dataclass(frozen=True)
class Measured:
    """One window; milliseconds are a turn's."""

    turns: int
    """Turns past in its middle."""
    received: int
    forwarded: int
    """Bytes of a body."""
    mean: float
    """Of all its turns, those among them at which an epoch begins."""
    least: float
    """Of the cheapest block."""
    reference: float
    """Of the cheapest block that only moved as many bytes."""
    epochs: int
    """How many began in it."""

    @property
    def own(self) -> float:
        """What is not for its bytes."""
        return self.least - self.reference


class Session:
    """One session on its way."""

    def __init__(self, way: Way, size: int, upstream: Upstream, served: Served) -> None:
        self._way, self._upstream, self._served = way, upstream, served
        self._talk = Talk(size, way.opens)
        self._client = Client(HTTPConnection(served.host, timeout=60), way.headers)
        self._turn = 0
        self._epoch = 0
        self._received = 0

    def go_on(self, until: int) -> None:
        """Turn by turn until so many are past."""
        while self._turn < until:
            self._turn += 1
            asked, answer = (self._talk.text(who, self._turn) for who in ("question", "answer"))
            self._upstream.answer = answer
            self._talk.add("user", asked)
            body = request(message("user", asked)) if self._way.appends else request(self._talk.raw)
            told = self._client.send(body)
            self._talk.add("assistant", answer)
            self._received, self._epoch = len(body), int(told["x-unabridged-epoch"])

    def window(self, middle: int) -> Measured:
        """Measure the turns around ``middle``, block by block, the reference between them."""
        self.go_on(middle - BLOCKS * BLOCK // 2)
        first, costs, references = self._epoch, list[float](), list[float]()
        for _ in range(BLOCKS):
            costs.append(self._cost(lambda: self.go_on(self._turn + BLOCK)))
            references.append(self._cost(self._move))
        return Measured(
            turns=middle,
            received=self._received,
            forwarded=self._upstream.received,
            mean=statistics.mean(costs),
            least=min(costs),
            reference=min(references),
            epochs=self._epoch - first,
        )

    def _move(self) -> None:
        """Requests of as many bytes as a turn takes in and sends on, which are forwarded and no more."""
        body = request(self._talk.raw)[: (self._received + self._upstream.received) // 2]
        forwarded = self._upstream.received
        for _ in range(BLOCK):
            self._client.send(body, **{"X-Unabridged-Mode": "off"})
        self._upstream.received = forwarded

    def _cost(self, work: Callable[[], None]) -> float:
        """Milliseconds that each turn of a block costs, with what it leaves to be done."""
        time.sleep(REST)
        began = cpu_of(self._served)
        work()
        time.sleep(REST)
        return (cpu_of(self._served) - began) / BLOCK


def measure(way: Way, size: int, windows: Sequence[int]) -> list[Measured]:
    """Hold a session, and read its windows."""
    upstream = Upstream()
    with answering(upstream.reply) as url, tempfile.TemporaryDirectory() as home:
        policy = Path(home, "long.toml")
        policy.write_text(way.policy)
        with serving(url, f"--policy={policy}") as served:
            session = Session(way, size, upstream, served)
            return [session.window(middle) for middle in windows]


# --- the table


def tell(rows: dict[Way, list[Measured]]) -> bool:
    """Print what was found; whether the aim is reached everywhere."""
    print(
        "| session | turns past | KB in | KB on | reference | CPU ms | own | over the first | mean | epochs |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    is_reached = True
    for way, found in rows.items():
        first = found[0]
        for each in found:
            print(
                f"| {way.name} | {each.turns:,} | {each.received / 1000:.1f} | {each.forwarded / 1000:.1f} "
                f"| {each.reference:.2f} | {each.least:.2f} | {each.own:.2f} | {each.own / first.own:.2f} "
                f"| {each.mean:.2f} | {each.epochs} |"
            )
        is_reached &= found[-1].own <= AIM * first.own
    return is_reached


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=AT[-1], help="turns past in the last window")
    parser.add_argument("--bytes", type=int, default=300, help="of each question and each answer")
    parser.add_argument("--only", nargs="*", help="names of sessions")
    given: Any = parser.parse_args()
    windows = [*(each for each in AT if each < given.turns), given.turns]
    ways = [way for way in WAYS if not given.only or way.name in given.only]
    rows: dict[Way, list[Measured]] = {}
    for way in ways:
        rows[way] = measure(way, given.bytes, windows)
        print(f"{way.name}: measured", file=sys.stderr)
    return 0 if tell(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
