"""What a conversation of very many messages costs when it is first seen, and how long others wait meanwhile.

    make bench-messages

A real `unabridged serve` and a scripted upstream, started anew for each conversation. It is sent whole when
already over its budget, then again, then with one exchange more; then with a budget that it nearly fills; and
to another proxy that has never seen it, with room for all of it. Read are the CPU time of the server and of
all that it has started, what memory its processes had at their most, and for how long another client waits,
which sends a small chat every 10 ms: 95 % of its answers came within the first number, all within the second.
What these chats cost is measured before, and taken off.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.bench.answering import answering
from tests.bench.mixed import mixed
from tests.bench.serving import Served, serving
from tests.bench.turns import Client, cpu_of, family

Sent = dict[str, Any]
LENGTHS = 10_000, 40_000, 99_990
BUDGET = 8_000
NEARLY = 0.95
"""Of the other budget: what the conversation takes."""
STRATEGIES = "importance", "topic", "session", "exchanges", "sliding_window", "units"
EVERY = 0.01
"""Seconds between two small chats of the other client."""
QUIET = 2.0
"""Seconds in which it has the proxy for itself."""
REST = 0.5
"""Seconds in which what is written after an answer is written."""


def talk(number: int) -> list[Sent]:
    """A question and its answer."""
    return [{"role": "user", "content": f"hi {number}"}, {"role": "assistant", "content": f"so {number}"}]


def work(number: int) -> list[Sent]:
    """A call and its result; before the first, what is asked."""
    asked: list[Sent] = [] if number else [{"role": "user", "content": "Look it all up."}]
    made = {"name": "look", "arguments": f'{{"n":{number}}}'}
    calls = [{"id": f"c{number}", "type": "function", "function": made}]
    found = {"role": "tool", "tool_call_id": f"c{number}", "content": f"found {number}"}
    return [*asked, {"role": "assistant", "content": None, "tool_calls": calls}, found]


def alone(role: str, number: int) -> list[Sent]:
    """One message, always by the same."""
    return [{"role": role, "content": f"hi {number}"}]


KINDS: dict[str, Callable[[int], list[Sent]]] = {
    "talk": talk,
    "tools": work,
    "user": partial(alone, "user"),
    "assistant": partial(alone, "assistant"),
}
"""Of tiny messages."""


def conversation(kind: str, length: int) -> list[Sent]:
    """About so many messages."""
    each = mixed if kind == "mixed" else KINDS[kind]
    return [message for number in range(length // len(each(1))) for message in each(number)]


def recorded(paths: Sequence[str], length: int) -> list[Sent]:
    """About so many messages of recorded sessions, one of each file after the other."""
    files = [gzip.decompress(Path(path).read_bytes()).splitlines() for path in paths]
    messages: list[Sent] = []
    for number, lines in enumerate(cycle(files)):
        session: Sent = json.loads(lines[number // len(files) % len(lines)])
        messages += [_renamed(told, number) for told in session["messages"] if told["role"] != "system"]
        if len(messages) >= length:
            return messages
    return messages


def _renamed(told: Sent, session: int) -> Sent:
    """A message with the ids of its calls made different from those of other sessions."""
    message = dict(told)
    if "tool_call_id" in told:
        message["tool_call_id"] = f"{session}-{told['tool_call_id']}"
    if told.get("tool_calls"):
        message["tool_calls"] = [call | {"id": f"{session}-{call['id']}"} for call in told["tool_calls"]]
    return message


def body(messages: Sequence[Sent]) -> bytes:
    """As SDKs write it."""
    return json.dumps({"messages": messages, "model": "gpt-many", "stream": False}).encode()


# --- the other client


def chat(host: str, waits: Connection, over: Any) -> None:
    """Send small chats until it is ``over``; then tell when each began, and the seconds that it took."""
    client = Client(HTTPConnection(host, timeout=120), {"X-Unabridged-Session": "small"})
    small = body([{"role": "user", "content": "What is left to do today?"}])
    told: list[tuple[float, float]] = []
    while not over.is_set():
        began = time.monotonic()
        client.send(small)
        told.append((began, time.monotonic() - began))
        time.sleep(EVERY)
    waits.send(told)


class Others(NamedTuple):
    """What another client saw while something was done."""

    cpu: float
    """Seconds that the server took for all of it."""
    waits: list[float]
    """Milliseconds of each answer, the slowest last."""

    @classmethod
    def during(cls, served: Served, work: Callable[[], None]) -> Self:
        """While ``work`` is done."""
        told, tell = multiprocessing.Pipe(duplex=False)
        over = multiprocessing.Event()
        asking = multiprocessing.Process(target=chat, args=(served.host, tell, over), daemon=True)
        asking.start()
        time.sleep(20 * EVERY)
        start, before = time.monotonic(), cpu_of(served)
        work()
        cpu = (cpu_of(served) - before) / 1000
        over.set()
        waits = sorted(wait * 1000 for began, wait in told.recv() if began >= start)
        asking.join(120)
        return cls(cpu, waits)

    def __str__(self) -> str:
        return f"{self.waits[len(self.waits) * 95 // 100]:.0f} / {self.waits[-1]:.0f}"


# --- the table


class Row(NamedTuple):
    """What one request took."""

    request: str
    cpu: float
    """Seconds, without what the other client's chats cost."""
    others: Others
    quiet: Others
    """What the other client saw meanwhile, and with nothing else to do."""
    more: float
    """Megabytes of memory, since before the first."""
    told: dict[str, str]

    def __str__(self) -> str:
        cut = f"{self.told['x-unabridged-epoch']} | {int(self.told['x-unabridged-cut']):,}"
        return f"{self.request} | {self.cpu:.2f} | {self.others} | {self.quiet} | {self.more:.0f} | {cut}"


class Measured:
    """A proxy that has seen nothing, and the client whose conversation it is."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._client = Client(HTTPConnection(served.host, timeout=600), {"X-Unabridged-Session": "many"})
        self._quiet = Others.during(served, lambda: time.sleep(QUIET))
        self._memory = memory_of(served)

    def row(self, name: str, sent: bytes, budget: int | None = None) -> Row:
        """Send a body, under a budget."""
        told = dict[str, str]()

        def send() -> None:
            headers = {} if budget is None else {"X-Unabridged-Budget": str(budget)}
            told.update(self._client.send(sent, **headers))
            time.sleep(REST)

        others, quiet = Others.during(self._served, send), self._quiet
        cpu = others.cpu - len(others.waits) * quiet.cpu / len(quiet.waits)
        return Row(name, cpu, others, quiet, memory_of(self._served) - self._memory, told)


def memory_of(served: Served) -> float:
    """Megabytes that its processes had at their most."""
    told = [Path(f"/proc/{pid}/status").read_text() for pid in family(served.process.pid)]
    return sum(int(each.split("VmHWM:")[1].split()[0]) for each in told) / 1024


@contextmanager
def measuring(strategy: str, options: Sequence[str]) -> Generator[Measured]:
    """A proxy of its own, whose policy has this strategy."""
    rule = "[stages]\nmax_units = 20\n" if strategy == "units" else f'[strategy]\nname = "{strategy}"\n'
    with answering(lambda _: "so") as url, tempfile.TemporaryDirectory() as home:
        policy = Path(home, "many.toml")
        budget = "[budget]\ntokens = 10_000_000\n[summary]\nenabled = false\n"
        policy.write_text(f'extends = "balanced"\n{budget}{rule}')
        with serving(url, f"--policy={policy}", *options) as served:
            yield Measured(served)


def rows(told: Sequence[Sent], strategy: str, options: Sequence[str]) -> Iterator[Row]:
    """What each request of one conversation costs."""
    on = [*told, {"role": "assistant", "content": "so"}, {"role": "user", "content": "And now?"}]
    first, further = body(told), body(on)
    with measuring(strategy, options) as measured:
        yield measured.row("first, over its budget", first, BUDGET)
        yield measured.row("again", first, BUDGET)
        yield measured.row("an exchange more", further, BUDGET)
        tokens = measured.row("whole", further).told["x-unabridged-tokens"]
        full = int(tokens.partition("full=")[2].partition(";")[0])
        yield measured.row("nearly full", further, int(full / NEARLY))
    with measuring(strategy, options) as measured:
        yield measured.row("first, with room for all", first)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS, help="messages")
    parser.add_argument(
        "--kinds", nargs="*", default=list(KINDS), help="of conversations: also mixed, recorded"
    )
    parser.add_argument("--data", nargs="*", default=[], help="recorded sessions, for the kind of that name")
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES, help="of the policy")
    parser.add_argument("--store", help="another than the embedded one")
    given: Any = parser.parse_args()
    options = [f"--store={given.store}"] if given.store else []
    columns = "messages strategy how_many request CPU_s others_wait,_ms when_quiet MB_more epoch cut".split()
    print("|", " | ".join(column.replace("_", " ") for column in columns), "|")
    print("|---" * len(columns) + "|")
    for kind in given.kinds:
        for strategy in given.strategies:
            for length in given.lengths:
                told = recorded(given.data, length) if kind == "recorded" else conversation(kind, length)
                for row in rows(told, strategy, options):
                    print(f"| {kind} | {strategy} | {len(told):,} | {row} |", flush=True)


if __name__ == "__main__":
    main()
