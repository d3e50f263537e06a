"""What is wrong with a policy, in plain words: pydantic's findings, for people who write TOML."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.adapters.files.toml_lines import Location
from proxy.core.policy import dotted_keys

_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must look like {pattern}",
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


def complaint(error: ValidationError, table: Mapping[str, object]) -> tuple[str, Sequence[Location]]:
    """The first finding about `table` in a sentence, and where to look for it, best place first."""
    findings = error.errors(include_url=False, include_input=False)
    location = _location(findings[0], table)
    if findings[0]["type"] == "extra_forbidden":
        return _unknown_key(location), (location,)
    if findings[0]["type"] == "conflict":
        context = findings[0].get("ctx", {})
        section = f" in `{_dotted(location)}`"
        return f"{context['message']}{section}", [(*location, key) for key in context["keys"]]
    same_place = (finding for finding in findings if _location(finding, table) == location)
    words = " or ".join(dict.fromkeys(_words(finding) for finding in same_place))
    return f"`{_dotted(location)}` {words.replace(' or must be ', ' or ')}", (location,)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The end of a complaint: `; did you mean ...?`, or nothing."""
    found = get_close_matches(name, [each for each in candidates if each != name], n=1, cutoff=0.65)
    return f"; did you mean `{found[0]}`?" if found else ""


def _unknown_key(location: Location) -> str:
    """Looks for the key that was meant: the only one of its name, one beside it, else any of its name."""
    dotted = _dotted(location)
    table, _, key = dotted.rpartition(".")
    known = [each.rpartition(".") for each in dotted_keys()]
    elsewhere = [f"; did you mean `{around}.{name}`?" for around, _, name in known if name == key and around]
    beside = nearest(key, [name for around, _, name in known if around == table])
    hints = elsewhere if len(elsewhere) == 1 else [beside, *elsewhere]
    return f"unknown key `{dotted}`{next(filter(None, hints), '')}"


def _words(finding: ErrorDetails) -> str:
    words = _WORDS.get(finding["type"])
    return words.format(**finding.get("ctx", {})).replace("'", '"') if words else finding["msg"]


def _location(finding: ErrorDetails, table: Mapping[str, object]) -> Location:
    """Where in the file a finding is: pydantic's path without the branches of a union at its end."""
    location: Location = ()
    value: object = table
    for step in finding["loc"]:
        if isinstance(value, dict):
            value = cast("dict[str | int, object]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = cast("list[object]", value)[step]
        else:
            break
        location = (*location, step)
    return location


def _dotted(location: Location) -> str:
    return ".".join(step for step in location if isinstance(step, str))
