"""`unabridged replay`: what policies would have sent for recorded sessions, turn by turn, without a model.

A file has one session a line, `{"id", "messages", "tools"?}`; messages are read and counted as in a request.
"""

import argparse
import asyncio
import gzip
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.plugins import load_plugins
from proxy.adapters.tiktoken import TiktokenCounter
from proxy.cli.terminal import (
    CommandError,
    add_json_option,
    notes,
    percent,
    positive,
    print_json,
    show,
    stage_text,
    table,
)
from proxy.core.body import read_body
from proxy.core.budget import Budget, Stage, budget_tokens
from proxy.core.calibration import Ratio
from proxy.core.policy import Policy
from proxy.core.replay import ReplayedTurn, replay
from proxy.core.situation import Chain
from proxy.engine.history import Reader, root_of
from proxy.errors import UnabridgedError


@dataclass(frozen=True)
class RecordedSession:
    """One line of the file, read and counted."""

    id: str
    chain: Chain
    head: int
    """Counted tokens of tools and leading system messages."""


@dataclass(frozen=True)
class Outcome:
    """One session under one policy."""

    session: str
    policy: str
    """Its name, or what else tells it from the others."""
    budget: int
    turns: tuple[ReplayedTurn, ...]

    def totals(self) -> dict[str, Any]:
        """Sums over the turns."""
        return totals([self])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file, policies, and what stands for a request's model and budget."""
    parser.add_argument("file", metavar="FILE", help="sessions, .jsonl or .jsonl.gz; - is stdin")
    parser.add_argument(
        "--policy", metavar="NAME|FILE", action="append", help="may be given several times (default)"
    )
    parser.add_argument("--policies", metavar="DIR", type=Path, help="a directory of policies")
    parser.add_argument("--budget", metavar="TOKENS", type=positive, help="lowers every policy's budget")
    parser.add_argument(
        "--model", metavar="NAME", default="", help="whose window and ratio of tokens to take"
    )
    parser.add_argument("--turns", action="store_true", help="show each turn")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Replay every session under every policy. Raises PluginError, PolicyError, CommandError."""
    load_plugins()
    policies = _by_label(PolicyLibrary.of(args.policies), args.policy or ["default"])
    counter = TiktokenCounter()
    outcomes: list[Outcome] = []
    for session in _with_progress(list(_lines(args.file)), args.file, args.model, counter):
        for label, policy in policies.items():
            budget = _budget(policy, session.head, args.budget, args.model)
            turns = tuple(replay(session.chain, policy, budget, counter.count))
            outcomes.append(Outcome(session.id, label, budget.tokens, turns))
    if args.json:
        print_json(_as_json(outcomes, list(policies), with_turns=args.turns))
    else:
        show(*_tables(outcomes, list(policies), with_turns=args.turns))
    return 0


def _by_label(library: PolicyLibrary, given: Sequence[str]) -> dict[str, Policy]:
    """Policies by name; those whose names are the same, by how they were given. Raises PolicyError."""
    policies = {each: library.load(each) for each in given}
    names = Counter(policy.name for policy in policies.values())
    return {policy.name if names[policy.name] == 1 else each: policy for each, policy in policies.items()}


# --- reading ---


def _lines(file: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank. Raises CommandError where the file cannot be read."""
    try:
        with ExitStack() as stack:
            for number, line in enumerate(_opened(file, stack), 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError(f"{file} cannot be read: {reason}") from error


def _opened(file: str, stack: ExitStack) -> IO[bytes]:
    if file == "-":
        return sys.stdin.buffer
    if file.endswith(".gz"):
        return cast("IO[bytes]", stack.enter_context(closing(gzip.open(file, "rb"))))
    return stack.enter_context(Path(file).open("rb"))


def _with_progress(
    lines: Sequence[tuple[int, bytes]], file: str, model: str, counter: TiktokenCounter
) -> Iterator[RecordedSession]:
    """Sessions, read one by one while a bar on a terminal tells how far this is."""
    console = notes()
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for number, line in progress.track(lines):
            try:
                yield asyncio.run(read_session(line, model, counter, number))
            except UnabridgedError as error:
                raise CommandError(f"{file}:{number}: not a session: {error.message}") from None


async def read_session(line: bytes, model: str, counter: TiktokenCounter, number: int = 1) -> RecordedSession:
    """One line of a file; a session without an id is named after its line. Raises UnabridgedError."""
    body = read_body(line.strip(), sys.maxsize)
    reader = Reader(counter)
    history = replace(reader.read(body, root_of(body, by_header=True)), model=model)
    await reader.count(history)
    head = await reader.head_tokens(history)
    name = body.get("id")
    return RecordedSession(str(number) if name is None else str(name), history.chain(), head)


def _budget(policy: Policy, head: int, lowered: int | None, model: str) -> Budget:
    """The budget of a request without an output limit; no model: a window of 8,000 and a ratio of 1."""
    rules = policy.budget
    limits = [limit for limit in (rules.tokens, lowered) if isinstance(limit, int)]
    window = rules.window(model) or (prices.context_window(model) if model else None)
    reserve = rules.reserve if isinstance(rules.reserve, int) else None
    ratio = Ratio.of(model).value if model else 1.0
    return Budget(budget_tokens(min(limits, default=None), window, reserve), ratio, head)


# --- telling ---


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Sums over all turns of all sessions; `ratio` is sent over full."""
    turns = [turn for outcome in outcomes for turn in outcome.turns]
    full, sent = (sum(turn.full_tokens for turn in turns), sum(turn.sent_tokens for turn in turns))
    over = [turn for outcome in outcomes for turn in outcome.turns if turn.sent_tokens > outcome.budget]
    return {
        "turns": len(turns),
        "full_tokens": full,
        "sent_tokens": sent,
        "ratio": round(sent / full, 4) if full else 1.0,
        "epochs": sum(outcome.turns[-1].epoch for outcome in outcomes if outcome.turns),
        "over_budget": len(over),
        "stages": {stage.value: sum(turn.stage is stage for turn in turns) for stage in Stage},
    }


def _as_json(outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool) -> dict[str, Any]:
    def session(outcome: Outcome) -> dict[str, Any]:
        told = {"id": outcome.session, "budget": outcome.budget, **outcome.totals()}
        return told | ({"turns": [asdict(turn) for turn in outcome.turns]} if with_turns else {})

    return {
        "policies": [
            {
                "policy": name,
                "totals": totals([each for each in outcomes if each.policy == name]),
                "sessions": [session(each) for each in outcomes if each.policy == name],
            }
            for name in names
        ]
    }


_SUMS = (">turns", ">full", ">sent", ">sent/full", ">epochs", ">over budget")


def _tables(
    outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool
) -> Iterator[RenderableType]:
    if with_turns:
        for outcome in outcomes:
            yield _turns_table(outcome)
            yield ""
    yield table(
        ("session", "policy", ">budget", *_SUMS),
        [(each.session, each.policy, each.budget, *_sums(each.totals())) for each in outcomes],
    )
    yield ""
    found = [(name, totals([each for each in outcomes if each.policy == name])) for name in names]
    yield table(
        ("policy", *_SUMS, *(f">{stage}" for stage in Stage)),
        [(name, *_sums(sums), *sums["stages"].values()) for name, sums in found],
        title="all sessions",
    )


def _sums(sums: dict[str, Any]) -> tuple[object, ...]:
    tokens = (sums["turns"], sums["full_tokens"], sums["sent_tokens"], percent(sums["ratio"]))
    return (*tokens, sums["epochs"], sums["over_budget"])


def _turns_table(outcome: Outcome) -> RenderableType:
    rows = [
        (
            turn.number,
            turn.messages,
            turn.full_tokens,
            stage_text(turn.stage),
            turn.sent_tokens,
            turn.cut,
            f"{turn.epoch}{' begins' if turn.began else ''}",
        )
        for turn in outcome.turns
    ]
    columns = (">turn", ">messages", ">full", "stage", ">sent", ">cut", "epoch")
    return table(columns, rows, title=f"{outcome.session} · {outcome.policy}")
