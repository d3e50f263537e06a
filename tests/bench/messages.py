"""What a conversation of very many tiny messages costs, and for how long others wait meanwhile.

    make bench-messages

A real `unabridged serve` with its embedded store and a scripted upstream, started anew for each row.
Each kind of conversation is sent whole when already over its budget, then again, then with one exchange
more; then it is sent with a budget that it nearly fills. Read are the CPU time of the server and of all
that it has started, what memory its processes had at their most, and the slowest answer to `/healthz`,
which another process asks for every 10 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPConnection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from tests.bench.answering import answering
from tests.bench.serving import Served, serving
from tests.bench.turns import Client, cpu_of, family

Sent = dict[str, Any]
LENGTHS = 10_000, 40_000, 99_990
SMALL = {"X-Unabridged-Budget": "8000"}
NEARLY = 0.95
"""Of the other budget: what the conversation takes."""
STRATEGIES = "importance", "topic", "session", "exchanges", "sliding_window", "units"
EVERY = 0.01
"""Seconds between two questions after the server's health."""
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


def conversation(kind: str, length: int) -> list[Sent]:
    """About so many messages."""
    each = KINDS[kind]
    return [message for number in range(length // len(each(1))) for message in each(number)]


def body(messages: Sequence[Sent]) -> bytes:
    """As SDKs write it."""
    return json.dumps({"messages": messages, "model": "gpt-many", "stream": False}).encode()


def ask_for_health(host: str, slowest: Synchronized[float], over: Any) -> None:
    """Ask until it is ``over``; note the slowest answer, in seconds."""
    connection = HTTPConnection(host, timeout=120)
    while not over.is_set():
        began = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        slowest.value = max(slowest.value, time.monotonic() - began)
        time.sleep(EVERY)


def measured(served: Served, send: Callable[[], dict[str, str]]) -> tuple[float, float, dict[str, str]]:
    """Seconds of CPU that a request takes, seconds of the slowest answer meanwhile, and what was told."""
    slowest, over = multiprocessing.Value("d", 0.0), multiprocessing.Event()
    asking = multiprocessing.Process(target=ask_for_health, args=(served.host, slowest, over), daemon=True)
    asking.start()
    time.sleep(20 * EVERY)
    began = cpu_of(served)
    told = send()
    time.sleep(REST)
    took = (cpu_of(served) - began) / 1000
    over.set()
    asking.join(120)
    return took, slowest.value, told


def memory_of(served: Served) -> float:
    """Megabytes that its processes had at their most."""
    told = [Path(f"/proc/{pid}/status").read_text() for pid in family(served.process.pid)]
    return sum(int(each.split("VmHWM:")[1].split()[0]) for each in told) / 1024


def rows(kind: str, strategy: str, length: int) -> Iterator[str]:
    """What each request of one conversation costs."""
    rule = "[stages]\nmax_units = 20\n" if strategy == "units" else f'[strategy]\nname = "{strategy}"\n'
    with answering(lambda _: "so") as url, tempfile.TemporaryDirectory() as home:
        policy = Path(home, "many.toml")
        budget = "[budget]\ntokens = 10_000_000\n[summary]\nenabled = false\n"
        policy.write_text(f'extends = "balanced"\n{budget}{rule}')
        with serving(url, f"--policy={policy}") as served:
            client = Client(HTTPConnection(served.host, timeout=600), {"X-Unabridged-Session": "many"})
            told = conversation(kind, length)
            on = [*told, {"role": "assistant", "content": "so"}, {"role": "user", "content": "And now?"}]
            first, further, before = body(told), body(on), memory_of(served)

            def row(name: str, sent: bytes, headers: dict[str, str]) -> str:
                took, slowest, said = measured(served, lambda: client.send(sent, **headers))
                numbers = f"{took:.2f} | {slowest * 1000:.0f} | {memory_of(served) - before:.0f}"
                cut = f"{said['x-unabridged-epoch']} | {int(said['x-unabridged-cut']):,}"
                return f"| {kind} | {strategy} | {length:,} | {name} | {numbers} | {cut} |"

            yield row("first, over its budget", first, SMALL)
            yield row("again", first, SMALL)
            yield row("an exchange more", further, SMALL)
            told_of = client.send(further)["x-unabridged-tokens"]
            full = int(told_of.partition("full=")[2].partition(";")[0])
            yield row("nearly full", further, {"X-Unabridged-Budget": str(int(full / NEARLY))})


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS, help="messages")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="of conversations")
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES, help="of the policy")
    given: Any = parser.parse_args()
    print("| messages | strategy | how many | request | CPU s | slowest health, ms | MB more | epoch | cut |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in given.kinds:
        for strategy in given.strategies:
            for length in given.lengths:
                for row in rows(kind, strategy, length):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
