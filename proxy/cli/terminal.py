"""Terminal output shared by the commands: tables for people, JSON for programs, a bar for usage."""

import argparse
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from proxy.errors import OperatorError

STAGE_STYLES = {
    "calm": "green",
    "warn": "yellow",
    "trim": "dark_orange",
    "compact": "red",
    "emergency": "bold red",
}
_MOST = 10**9
"""The greatest number of an option; no clock waits for more seconds than it can count."""
_UNWRAPPED = 10_000
_WIDE = 200  # columns where nobody watches: a pipe should not wrap what `grep` looks for


class CommandError(OperatorError):
    """A command cannot do what was asked; the message says why, in one line."""


class UsageError(CommandError):
    """An option has an impossible value; the message names it."""

    exit_code = 2


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, which every command has."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def positive(word: str, most: int = _MOST) -> int:
    """Parse a whole number above 0, and at most ``most``, as the type of an option."""
    number = int(word[:20]) if word.isascii() and word.isdigit() else 0  # Python reads no thousands of digits
    if not number:
        raise argparse.ArgumentTypeError("must be a whole number above 0")
    if number > most:
        raise argparse.ArgumentTypeError(f"must be at most {most:,}")
    return number


def path(word: str) -> Path:
    """Parse the path of a file or a directory, as the type of an option.

    An empty variable must not mean the directory in which one stands, as an empty path does.
    """
    if not word:
        raise argparse.ArgumentTypeError("must not be empty")
    return Path(word)


def seconds(word: str) -> float:
    """Parse a number of seconds, as the type of an option."""
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds")
    if found > _MOST:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST:,}")
    return found


def confirm(what: str, refused: str) -> None:
    """Ask for a confirmation at the terminal. Raises CommandError (``refused``) unless it is given."""
    sys.stderr.write(f"{what} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError(refused)


def print_json(value: object) -> None:
    """Print a JSON document on stdout; what its encoding lacks, lone surrogates above all, is escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(value, indent=2)
    sys.stdout.write(text + "\n")


def show(*things: RenderableType, wraps: bool = True) -> None:
    """Print for people, on stdout; without wrapping, long lines are left to the terminal.

    So is a table that is too wide, because a number that has lost digits is another number.
    """
    console = screen(None if wraps else _UNWRAPPED)
    for thing in things:
        console.print(thing, crop=False)


def tell(
    args: argparse.Namespace, answer: object, shown: Iterable[RenderableType], *, wraps: bool = True
) -> None:
    """Print an answer: with `--json` as it is, else what is ``shown`` of it to people."""
    if args.json:
        print_json(answer)
    else:
        show(*shown, wraps=wraps)


def screen(width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console on stdout; its width is the terminal's, if there is one, unless another is given."""
    stream = sys.stderr if stderr else sys.stdout
    width = width or (None if stream.isatty() else _WIDE)
    return Console(stderr=stderr, width=width, highlight=False, emoji=False, markup=False)


def notes() -> Console:
    """Return a console on stderr, for everything but the requested output."""
    return screen(stderr=True)


def table(columns: Iterable[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """Return a table with few lines; columns whose names begin with `>` are right-aligned numbers.

    Texts are folded where there is little room, numbers and names of columns never.
    """
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    cells = [[cell if isinstance(cell, Text) else Text(words(cell)) for cell in row] for row in rows]
    for place, column in enumerate(columns):
        name, is_number = column.lstrip(">"), column.startswith(">")
        least = max(map(len, [name, *(row[place].plain for row in cells if is_number)]))
        made.add_column(name, justify="right" if is_number else "left", overflow="fold", min_width=least)
    for row in cells:
        made.add_row(*row)
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Return a table of names and values, without a header."""
    made = table(("name", "value"), pairs)
    made.show_header = False
    return made


def words(value: object) -> str:
    """Return the text of a cell: numbers in groups of three digits, nothing for None.

    Texts come from clients and files, so their control characters do not reach the terminal.
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return "\n".join(map(printable, str(value).split("\n")))


def printable(line: str) -> str:
    """Return a line without control characters; every space of another script is a plain one."""
    line = "".join(" " if unicodedata.category(each) == "Zs" else each for each in line)
    return "".join(each if each.isprintable() or each == "\t" else "·" for each in line)


def minute(at: str) -> str:
    """Return a time of the API to the minute."""
    return at[: len("2026-11-22T03:47")].replace("T", " ")


def stage_text(stage: str) -> Text:
    """Return a stage's name in its colour."""
    return Text(stage, style=STAGE_STYLES.get(stage, ""))


def bar(usage: float, stages: Mapping[str, float], width: int = 40) -> Text:
    """Return the usage of a budget as a bar whose end is 100 %, with a mark where each stage begins.

    `stages` are those of a policy. What is over 100 % is a `▶` at the end.
    """
    marks = {stage: stages[stage] for stage in STAGE_STYLES if stage in stages}
    filled = round(min(usage, 1.0) * width)
    cells = ["█" if place < filled else "░" for place in range(width)]
    for share in marks.values():
        place = min(round(share * width), width) - 1
        if 0 <= place < width:
            cells[place] = "┃" if place < filled else "│"
    reached = [stage for stage, share in marks.items() if usage >= share]
    style = STAGE_STYLES.get(reached[-1] if reached else "calm", "")
    return Text("".join(cells) + ("▶" if usage > 1 else " "), style=style)
