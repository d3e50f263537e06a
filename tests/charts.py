"""A Helm chart, rendered without Helm: as much of its language as our templates speak, and no more."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

Scope = Mapping[str, Any]

_ACTION = re.compile(r"\{\{-? *(.*?) *\}\}")
_LINE = re.compile(r"^ *\{\{- (if|range|end)\b *(.*?) *\}\} *$")


def render(chart: Path, release: str, **values: Any) -> list[dict[str, Any]]:
    """The chart's resources, with these values over its own."""
    own = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    scope = {"Release": {"Name": release}, "Values": _over(own, values)}
    made: list[dict[str, Any]] = []
    for template in sorted((chart / "templates").glob("*.yaml")):
        text = "\n".join(_lines(iter(template.read_text(encoding="utf-8").splitlines()), scope))
        resource = yaml.safe_load(text)
        if resource is not None:
            made.append(cast("dict[str, Any]", resource))
    return made


def _over(own: Any, other: Any) -> Any:
    if not (isinstance(own, dict) and isinstance(other, dict)):
        return other
    mine, theirs = cast("dict[str, Any]", own), cast("dict[str, Any]", other)
    return mine | {name: _over(mine.get(name), value) for name, value in theirs.items()}


def _lines(template: Iterator[str], scope: Scope) -> Iterator[str]:
    """The lines up to the end of the block that has begun."""
    for line in template:
        block = _LINE.match(line)
        if block is None:
            yield _ACTION.sub(lambda action: _value(action[1], scope), line)
            continue
        kind, condition = block.groups()
        if kind == "end":
            return
        inner = list(_block(template))
        if kind == "if":
            if _holds(condition, scope):
                yield from _lines(iter(inner), scope)
            continue
        name, value, source = re.fullmatch(r"(\$\w+), (\$\w+) := (\S+)", condition, re.ASCII).groups()  # pyright: ignore[reportOptionalMemberAccess]
        for each in sorted(_look_up(source, scope).items()):
            yield from _lines(iter(inner), {**scope, **dict(zip((name, value), each, strict=True))})


def _block(template: Iterator[str]) -> Iterator[str]:
    depth = 1
    for line in template:
        block = _LINE.match(line)
        if block:
            depth += -1 if block[1] == "end" else 1
        if depth == 0:
            return
        yield line


def _holds(condition: str, scope: Scope) -> bool:
    wanted = condition.removeprefix("not ")
    return bool(_look_up(wanted, scope)) is (wanted == condition)


def _look_up(name: str, scope: Scope) -> Any:
    if name.startswith("$"):
        return scope[name]
    value: Any = scope
    for part in name.removeprefix(".").split("."):
        value = value[part]  # a name that the values do not have is a mistake of the template
    return value


def _value(action: str, scope: Scope) -> str:
    first, *filters = re.split(r" \| ", action)
    words = re.findall(r'"[^"]*"|\S+', first)
    value = _look_up(words[-1], scope)
    if words[0] == "required" and not value:
        raise ValueError(words[1])
    if words[0] == "toYaml":
        value = yaml.safe_dump(value).rstrip()
    for each in filters:
        value = _filtered(each, value, scope)
    return str(value)


def _filtered(name: str, value: Any, scope: Scope) -> Any:
    match name.split():
        case ["quote"]:
            return json.dumps(value if isinstance(value, str) else json.dumps(value))
        case ["nindent", width]:
            return "\n" + textwrap.indent(value, " " * int(width))
        case ["default", other]:
            return value or _look_up(other, scope)
        case _:
            raise ValueError(name)
