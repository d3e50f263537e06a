"""CPU a turn of one long session, and how it grows with the turns already past (law 8).

    make bench-turns

A real `unabridged serve` with its embedded store, a scripted upstream, and one client whose messages all have
one size. In windows of turns the CPU time of the server and of everything that it has started is read, Valkey
included. Between them stand the same turns of *another session of as many bytes* whose past is one message.
What that costs more at the end is for its bytes, and is taken off; what is left is for the turns past. Wall
time is never read. Ends with 1 where the aim is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.bench.answering import answering
from tests.bench.serving import Served, serving

AIM = 1.5
"""CPU a turn in the last window over that in the first, the bytes' own cost aside."""
BLOCKS, BLOCK = 14, 5
"""Blocks of a window, and turns of a block. The cheapest block counts: on a busy machine others only add."""
AT = (100, 200, 500, 1_000, 2_000)
"""Turns past in the middle of each window."""
_WARM = 6
"""Turns of the other session before it is measured."""
_ELSEWHERE = 1_372
"""Where its texts begin, so that the two do not begin alike."""
_PROCESS_CLOCK = 2
"""What a clock's number ends with that counts a process's CPU time (clock_getcpuclockid(3), on Linux)."""
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

    def headers(self, session: str) -> dict[str, str]:
        """What a client sends with each request of a session."""
        mode = {"X-Unabridged-Mode": "append"} if self.appends else {}
        return mode | ({"X-Unabridged-Session": session} if self.is_named else {})


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
    return sum(map(_ran, family(served.process.pid))) / 1e6


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    tasks = Path(f"/proc/{pid}/task")
    children = " ".join((task / "children").read_text() for task in tasks.iterdir()).split()
    return [pid, *(each for child in children for each in family(int(child)))]


def _ran(pid: int) -> int:
    """Nanoseconds of CPU that a process has had, threads that have ended included."""
    return time.clock_gettime_ns((~pid << 3) | _PROCESS_CLOCK)


# --- the client


@dataclass
class Talk:
    """The conversation as the client tells it."""

    size: int
    """Bytes of each text."""
    opens: str = PROSE
    raw: bytearray = field(default_factory=bytearray)
    """Its messages so far, with commas between them."""

    def text(self, who: str, turn: int, size: int = 0) -> str:
        """What is said at a turn: no two texts are alike; all are of one size and one kind."""
        number = len(WORDS)
        one, other, third = (WORDS[turn // step % number] for step in (1, number, number * number))
        said = (
            f"{self.opens} of the {who} the {one} by the {other} near the {third} was looked at once more. "
        )
        return (said * ((size or self.size) // len(said) + 1))[: size or self.size]

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
    short: float
    """Of the cheapest block of a session of as many bytes, and hardly a past."""
    epochs: int
    """How many began in it."""

    def over(self, first: Measured) -> float:
        """How much of the first window's cost a turn costs now, without what more bytes cost."""
        return (self.least - (self.short - first.short)) / first.least


class Session:
    """One session on its way; it may begin with a message of some bytes."""

    def __init__(
        self, name: str, way: Way, size: int, upstream: Upstream, served: Served, first: int = 0
    ) -> None:
        self.way, self.upstream, self.served, self.size = way, upstream, served, size
        self.talk = Talk(size, way.opens)
        self._client = Client(HTTPConnection(served.host, timeout=60), way.headers(name))
        self._first = first
        self.turn = 0
        self.epoch = 0
        self.received = 0

    def go_on(self, until: int) -> None:
        """Turn by turn until so many are past."""
        while self.turn < until:
            number = self.turn + (_ELSEWHERE if self._first else 0)
            size = 0 if self.turn else self._first
            asked, answer = self.talk.text("question", number, size), self.talk.text("answer", number)
            self.turn += 1
            self.upstream.answer = answer
            self.talk.add("user", asked)
            body = request(message("user", asked)) if self.way.appends else request(self.talk.raw)
            told = self._client.send(body)
            self.talk.add("assistant", answer)
            self.received, self.epoch = len(body), int(told["x-unabridged-epoch"])

    def cost(self) -> float:
        """Milliseconds that each turn of a block costs, with what it leaves to be done."""
        time.sleep(REST)
        began = cpu_of(self.served)
        self.go_on(self.turn + BLOCK)
        time.sleep(REST)
        return (cpu_of(self.served) - began) / BLOCK


def window(session: Session, middle: int) -> Measured:
    """Measure the turns around ``middle``, block by block, those of the other session between them."""
    session.go_on(middle - BLOCKS * BLOCK // 2)
    short = Session(
        f"short {middle}", session.way, session.size, session.upstream, session.served, len(session.talk.raw)
    )
    short.go_on(_WARM)
    first, costs, others = session.epoch, list[float](), list[float]()
    forwarded = 0
    for _ in range(BLOCKS):
        costs.append(session.cost())
        forwarded = session.upstream.received
        others.append(short.cost())
    return Measured(
        turns=middle,
        received=session.received,
        forwarded=forwarded,
        mean=statistics.mean(costs),
        least=min(costs),
        short=min(others),
        epochs=session.epoch - first,
    )


def measure(way: Way, size: int, windows: Sequence[int]) -> list[Measured]:
    """Hold a session, and read its windows."""
    upstream = Upstream()
    with answering(upstream.reply) as url, tempfile.TemporaryDirectory() as home:
        policy = Path(home, "long.toml")
        policy.write_text(way.policy)
        with serving(url, f"--policy={policy}") as served:
            session = Session("long", way, size, upstream, served)
            return [window(session, middle) for middle in windows]


# --- the table


def tell(rows: dict[Way, list[Measured]]) -> bool:
    """Print what was found; whether the aim is reached everywhere."""
    print(
        "| session | turns past | KB in | KB on | CPU ms | as many bytes, no past | over the first | mean "
        "| epochs |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    is_reached = True
    for way, found in rows.items():
        first = found[0]
        for each in found:
            print(
                f"| {way.name} | {each.turns:,} | {each.received / 1000:.1f} | {each.forwarded / 1000:.1f} "
                f"| {each.least:.2f} | {each.short:.2f} | {each.over(first):.2f} | {each.mean:.2f} "
                f"| {each.epochs} |"
            )
        is_reached &= found[-1].over(first) <= AIM
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
