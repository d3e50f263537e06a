"""What third parties add under a name, beside what is built in.

Whoever starts a process looks for them once (:mod:`proxy.adapters.plugins`); here they are only kept, so that
a policy's names can be checked without knowing what stands behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

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
"""What a policy's `strategy.name` may say; each is a :class:`proxy.core.strategies.Strategy`."""

COMPACTORS: Registry[Any] = Registry("working_flow")
"""What `[[compactors]]` may name; each has what :class:`proxy.engine.compactors.Compactor` asks for."""
