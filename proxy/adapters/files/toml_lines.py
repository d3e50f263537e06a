"""On which line of a TOML file a key stands: what tomllib does not tell.

TOML is a sequence of statements that end at a line's end, and no beginning of a statement is a statement. So
tomllib itself finds them: lines are gathered until it accepts them, and what it read are the keys that stand
there.
"""

import tomllib
from collections.abc import Iterator, Sequence
from typing import TypeGuard

Location = tuple[str | int, ...]
"""Keys and indices from the top of the file, as in `("tools", 0, "match")`."""


def key_lines(text: str) -> dict[Location, int]:
    """The first line, counted from 1, of every key and table in a valid TOML file."""
    lines: dict[Location, int] = {}
    tables: dict[Location, int] = {}  # how many of each array of tables were met so far
    table: Location = ()
    for line, source, parsed in _statements(text):
        if (header := source.lstrip()).startswith("["):
            keys = [key for key in max(_keys(parsed), key=len) if isinstance(key, str)]
            table = _open_table(keys, tables, repeated=header.startswith("[["))
            found: list[Location] = [table]
        else:
            found = [table + key for key in _keys(parsed)]
        for location in found:
            for length in range(1, len(location) + 1):
                lines.setdefault(location[:length], line)
    return lines


def line_of(location: Location, lines: dict[Location, int]) -> int | None:
    """The line of a key, else of the innermost table around it that the file has."""
    return next(
        (lines[found] for end in range(len(location), 0, -1) if (found := location[:end]) in lines), None
    )


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    source, start = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        source += f"{line}\n"
        try:
            parsed = tomllib.loads(source)
        except tomllib.TOMLDecodeError:
            continue
        yield start, source, parsed
        source, start = "", number + 1


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
    if _is_table(value):
        for key, inner in value.items():
            yield from ((key, *rest) for rest in _keys(inner))
    elif _is_array(value):
        for index, inner in enumerate(value):
            yield from ((index, *rest) for rest in _keys(inner))


def _is_table(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
