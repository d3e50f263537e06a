"""The kinds of value that a policy file holds: durations, sizes, shares, counts, patterns.

A TOML value is taken for what it is: `true` is no number and `"8000"` no count. Only durations and sizes may
be written as text with a unit. Complaints are whole predicates, to be read after the name of the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

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


# --- what third parties add under a name, beside what is built in ---
# Whoever starts a process looks for them once (`adapters/plugins.py`); here they are only kept, so that a
# policy's names can be checked without knowing what stands behind them.


T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by name."""

    def __init__(self, *built_in: str) -> None:
        self._built_in = built_in
        self._added: dict[str, T] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name: the built-in ones, then what was added, in that order."""
        return (*self._built_in, *self._added)

    def add(self, name: str, thing: T) -> None:
        """Make a thing known. Raises ValueError where the name is taken."""
        if name in self.names:
            raise ValueError(f"the name `{name}` is taken")
        self._added[name] = thing

    def __getitem__(self, name: str) -> T:
        """What was added under a name. Raises KeyError for any other, built-in ones too."""
        return self._added[name]


@dataclass(frozen=True)
class NameIn:
    """Annotates a text that is one of a registry's names, in whatever it holds when it is asked."""

    registry: Registry[Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "enum": list(self.registry.names)}

    def _checked(self, name: str) -> str:
        if name in self.registry.names:
            return name
        *others, last = (f"'{each}'" for each in self.registry.names)
        expected = f"{', '.join(others)} or {last}" if others else last
        raise PydanticKnownError("literal_error", {"expected": expected})


STRATEGIES: Registry[Any] = Registry("importance", "sliding_window", "session", "topic", "exchanges", "off")
"""What a policy's `strategy.name` may say; each is a :class:`proxy.core.planning.strategy.Strategy`."""

SEARCHES: Registry[Any] = Registry("words")
"""What a policy's `recall.search` may say; each is a :class:`proxy.ports.Search`, but for `aclose`."""

COMPACTORS: Registry[Any] = Registry("working_flow")
"""What `[[compactors]]` may name; each is a `Compactor` (`engine/summaries/compactors.py`)."""
