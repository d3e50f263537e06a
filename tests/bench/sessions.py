"""Play recorded sessions through a running proxy beside the baselines, and print the table of the docs.

    make bench PLAYER=session_bench.py DATA="*.jsonl.gz"
    make bench PLAYER=session_bench.py DATA="*.jsonl.gz" ARGS="--bill --way plain"

With ``--bill`` cached tokens cost what the model's provider charges, and a last column has the same share as
``cost_over_raw``, but by the bill of the proxy itself. Output is billed by the proxy alone: that of answers
is taken off, that of summaries is left in.

The player (it brings a recording upstream of its own) and the data stay outside the project. The proxy is the
real thing: ``unabridged serve`` with its embedded store, in a data directory of its own, started anew for
each row so that no row profits from another.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy.adapters.prices import prices_of
from proxy.core.budget.prices import MILLION, Prices
from tests.bench.serving import serving

UPSTREAM_PORT = 9100
_COLUMNS = (
    "requests",
    "failed",
    "invalid",
    "over_budget",
    "sent_over_raw",
    "cost_over_raw",
    "summary_calls",
    "hard_probes_kept",
)
_MODEL = "gpt-4o"
"""The player's usual model."""


def main() -> None:
    """Run every row and print it as it is measured."""
    arguments = _arguments()
    columns = (*_COLUMNS, "bill_over_raw") if arguments.bill else _COLUMNS
    print("| file | budget | way | " + " | ".join(name.replace("_", " ") for name in columns) + " |")
    print("|---" * (len(columns) + 3) + "|")
    for path in arguments.data:
        for budget in arguments.budget:
            for way in arguments.way:
                figures = _measure(arguments, path, budget, way)
                cells = " | ".join(str(figures.get(name, "")) for name in columns)
                print(f"| {Path(path).name.split('.')[0]} | {budget} | {way} | {cells} |", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--player", required=True, help="session_bench.py")
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--budget", nargs="+", type=int, default=[4000, 8000])
    parser.add_argument("--way", nargs="+", default=["fifo", "naive", "plain", "stream"])
    parser.add_argument("--limit", type=int, help="sessions of each file")
    parser.add_argument("--bill", action="store_true", help="hold the proxy's own bill against the player's")
    return parser.parse_args()


def _measure(arguments: argparse.Namespace, path: str, budget: int, way: str) -> dict[str, object]:
    command = [sys.executable, arguments.player, "--data", path, "--budget", str(budget)]
    if arguments.limit:
        command += ["--limit", str(arguments.limit)]
    prices = prices_of(_MODEL)
    if arguments.bill:
        command += ["--cached-price", str(prices.read_share)]
    if way not in ("plain", "stream"):
        return _play([*command, "--local", way])
    with serving(f"http://127.0.0.1:{UPSTREAM_PORT}/v1") as served:
        command += ["--proxy", served.base_url, "--upstream-port", str(UPSTREAM_PORT)]
        command += ["--header", f"X-Unabridged-Budget={budget}"]
        figures = _play([*command, "--stream"] if way == "stream" else command)
        return figures | {"bill_over_raw": _over_raw(served.bill(), prices)} if arguments.bill else figures


def _over_raw(bill: Any, prices: Prices) -> float:
    """What was paid over what doing nothing would have cost, without the output of answers."""
    output, dollars = bill["tokens"]["output"] * prices.output / MILLION, bill["dollars"]
    return round((dollars["spent"] - output) / (dollars["without"] - output), 4)


def _play(command: Sequence[str]) -> dict[str, object]:
    # What the player says on its standard error is the noise of calls that were cancelled on purpose.
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
