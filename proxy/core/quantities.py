"""The kinds of value that a policy file holds: durations, sizes, shares, counts, patterns.

A TOML value is taken for what it is: `true` is no number and `"8000"` no count. Only durations and sizes may
be written as text with a unit. Complaints are whole predicates, to be read after the name of the key.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_SHOWN = 60
"""Characters of a pattern that a complaint repeats."""


def seconds(value: object) -> object:
    """`"30d"` is 2,592,000 seconds; a number stays as it is."""
    if isinstance(value, (int, float)):
        return value
    if (found := _DURATION.fullmatch(value) if isinstance(value, str) else None) is None:
        raise ValueError('must be a number of seconds, or text such as "2.5s" or "30d" (ms, s, m, h, d, w)')
    return float(found[1]) * _SECONDS[found[2]]


def size(value: object) -> object:
    """`"64MiB"` is 67,108,864 bytes; a number stays as it is."""
    if isinstance(value, (int, float)):
        return value
    if (found := _SIZE.fullmatch(value) if isinstance(value, str) else None) is None:
        raise ValueError('must be a number of bytes, or text such as "64MiB" (B, kB, MB, GB, KiB, MiB, GiB)')
    return int(float(found[1]) * _BYTES[found[2]])


def time_of_day(value: object) -> object:
    """`"03:00"`, hours and minutes."""
    if not (isinstance(value, str) and _TIME.fullmatch(value)):
        raise ValueError('must be a time of day as text, such as "03:00"')
    return value


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"holds `{pattern[:_SHOWN]}`, which is no regular expression: {error}") from None
    return pattern


_DurationText = Annotated[str, Field(pattern=f"^{_DURATION.pattern}$")]
_SizeText = Annotated[str, Field(pattern=f"^{_SIZE.pattern}$")]

Auto = Literal["auto"]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Count = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, gt=0)]
Seconds = Annotated[
    float,
    Field(strict=True, ge=0, allow_inf_nan=False),
    BeforeValidator(seconds, json_schema_input_type=Annotated[float, Field(ge=0)] | _DurationText),
]
PositiveSeconds = Annotated[
    float,
    Field(strict=True, gt=0, allow_inf_nan=False),
    BeforeValidator(seconds, json_schema_input_type=Annotated[float, Field(gt=0)] | _DurationText),
]
Bytes = Annotated[
    int,
    Field(strict=True, ge=0),
    BeforeValidator(size, json_schema_input_type=Annotated[int, Field(ge=0)] | _SizeText),
]
PositiveBytes = Annotated[
    int,
    Field(strict=True, gt=0),
    BeforeValidator(size, json_schema_input_type=Annotated[int, Field(gt=0)] | _SizeText),
]
TimeOfDay = Annotated[str, Field(pattern=f"^{_TIME.pattern}$"), BeforeValidator(time_of_day)]
Regex = Annotated[str, AfterValidator(_regex)]
Glob = Annotated[str, Field(min_length=1)]
