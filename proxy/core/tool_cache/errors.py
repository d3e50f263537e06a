"""Whether a tool result says that the call failed.

Errors are never cached. No protocol marks them, so this looks for what tools really write. It says yes too
often rather than too seldom: a result that is wrongly taken for an error costs one call, an error that is
taken for a result would be given as the answer for exchanges to come.
"""

import re
from collections.abc import Mapping
from typing import cast

from proxy.core.formats.json import loads
from proxy.core.text.lexicon.words import FAILURES, FOREIGN_FAILURES, UNSPACED_FAILURES, any_of

_SAYS = re.compile(any_of(FAILURES), re.IGNORECASE)
_BEGINS = re.compile(
    r"[\W_]*(?:error\b|exception\b|(?-i:\w+(?:Error|Exception)\b)|traceback|fatal\b|panic\b|failed"
    r"|failure\b|abort|unable to|no such"
    r"|could ?n[o']t|can ?not|can't|invalid\b|illegal\b|not (?:found|allowed|permitted|authori[sz]ed)"
    r"|(?:permission|access) denied|denied\b|unauthori[sz]ed|forbidden|refused|time(?:d )?out|rate limit"
    r"|too many requests|(?:internal )?server error|bad (?:gateway|request)|(?:temporarily )?unavailable"
    rf"|{FOREIGN_FAILURES}|no se pudo|impossible de|{UNSPACED_FAILURES}"
    r"|(?:HTTP(?:/[\d.]+)?|status(?: code)?)[ :=]*[45]\d\d\b"
    r"|[45]\d\d (?:not|bad|unauth|forbidden|internal|service|too|request|gateway|gone|conflict|method))",
    re.IGNORECASE,
)
_HOLDS = re.compile(
    r"(?-i:\w(?:Error|Exception)\b)|timed? ?out\b|(?:permission|access) denied|not found\b|no such file"
    r"|connection (?:refused|reset|closed)|rate limit|too many requests|cannot access|unavailable\b"
    r"|HTTP(?:/[\d.]+)?[ :=]*[45]\d\d\b|\bstatus(?: code)?[ :=]*[45]\d\d\b",
    re.IGNORECASE,
)
_LINE = 200
"""Characters of a text's first and last lines that are looked at."""
_TRACE = "Traceback (most recent call last)"
_ELEMENTS = 20
_BAD = 400
_FAULTS = ("error", "errors", "exception", "traceback", "error_message", "errorMessage", "error_code")
"""Members that are there, and not empty, where something went wrong."""
_FLAGS = ("is_error", "isError", "failed", "timed_out")
_SUCCESSES = ("success", "ok", "succeeded", "is_success")
_CODES = ("status", "status_code", "statusCode", "http_status", "httpStatus")
_EXITS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_STATES = ("status", "type", "state", "result")
_BAD_STATES = frozenset(
    {"error", "failed", "failure", "fail", "timeout", "denied", "forbidden", "not_found", "exception"}
)


def speaks_of_error(text: str) -> bool:
    """Whether the word falls, in any of six languages."""
    return _SAYS.search(text) is not None


def is_error(text: str) -> bool:
    """Whether a result is, or may be, an error."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "[", '"'):
        return _is_bad_text(text)
    try:
        value: object = loads(text)
    except ValueError:
        return _is_bad_text(text)
    if isinstance(value, str):
        return _is_bad_text(value)
    listed = cast("list[object]", value)[:_ELEMENTS] if isinstance(value, list) else [value]
    return any(
        _is_bad_object(cast("Mapping[str, object]", each)) for each in listed if isinstance(each, dict)
    )


def _is_bad_object(members: Mapping[str, object]) -> bool:
    return (
        any(members.get(name) for name in _FAULTS)
        or any(members.get(name) is True for name in _FLAGS)
        or any(members.get(name) is False for name in _SUCCESSES)
        or any(_number(members.get(name)) >= _BAD for name in _CODES)
        or any(_number(members.get(name)) != 0 for name in _EXITS)
        or any(str(members.get(name)).lower() in _BAD_STATES for name in _STATES)
        or any(isinstance(member, str) and _BEGINS.match(member[:_LINE]) for member in members.values())
    )


def _number(value: object) -> float:
    """A number, written as one or as text; 0 for anything else."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    return value if isinstance(value, (int, float)) else 0


def _is_bad_text(text: str) -> bool:
    lines = text.strip()
    first, last = lines[:_LINE].partition("\n")[0], lines[-_LINE:].rpartition("\n")[2]
    return (
        _BEGINS.match(first) is not None
        or any(speaks_of_error(line) or _HOLDS.search(line) for line in {first, last})
        or _TRACE in text
    )
