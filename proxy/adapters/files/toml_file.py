"""Reads TOML files that people write, and reports errors with file, line and the nearest valid key.

tomllib does not tell the line of a key. But TOML is a sequence of statements that end at the end of a line,
and no prefix of a statement is a statement itself. So tomllib can find them: lines are collected until it
accepts them after the headers of the preceding tables; keys that are new then belong to these lines.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.core.policy.policy import dotted_keys
from proxy.core.text.similarity import did_you_mean
from proxy.environment import in_words
from proxy.errors import OperatorError

Table = dict[str, object]
Location = tuple[str | int, ...]
"""Keys and indices from the top of the file, as in `("tools", 0, "match")`."""
_DEEPEST = 100
"""The most keys and indices of a location; no key of ours has five."""
_OF_A_MISTAKE = ("file", "line", "key", "message")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOML_PLACE = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)$")
_REWORDED = {
    "Cannot overwrite a value": "a key stands here for the second time",
    "Invalid value": "it is no valid value (text has quotes; 0.5, not .5; true, not True)",
    "Unescaped '\\' in a string": "a text has a single backslash (write two, or single quotes around it)",
}


class FileError(OperatorError):
    """An error in a file that a person writes. `line` counts from 1; None if the error has no line.

    `key` is dotted; empty if no key is at fault. `others` are further errors in the same files.
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


@dataclass(frozen=True)
class TomlFile:
    """One TOML file as it is written."""

    path: Path
    text: str
    table: Table

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. Raises FileError if it cannot be read, or is not TOML."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise FileError(str(path), None, f"cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise FileError(str(path), line, "is not UTF-8") from error
        except ValueError as error:  # no file system takes such a name
            raise FileError(str(path), None, "cannot be read: a path has no character NUL") from error
        try:
            return cls(path, text, _parsed(text))
        except tomllib.TOMLDecodeError as error:
            place = _TOML_PLACE.search(str(error))
            line = int(place[1]) if place and place[1] else text.count("\n") + 1
            why = _TOML_PLACE.sub("", str(error))
            raise FileError(str(path), line, f"is not TOML: {_REWORDED.get(why, why)}") from error
        except (ValueError, RecursionError) as error:  # Python's own limits: digits, and depth
            is_deep = isinstance(error, RecursionError)
            reason = "it is nested too deeply" if is_deep else "a number is too long"
            raise FileError(str(path), None, f"cannot be read: {reason}") from error

    @cached_property
    def lines(self) -> Mapping[Location, int]:
        return key_lines(self.text)

    def error(self, message: str, *locations: Location) -> FileError:
        """Return an error at the first of `locations` that is in the file, or else the nearest to one."""
        exact = (self.lines[location] for location in locations if location in self.lines)
        near = (line for location in locations if (line := line_of(location, self.lines)) is not None)
        key = dotted(locations[0]) if locations else ""
        return FileError(str(self.path), next(exact, next(near, None)), message, key=key)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Table:
    """Parse TOML. Raises TOMLDecodeError, and ValueError and RecursionError for what Python cannot take.

    The table is shared, and must not be changed: policies extend one another, so that whoever reads all of
    them reads some again and again.
    """
    table = tomllib.loads(text)
    if max(map(len, _keys(table)), default=0) > _DEEPEST:
        raise RecursionError
    return table


def dotted(location: Location) -> str:
    """Return a location as a dotted TOML key, without indices of arrays."""
    return ".".join(toml_key(step) for step in location if isinstance(step, str))


def toml_key(name: str) -> str:
    """Return one part of a key in TOML syntax."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def toml_value(value: Any) -> str:
    """Return a value in TOML syntax, on one line."""
    if isinstance(value, dict):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(each)}" for key, each in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, cast("Sequence[Any]", value))) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def key_lines(text: str) -> dict[Location, int]:
    """Return the first line, counted from 1, of every key and table in a valid TOML file."""
    lines: dict[Location, int] = {}
    headers, statement, start = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        try:
            parsed = tomllib.loads(headers + statement)
        except tomllib.TOMLDecodeError:
            continue
        for location in _keys(parsed):
            lines.setdefault(location, start)
        if statement.lstrip().startswith("["):
            headers += statement
        statement, start = "", number + 1
    return lines


def line_of(location: Location, lines: Mapping[Location, int]) -> int | None:
    """Return the line of a key, or else of the innermost enclosing table that is in the file."""
    around = (location[:end] for end in range(len(location), 0, -1))
    return next((lines[found] for found in around if found in lines), None)


def _keys(value: object, at: Location = ()) -> Iterator[Location]:
    inside = enumerate(cast("list[object]", value)) if isinstance(value, list) else ()
    for key, inner in cast("Table", value).items() if isinstance(value, dict) else inside:
        yield (*at, key)
        yield from _keys(inner, (*at, key))


# --- pydantic's errors, in words for people who write TOML ---


class Complaint(NamedTuple):
    """An error as a sentence, and the locations to report it at, best first."""

    message: str
    locations: Sequence[Location]
    is_between: bool = False
    """Whether it is a contradiction between keys that are each valid."""


def complaints(
    error: ValidationError, table: Mapping[str, object], model: type[BaseModel]
) -> Iterator[Complaint]:
    """Yield the errors of `table`, validated as a `model`, one per location."""
    places: dict[Location, list[ErrorDetails]] = {}
    for finding in error.errors(include_url=False):
        places.setdefault(_place(finding, table), []).append(finding)
    for location, findings in places.items():
        kind, context, subject = findings[0]["type"], findings[0].get("ctx", {}), f"`{dotted(location)}`"
        if kind == "extra_forbidden":
            yield Complaint(_unknown_key(location, model), (location,))
        elif kind == "conflict":
            keys = [(*location, key) for key in context["keys"]]
            yield Complaint(f"{context['message']} in {subject}", keys, is_between=True)
        else:
            # For a union, pydantic reports one error per member.
            predicate, *others = dict.fromkeys(map(in_words, findings))
            for other in others:
                predicate = f"{predicate.replace(' or ', ', ')} or {other.removeprefix('must be ')}"
            allowed = [each.get("ctx", {}).get("expected", "") for each in findings]
            literals = [literal for each in allowed for literal in re.findall(r"'([^']*)'", each)]
            if isinstance(value := findings[0]["input"], str):
                predicate += did_you_mean(value, literals)
            is_element = isinstance(location[-1], int) and predicate.startswith("must")
            yield Complaint(f"{'each of ' if is_element else ''}{subject} {predicate}", (location,))


def _unknown_key(location: Location, model: type[BaseModel]) -> str:
    """Return the message for an unknown key.

    It suggests the only key of that name, else a similar one in the same table, else any of that name.
    """
    table, key = dotted(location[:-1]), str(location[-1])
    message = f"unknown key `{dotted(location)}`"
    if key == "extends":
        return f"{message}; `extends` stands before the first table"
    known = [each.rpartition(".") for each in dotted_keys(model)]
    elsewhere = [f"; did you mean `{around}{dot}{name}`?" for around, dot, name in known if name == key]
    beside = did_you_mean(key, [name for around, _, name in known if around == table])
    hints = elsewhere if len(elsewhere) == 1 else [beside, *elsewhere]
    return message + next(filter(None, hints), "")


def _place(finding: ErrorDetails, table: Mapping[str, object]) -> Location:
    """Return the location of an error: pydantic's path without the union members at its end."""
    location: Location = ()
    value: object = table
    for step in finding["loc"]:
        if isinstance(value, dict) and (step in value or finding["type"] == "missing"):
            value = cast("dict[object, object]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = cast("list[object]", value)[step]
        else:
            break
        location = (*location, step)
    return location
