"""`unabridged replay`: what policies would have sent for recorded sessions, and the bill; no model is asked.

A file has one session a line, `{"id", "messages", "tools"?}`; messages are read and counted as in a request.
"""

import argparse
import asyncio
import gzip
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.plugins import load_plugins
from proxy.adapters.tiktoken import TiktokenCounter
from proxy.cli.outcomes import Outcome, as_json, tables
from proxy.cli.replay_page import page
from proxy.cli.terminal import CommandError, add_json_option, notes, positive, print_json, seconds, show
from proxy.core.body import read_body
from proxy.core.budget import Budget, budget_tokens
from proxy.core.calibration import Ratio
from proxy.core.policy import Policy
from proxy.core.prices import Prices
from proxy.core.replay import replay
from proxy.core.situation import Chain
from proxy.engine.history import Reader, root_of
from proxy.errors import UnabridgedError
from proxy.lru import Memory


@dataclass(frozen=True)
class RecordedSession:
    """One line of the file, read and counted."""

    id: str
    chain: Chain
    head: int
    """Counted tokens of tools and leading system messages."""


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
    parser.add_argument("--turns", action="store_true", help="show each turn, and how each epoch was decided")
    parser.add_argument(
        "--idle", metavar="SECONDS", type=seconds, default=0.0, help="between an answer and the next turn (0)"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write it as one page of HTML")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Replay every session under every policy. Raises PluginError, PolicyError, CommandError."""
    load_plugins()
    policies = _by_label(PolicyLibrary.of(args.policies), args.policy or ["default"])
    counter = TiktokenCounter()
    known, outcomes = prices.prices_of(args.model), list[Outcome]()
    for session in _with_progress(list(_lines(args.file)), args.file, args.model, counter):
        for label, policy in policies.items():
            budget = _budget(policy, session.head, args.budget, args.model)
            played = replay(session.chain, policy, budget, counter.count, prices=known, idle=args.idle)
            paid, writer = known.under(policy.economy), prices.prices_of(policy.summary.model or args.model)
            outcomes.append(Outcome(session.id, label, budget.tokens, paid, writer, tuple(played)))
    note = _note(known, args.model, args.idle)
    if args.html:
        _write(args.html, page(outcomes, list(policies), note))
    if args.json:
        print_json(as_json(outcomes, list(policies), with_turns=args.turns))
    else:
        show(*tables(outcomes, list(policies), with_turns=args.turns, note=note))
    return 0


def _note(known: Prices, model: str, idle: float) -> str:
    """How the bill was reckoned."""
    whose = f"of {model}" if known.is_known else "taken where no price is known"
    return (
        f"Dollars for a million tokens, {whose}: {known.fresh:g} fresh, {known.cached:g} cached,"
        f" {known.written:g} written, {known.output:g} output. {idle:g} s between turns."
        " Answers are not billed. Summaries are billed as long as they may be, since no model was asked."
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error


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
    reader = Reader(counter, Memory())
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
