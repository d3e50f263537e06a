"""`unabridged replay`: what policies would have sent for recorded sessions, and the bill, without a model.

A file has one session a line, `{"id", "messages", "tools"?}`, or is one session over many lines, or the array
of its messages alone. Messages are read and counted as in a request.
"""

import argparse
import asyncio
import codecs
import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.plugins import load_plugins
from proxy.adapters.tokens import TiktokenCounter
from proxy.cache import CacheMemory
from proxy.cli.replay_learn import as_json as learned_json
from proxy.cli.replay_learn import as_toml as learned_toml
from proxy.cli.replay_learn import learn
from proxy.cli.replay_report import as_json, page, tables
from proxy.cli.terminal import (
    CommandError,
    UsageError,
    add_json_option,
    notes,
    path,
    positive,
    print_json,
    seconds,
    show,
)
from proxy.core.budget.budget import Budget, budget_tokens
from proxy.core.budget.learning import Ratio, WindowEvidence
from proxy.core.budget.prices import Prices
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.registry import CHAT
from proxy.core.economics.simulate import USUAL_SUMMARY, Outcome, replay
from proxy.core.policy.policy import Policy
from proxy.core.proof.learning import Played, Recording, play
from proxy.engine.intake.reader import Reader
from proxy.errors import InvalidJSON, MissingParameter, UnabridgedError

_EXAMPLE_WINDOW = 8_000
"""Tokens of the example window that is used if no model is named."""
_OF_REPORTS = ("turns", "idle", "html")
"""Options that say how sessions are replayed and reported, which learning does not do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a file, policies, and the model and budget of the requests."""
    parser.add_argument(
        "file", metavar="FILE", help="sessions, a line each, or one as JSON; also gzip; - is stdin"
    )
    parser.add_argument(
        "--policy", metavar="NAME|FILE", action="append", help="may be given several times (default)"
    )
    parser.add_argument("--policies", metavar="DIR", type=path, help="a directory of policies")
    parser.add_argument("--budget", metavar="TOKENS", type=positive, help="lowers every policy's budget")
    parser.add_argument(
        "--model", metavar="NAME", default="", help="whose window and ratio of tokens to take"
    )
    parser.add_argument("--turns", action="store_true", help="show each turn, and how each epoch was decided")
    parser.add_argument(
        "--idle", metavar="SECONDS", type=seconds, default=0.0, help="between an answer and the next turn (0)"
    )
    parser.add_argument(
        "--summary-tokens",
        metavar="TOKENS",
        type=positive,
        default=USUAL_SUMMARY,
        help=f"that your summaries had so far, for the lower end of the bill ({USUAL_SUMMARY})",
    )
    parser.add_argument(
        "--learn",
        action="store_true",
        help="print a policy that was learned from half of the sessions, and what it does on the others",
    )
    parser.add_argument("--html", metavar="FILE", type=path, help="also write it as one page of HTML")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Replay every session under every policy. Raises PluginError, FileError, CommandError."""
    load_plugins()
    library = PolicyLibrary(args.policies)
    given = {each: library.load(each) for each in args.policy or ["default"]}
    if args.learn:
        return _learn(args, [*given.values()])
    names = Counter(policy.name for policy in given.values())
    # Policies of one name go by how they were given.
    policies = {policy.name if names[policy.name] == 1 else each: policy for each, policy in given.items()}
    counter = TiktokenCounter()
    known, outcomes = prices.prices_of(args.model), list[Outcome]()
    for session in _sessions(args.file, args.model, counter):
        for label, policy in policies.items():
            budget = _budget(policy, session.head_tokens, args.budget, args.model)
            played = replay(
                session.chain,
                policy,
                budget,
                counter.count,
                prices=known,
                idle=args.idle,
                summary_tokens=args.summary_tokens,
            )
            paid, writer = known.under(policy.economy), prices.prices_of(policy.summary.model or args.model)
            outcomes.append(Outcome(session.id, label, budget.tokens, paid, writer, tuple(played)))
    note = _note(known, args.model, args.idle, args.summary_tokens)
    if args.html:
        try:
            # An id may be half a character.
            args.html.write_text(page(outcomes, policies, note), encoding="utf-8", errors="replace")
        except OSError as error:
            raise CommandError(f"{args.html} cannot be written: {error.strerror or error}") from error
    if args.json:
        print_json(as_json(outcomes, list(policies), with_turns=args.turns))
    else:
        show(*tables(outcomes, list(policies), with_turns=args.turns, note=note))
    return 0


def _learn(args: argparse.Namespace, given: Sequence[Policy]) -> int:
    """Learn from the sessions. Raises CommandError."""
    if len(given) > 1:
        raise CommandError("--learn takes one policy")
    if ignored := [f"--{name}" for name in _OF_REPORTS if getattr(args, name)]:
        raise UsageError(f"--learn makes no report: leave out {' and '.join(ignored)}")
    policy, counter = given[0], TiktokenCounter()
    known = prices.prices_of(args.model)
    paid, writer = known.under(policy.economy), prices.prices_of(policy.summary.model or args.model)

    def played(session: Recording, tried: Policy) -> Played:
        budget = _budget(policy, session.head_tokens, args.budget, args.model)
        return play(session, tried, budget, counter.count, paid, writer)

    learned = learn([*_sessions(args.file, args.model, counter)], policy, played)
    if args.json:
        print_json(learned_json(learned, args.file))
    else:
        sys.stdout.write(learned_toml(learned, args.file))
    return 0


def _note(known: Prices, model: str, idle: float, summary_tokens: int) -> str:
    whose = f"of {model}" if known.is_known else "taken where no price is known"
    return (
        f"Dollars for a million tokens, {whose}: {known.fresh:g} fresh, {known.cached:g} cached,"
        f" {known.written:g} written, {known.output:g} output. {idle:g} s between turns."
        " Answers are not billed. Summaries are billed twice, since no model was asked:"
        f" at {summary_tokens:,} tokens each, and as long as they may be."
    )


# --- reading ---


UNPACKED = 2**30
"""The most bytes that a packed file may unpack to, since all of them are held; a bomb has a thousandfold."""
_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),  # before UTF-16, whose mark begins alike
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    (codecs.BOM_UTF8, "UTF-8"),
    (b"", "UTF-8"),
)
"""What a file begins with by its encoding."""


def _content(file: str) -> bytes:
    """Return a file's text as UTF-8, unpacked. Raises UsageError and CommandError."""
    if not file:
        raise UsageError("the file's name is empty")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        if content.startswith(_GZIP):
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(UNPACKED + 1)
            if len(content) > UNPACKED:
                line = content.count(b"\n", 0, UNPACKED) + 1
                raise CommandError(f"{file}:{line}: there it has unpacked to {UNPACKED:,} bytes: split it")
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError(f"{file} cannot be read: {reason}") from error
    mark, encoding = next(each for each in _MARKS if content.startswith(each[0]))
    try:
        text = str(content, encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        text = content[: error.start].decode(encoding, "ignore")
        wrong = f"not {encoding} from byte {error.start + 1} of the file on"
    else:
        text, nul, rest = text.partition("\0")
        if not nul:
            return text.encode()
        wrong = "NUL, a character that no JSON has"
        if not rest.strip("\0\r\n"):
            wrong = "NULs to the end: the file was not written to its end"
        elif not mark and b"\0" in content[:4]:
            wrong = "not UTF-8, but UTF-16 or UTF-32 without the mark that says so"
    line = text.count("\n") + 1
    raise CommandError(f"{file}:{line}: {wrong}")


def _documents(content: bytes) -> list[tuple[int, bytes]]:
    """Return the documents of a file with their lines: one per line, or one in all lines together."""
    lines = content.split(b"\n")
    found = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if found:
        number, first = found[0]
        try:
            msgspec.json.decode(first, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            if "truncated" in str(error):  # it goes on, on the lines below
                found = [(number, b"\n".join(lines[number - 1 :]))]
        except RecursionError:
            pass  # its reader says so
    if len(found) == 1 and found[0][1].lstrip().startswith(b"["):
        return [(found[0][0], b'{"messages":%b}' % found[0][1])]
    return found


def _sessions(file: str, model: str, counter: TiktokenCounter) -> Iterator[Recording]:
    """Yield the sessions of a file, with a progress bar on a terminal. Raises CommandError."""
    documents, console = _documents(_content(file)), notes()
    if not documents:
        raise CommandError(f"{file} has no session")
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for number, document in progress.track(documents):
            try:
                yield asyncio.run(read_session(document, model, counter, number))
            except UnabridgedError as error:
                read = document[: error.offset] if isinstance(error, InvalidJSON) else b""
                line = number + read.count(b"\n")
                raise CommandError(f"{file}:{line}: not a session: {error.message}") from None


async def read_session(document: bytes, model: str, counter: TiktokenCounter, number: int = 1) -> Recording:
    """Read one session of a file; without an id it is named after its line. Raises UnabridgedError."""
    body = CHAT.read_body(document.rstrip(), sys.maxsize)
    reader = Reader(CHAT, counter, CacheMemory())
    history = replace(await reader.read(body, root_hash()), model=model)
    chain = await reader.count(history)
    head = await reader.head_tokens(history)
    name = body.get("id")
    head_text = b"\n".join([*history.head, *body.head_members()])
    if not all(message.role for message in chain.messages):
        raise MissingParameter("A message has no `role`.", param="messages")
    return Recording(str(number) if name is None else str(name), chain, head, head_text)


def _budget(policy: Policy, head: int, lowered: int | None, model: str) -> Budget:
    """Return the budget of a request without an output limit; without a model, an example with ratio 1."""
    rules = policy.budget
    limits = [limit for limit in (rules.limit, lowered) if limit is not None]
    example = None if limits else _EXAMPLE_WINDOW
    priced = prices.context_window(model) if model else example
    window = WindowEvidence().window(rules.window(model), None, priced, 0.0)
    ratio = Ratio.of(model).value if model else 1.0
    tokens = budget_tokens(min(limits, default=None), window.limit, rules.reserved, ceil(head * ratio))
    return Budget(tokens, ratio, head, window)
