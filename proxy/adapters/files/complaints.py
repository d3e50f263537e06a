"""What is wrong with a policy, in plain words: what pydantic and tomllib find, for people who write TOML."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.adapters.files.toml_lines import Location
from proxy.core.policy import Policy, dotted_keys

_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "tuple_type": "must be an array",
    "model_type": "must be a table",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "missing": "is required",
    "value_error": "{error}",
}
_ARRAYS_OF_TABLES = {name for name, field in Policy.model_fields.items() if isinstance(field.default, tuple)}
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def complaint(error: ValidationError, table: Mapping[str, object]) -> tuple[str, Sequence[Location]]:
    """The first finding about `table` in a sentence, and where to look for it, best place first."""
    findings = error.errors(include_url=False, include_input=False)
    kind, context = findings[0]["type"], findings[0].get("ctx", {})
    location, value = _place(findings[0], table)
    if kind == "extra_forbidden":
        return _unknown_key(location), (location,)
    if kind == "conflict":
        return f"{context['message']} in `{_dotted(location)}`", [(*location, key) for key in context["keys"]]
    same_place = [finding for finding in findings if _place(finding, table)[0] == location]
    subject = f"`{_dotted(location)}`"
    if brackets := _brackets(kind, location, value):
        return f"{subject} {brackets}", (location,)
    predicate = _predicate(same_place, value)
    is_element = isinstance(location[-1], int) and predicate.startswith("must")
    return f"{'each of ' if is_element else ''}{subject} {predicate}", (location,)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The end of a complaint: `; did you mean ...?`, or nothing."""
    found = get_close_matches(name, [each for each in candidates if each != name], n=1, cutoff=0.65)
    return f"; did you mean `{found[0]}`?" if found else ""


def _unknown_key(location: Location) -> str:
    """Looks for the key that was meant: the only one of its name, one beside it, else any of its name."""
    table, key = _dotted(location[:-1]), str(location[-1])
    said = f"unknown key `{_dotted(location)}`"
    if key == "extends":
        return f"{said}; `extends` stands before the first table"
    known = [each.rpartition(".") for each in dotted_keys()]
    elsewhere = [f"; did you mean `{around}{dot}{name}`?" for around, dot, name in known if name == key]
    beside = nearest(key, [name for around, _, name in known if around == table])
    hints = elsewhere if len(elsewhere) == 1 else [beside, *elsewhere]
    return said + next(filter(None, hints), "")


def _brackets(kind: str, location: Location, value: object) -> str:
    """What to say where `[table]` and `[[table]]` were mistaken for each other."""
    top = location[0]
    if kind == "model_type" and len(location) == 1 and isinstance(value, list):
        return f"must be one table, `[{top}]`, not an array"
    if kind in ("model_type", "tuple_type") and len(location) <= 2 and top in _ARRAYS_OF_TABLES:
        return f"must be tables in an array: `[[{top}]]`"
    return ""


def _predicate(findings: Sequence[ErrorDetails], value: object) -> str:
    """What a value must be; a value that may be several things has a finding for each."""
    first, *others = dict.fromkeys(_words(finding) for finding in findings)
    for other in others:
        first = f"{first.replace(' or ', ', ')} or {other.removeprefix('must be ')}"
    literals = [each for finding in findings for each in _literals(finding)]
    return first + (nearest(value, literals) if isinstance(value, str) else "")


def _words(finding: ErrorDetails) -> str:
    context = finding.get("ctx", {})
    if finding["type"] == "less_than_equal" and context["le"] == 1:
        return "must be at most 1 (0.8 is 80 %)"
    words = _WORDS.get(finding["type"])
    said = words.format(**context).replace("'", '"') if words else finding["msg"]
    return " ".join(said.split())  # a pattern may have lines; a complaint is one


def _literals(finding: ErrorDetails) -> list[str]:
    is_literal = finding["type"] == "literal_error"
    return re.findall(r"'([^']*)'", finding.get("ctx", {})["expected"]) if is_literal else []


def _place(finding: ErrorDetails, table: Mapping[str, object]) -> tuple[Location, object]:
    """Where in the file a finding is, and what stands there.

    The place is pydantic's path without the branches of a union at its end.
    """
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
    return location, cast("object", value)


def _dotted(location: Location) -> str:
    """A key as TOML writes it, without the places in arrays."""
    steps = (step for step in location if isinstance(step, str))
    return ".".join(
        step if _BARE_KEY.fullmatch(step) else json.dumps(step, ensure_ascii=False) for step in steps
    )


# --- TOML itself ---

_TOML_PLACE = re.compile(r" \((?:at line (\d+), column \d+|at end of document)\)$")
_DECLARED_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice")
_REWORDED = {
    "Cannot overwrite a value": "{key} stands here for the second time",
    "Invalid value": "{key} has no valid value (text has quotes; 0.5, not .5; true, not True)",
    "Unescaped '\\' in a string": "a text has a single backslash (write two, or single quotes around it)",
}
_KEY_OF_LINE = re.compile(r"\s*([^\s=\[\]{}#,][^=\[\]{}#,]*?)\s*=")


def syntax_complaint(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line, counted from 1, at which `text` is not TOML, and why."""
    place = _TOML_PLACE.search(str(error))
    line = int(place[1]) if place and place[1] else text.count("\n") + 1
    said = _TOML_PLACE.sub("", str(error))
    found = _KEY_OF_LINE.match(text.split("\n")[line - 1])
    key = f"`{found[1]}`" if found else "a key"
    if place and not place[1]:
        return line, f"is not TOML: the file ends too early ({said[:1].lower()}{said[1:]})"
    if twice := _DECLARED_TWICE.fullmatch(said):
        table = twice[1].replace("'", "").replace(", ", ".")
        return line, f"is not TOML: the table `{table}` stands here for the second time"
    reworded = _REWORDED.get(said)
    return line, f"is not TOML: {reworded.format(key=key) if reworded else said}"
