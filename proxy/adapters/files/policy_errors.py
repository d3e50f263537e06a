"""What is wrong with a file, in plain words: what pydantic finds, for people who write TOML."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.adapters.files.toml_file import Location, dotted
from proxy.core.policy.policy import dotted_keys, section_of
from proxy.core.text import similarity
from proxy.environment import WORDS

_WORDS = {
    **WORDS,
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "literal_error": "must be {expected}",
    "tuple_type": "must be an array",
    "model_type": "must be a table",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "missing": "is required",
    "value_error": "{error}",
}
_NUMBER_TEXT = re.compile(r"\s*(?P<number>\d{1,9}(?P<part>\.\d{1,9})?)\s*(?P<percent>%)?\s*", re.ASCII)


class Complaint(NamedTuple):
    """A mistake in a sentence, and where to look for it, best place first."""

    message: str
    locations: Sequence[Location]
    is_between: bool = False
    """Whether keys contradict each other, each of which may be right."""


def complaints(
    error: ValidationError, table: Mapping[str, object], model: type[BaseModel]
) -> Iterator[Complaint]:
    """What is wrong with `table`, read as a `model`, each place once."""
    places: dict[Location, list[ErrorDetails]] = {}
    values: dict[Location, object] = {}
    for finding in error.errors(include_url=False, include_input=False):
        location, value = _place(finding, table)
        places.setdefault(location, []).append(finding)
        values[location] = value
    for location, findings in places.items():
        kind, context = findings[0]["type"], findings[0].get("ctx", {})
        value, subject = values[location], f"`{dotted(location)}`"
        if kind == "extra_forbidden":
            yield Complaint(_unknown_key(location, model), (location,))
        elif kind == "conflict":
            keys = [(*location, key) for key in context["keys"]]
            yield Complaint(f"{context['message']} in {subject}", keys, is_between=True)
        elif brackets := _brackets(kind, location, value, model):
            yield Complaint(f"{subject} {brackets}", (location,))
        else:
            predicate = _predicate(findings, value)
            is_element = isinstance(location[-1], int) and predicate.startswith("must")
            yield Complaint(f"{'each of ' if is_element else ''}{subject} {predicate}", (location,))


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The end of a complaint: `; did you mean ...?`, or nothing."""
    found = similarity.nearest(name, candidates)
    return f"; did you mean `{found}`?" if found else ""


def _unknown_key(location: Location, model: type[BaseModel]) -> str:
    """Looks for the key that was meant: the only one of its name, one beside it, else any of its name."""
    table, key = dotted(location[:-1]), str(location[-1])
    message = f"unknown key `{dotted(location)}`"
    if key == "extends":
        return f"{message}; `extends` stands before the first table"
    known = [each.rpartition(".") for each in dotted_keys(model)]
    elsewhere = [f"; did you mean `{around}{dot}{name}`?" for around, dot, name in known if name == key]
    beside = nearest(key, [name for around, _, name in known if around == table])
    hints = elsewhere if len(elsewhere) == 1 else [beside, *elsewhere]
    return message + next(filter(None, hints), "")


def _brackets(kind: str, location: Location, value: object, model: type[BaseModel]) -> str:
    """What to say where `[table]` and `[[table]]` were mistaken for each other."""
    top = location[0]
    if kind == "model_type" and len(location) == 1 and isinstance(value, list):
        return f"must be one table, `[{top}]`, not an array"
    field = model.model_fields.get(str(top))
    is_array = field is not None and isinstance(field.default, tuple) and section_of(field.annotation)
    if kind in ("model_type", "tuple_type") and len(location) <= 2 and is_array:
        return f"must be tables in an array: `[[{top}]]`"
    return ""


def _predicate(findings: Sequence[ErrorDetails], value: object) -> str:
    """What a value must be; a value that may be several things has a finding for each."""
    first, *others = dict.fromkeys(_words(finding) for finding in findings)
    for other in others:
        first = f"{first.replace(' or ', ', ')} or {other.removeprefix('must be ')}"
    literals = [
        literal
        for finding in findings
        if finding["type"] == "literal_error"
        for literal in re.findall(r"'([^']*)'", finding.get("ctx", {})["expected"])
    ]
    return first + (_meant_number(first, value) or nearest(value, literals) if isinstance(value, str) else "")


def _meant_number(wanted: str, text: str) -> str:
    """The end of a complaint about a number that was written as text: what to write, or nothing."""
    found = _NUMBER_TEXT.fullmatch(text)
    is_whole = wanted.startswith("must be a whole number")
    if not found or not (is_whole or wanted.startswith("must be a number")):
        return ""
    if found["percent"] and (is_whole or " of " in wanted):
        return ""
    number = float(found["number"]) / (100 if found["percent"] else 1)
    return "" if is_whole and found["part"] else f"; write {number:.10g}"


def _words(finding: ErrorDetails) -> str:
    context = finding.get("ctx", {})
    if finding["type"] == "less_than_equal" and context["le"] == 1:
        return "must be at most 1 (0.8 is 80 %)"
    words = _WORDS.get(finding["type"])
    message = words.format(**context).replace("'", '"') if words else finding["msg"]
    return " ".join(message.split())  # a pattern may have lines; a complaint is one


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
