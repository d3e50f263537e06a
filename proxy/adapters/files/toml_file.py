"""A TOML file that a person writes: read, and complained about by file and line.

On which line a key stands tomllib does not tell. But TOML is a sequence of statements that end at a line's
end, and no beginning of a statement is a statement. So tomllib itself finds them: lines are gathered until it
accepts them, and what it read are the keys that stand there.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from proxy.errors import OperatorError

Table = dict[str, object]
Location = tuple[str | int, ...]
"""Keys and indices from the top of the file, as in `("tools", 0, "match")`."""
_OF_A_MISTAKE = ("file", "line", "key", "message")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class FileError(OperatorError):
    """A file that a person writes is wrong; `line` counts from 1, None where the fault has no line.

    `key` is dotted, empty where it is none's fault. `others` are the further mistakes of the same files.
    """

    def __init__(
        self, file: str, line: int | None, message: str, *, key: str = "", others: Sequence[FileError] = ()
    ) -> None:
        self.file: str = file
        self.line: int | None = line
        self.message: str = message
        self.key: str = key
        self.mistakes: tuple[FileError, ...] = (self, *others)
        place = file if line is None else f"{file}:{line}"
        super().__init__("\n".join([f"{place}: {message}", *map(str, others)]))

    @classmethod
    def together(cls, mistakes: Sequence[Self]) -> Self:
        first, *others = mistakes
        return cls(first.file, first.line, first.message, key=first.key, others=others)

    def body(self) -> dict[str, Any]:
        listed = [{name: getattr(each, name) for name in _OF_A_MISTAKE} for each in self.mistakes]
        return {**super().body(), "mistakes": listed}


class PolicyError(FileError):
    """A policy file is wrong."""


@dataclass(frozen=True)
class TomlFile:
    """One file as it is written."""

    fault: ClassVar[type[FileError]] = FileError
    """What complaints about such a file are."""

    path: Path
    text: str
    table: Table

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises the complaint about one that cannot be read, or is not TOML."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise cls.fault(str(path), None, f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise cls.fault(str(path), line, "is not UTF-8") from error
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise cls.fault(str(path), *_syntax_complaint(error, text)) from error
        except (ValueError, RecursionError) as error:  # what Python itself bounds: digits, and depth
            is_deep = isinstance(error, RecursionError)
            reason = "it is nested too deeply" if is_deep else "a number is too long"
            raise cls.fault(str(path), None, f"cannot be read: {reason}") from error

    @cached_property
    def lines(self) -> Mapping[Location, int]:
        """On which line each key of the file itself stands."""
        return key_lines(self.text)

    def error(self, message: str, *locations: Location) -> FileError:
        """A complaint at the first of `locations` that the file itself has."""
        exact = (self.lines[location] for location in locations if location in self.lines)
        near = (line for location in locations if (line := line_of(location, self.lines)) is not None)
        key = dotted(locations[0]) if locations else ""
        return self.fault(str(self.path), next(exact, next(near, None)), message, key=key)


def dotted(location: Location) -> str:
    """A key as TOML writes it, without the places in arrays."""
    return ".".join(toml_key(step) for step in location if isinstance(step, str))


def toml_key(name: str) -> str:
    """A part of a key as TOML writes it."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


# --- lines ---


def key_lines(text: str) -> dict[Location, int]:
    """The first line, counted from 1, of every key and table in a valid TOML file."""
    lines: dict[Location, int] = {}
    tables: dict[Location, int] = {}  # how many of each array of tables were met so far
    table: Location = ()
    source, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        source += f"{line}\n"
        try:
            parsed = tomllib.loads(source)
        except tomllib.TOMLDecodeError:
            continue
        if (header := source.lstrip()).startswith("["):
            keys = [key for key in max(_keys(parsed), key=len) if isinstance(key, str)]
            table = _open_table(keys, tables, repeated=header.startswith("[["))
            found: list[Location] = [table]
        else:
            found = [table + key for key in _keys(parsed)]
        for location in found:
            for length in range(1, len(location) + 1):
                lines.setdefault(location[:length], start)
        source, start = "", number + 1
    return lines


def line_of(location: Location, lines: Mapping[Location, int]) -> int | None:
    """The line of a key, else of the innermost table around it that the file has."""
    return next(
        (lines[found] for end in range(len(location), 0, -1) if (found := location[:end]) in lines), None
    )


def _open_table(keys: Sequence[str], tables: dict[Location, int], *, repeated: bool) -> Location:
    """Where the header `[keys]`, or the `repeated` `[[keys]]`, leads after the arrays of tables before it."""
    location: Location = ()
    for position, key in enumerate(keys, 1):
        location += (key,)
        if repeated and position == len(keys):
            tables[location] = tables.get(location, 0) + 1
        if location in tables:
            location += (tables[location] - 1,)
    return location


def _keys(value: object) -> Iterator[Location]:
    yield ()
    inside = enumerate(cast("list[object]", value)) if isinstance(value, list) else ()
    for key, inner in cast("Table", value).items() if isinstance(value, dict) else inside:
        yield from ((key, *rest) for rest in _keys(inner))


# --- what is not TOML ---

_TOML_PLACE = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)$")
_DECLARED_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice")
_REWORDED = {
    "Cannot overwrite a value": "{key} stands here for the second time",
    "Invalid value": "{key} has no valid value (text has quotes; 0.5, not .5; true, not True)",
    "Unescaped '\\' in a string": "a text has a single backslash (write two, or single quotes around it)",
}
_KEY_OF_LINE = re.compile(r"\s*([^\s=\[\]{}#,][^=\[\]{}#,]*?)\s*=")


def _syntax_complaint(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line, counted from 1, at which `text` is not TOML, and why."""
    place = _TOML_PLACE.search(str(error))
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    complaint = _TOML_PLACE.sub("", str(error))
    found = _KEY_OF_LINE.match(text.split("\n")[line - 1])
    key = f"`{found[1]}`" if found else "a key"
    if place and not place[1]:
        return line, f"is not TOML: the file ends too early ({complaint[:1].lower()}{complaint[1:]})"
    if twice := _DECLARED_TWICE.fullmatch(complaint):
        table = twice[1].replace("'", "").replace(", ", ".")
        return line, f"is not TOML: the table `{table}` stands here for the second time"
    reworded = _REWORDED.get(complaint)
    return line, f"is not TOML: {reworded.format(key=key) if reworded else complaint}"
