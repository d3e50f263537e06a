"""The kinds of value that a policy file holds: durations, sizes, shares, counts, patterns.

Values are not converted: `true` is not a number, and `"8000"` is not a count. Only durations and sizes may be
written as text with a unit. Error messages are written to follow the name of the key ("must be ...").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_SHOWN = 60
"""Characters of a pattern that an error message repeats."""


def seconds(value: object) -> object:
    """Convert a duration to seconds: `"30d"` to 2,592,000; a number is returned unchanged."""
    if isinstance(value, (int, float)):
        return value
    if (found := _DURATION.fullmatch(value) if isinstance(value, str) else None) is None:
        raise ValueError('must be a number of seconds, or text such as "2.5s" or "30d" (ms, s, m, h, d, w)')
    return float(found[1]) * _SECONDS[found[2]]


def size(value: object) -> object:
    """Convert a size to bytes: `"64MiB"` to 67,108,864; a number is returned unchanged."""
    if isinstance(value, (int, float)):
        return value
    if (found := _SIZE.fullmatch(value) if isinstance(value, str) else None) is None:
        raise ValueError('must be a number of bytes, or text such as "64MiB" (B, kB, MB, GB, KiB, MiB, GiB)')
    return int(min(float(found[1]), _MOST) * _BYTES[found[2]])


def _time_of_day(value: object) -> object:
    """Check a time of day such as `"03:00"`."""
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
_MOST = 2**53
"""Largest whole number, which every JSON parser reads exactly."""
_LONGEST = 1_000 * 365 * 86_400
"""Seconds: a thousand years, which the store can still add to a time."""

Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
Positive = Annotated[int, Field(strict=True, gt=0, le=_MOST)]
Seconds = Annotated[
    float,
    Field(strict=True, ge=0, le=_LONGEST, allow_inf_nan=False),
    BeforeValidator(seconds, json_schema_input_type=Annotated[float, Field(ge=0)] | _DurationText),
]
PositiveSeconds = Annotated[
    float,
    Field(strict=True, gt=0, le=_LONGEST, allow_inf_nan=False),
    BeforeValidator(seconds, json_schema_input_type=Annotated[float, Field(gt=0)] | _DurationText),
]
Bytes = Annotated[
    int,
    Field(strict=True, ge=0, le=_MOST),
    BeforeValidator(size, json_schema_input_type=Annotated[int, Field(ge=0)] | _SizeText),
]
PositiveBytes = Annotated[
    int,
    Field(strict=True, gt=0, le=_MOST),
    BeforeValidator(size, json_schema_input_type=Annotated[int, Field(gt=0)] | _SizeText),
]
TimeOfDay = Annotated[str, Field(pattern=f"^{_TIME.pattern}$"), BeforeValidator(_time_of_day)]
Regex = Annotated[str, AfterValidator(_regex)]
Glob = Annotated[str, Field(min_length=1)]


# --- names of built-in things, and of those that plug-ins add ---
# Plug-ins are loaded once when a process starts (`adapters/plugins.py`). They are only registered here, so
# that the names in a policy can be checked without importing what they stand for.


class Registry:
    """The built-in names of one kind of thing, and the things that plug-ins have added, by name."""

    def __init__(self, *built_in: str) -> None:
        self.built_in = built_in
        self._added: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All names: the built-in ones, then the added ones in the order in which they were added."""
        return (*self.built_in, *self._added)

    def add(self, name: str, thing: Any) -> None:
        """Add a thing under a name. Raises ValueError if the name is taken."""
        if name in self.names:
            raise ValueError(f"the name `{name}` is taken")
        self._added[name] = thing

    def __getitem__(self, name: str) -> Any:
        """Return what was added under a name. Raises KeyError for other names, built-in ones included."""
        return self._added[name]


@dataclass(frozen=True)
class NameIn:
    """Annotates a text that must be one of the names that a registry has when the text is checked."""

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def checked(name: str) -> str:
            if name in self.registry.names:
                return name
            *others, last = (f"'{each}'" for each in self.registry.names)
            expected = f"{', '.join(others)} or {last}" if others else last
            raise PydanticKnownError("literal_error", {"expected": expected})

        return core_schema.no_info_after_validator_function(checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": list(self.registry.names)}


STRATEGIES = Registry("importance", "sliding_window", "session", "topic", "exchanges", "off")
"""The values of `strategy.name` in a policy; each is a :class:`proxy.core.planning.strategy.Strategy`."""

SEARCHES = Registry("words")
"""The values of `recall.search` in a policy; each is a :class:`proxy.ports.Search` without `aclose`."""

COMPACTORS = Registry("working_flow")
"""The names in `[[compactors]]` of a policy; each is a `Compactor` (`engine/summaries/compactors.py`)."""
