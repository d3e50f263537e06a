"""Which policy a request gets: what it names itself, else what the first rule says that it fits.

A rule may ask for the model, which only the body tells: what the head leaves open is a few ways, of which the
last one is open to any model.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from pydantic import Field

from proxy.core.policy.sections import Section
from proxy.core.policy.values import Glob

_CLIENT = b"user-agent"


class Rule(Section):
    """What a request must have, all of it, to get a policy; `*` stands for anything."""

    model: Glob | None = None
    header: Mapping[Annotated[str, Field(min_length=1)], Glob] = {}
    client: Glob | None = None
    """Its User-Agent."""
    policy: Annotated[str, Field(min_length=1)]

    def fits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a head, its names in lower case, has what the rule asks for beside the model."""
        asked = {name.lower().encode(): pattern for name, pattern in self.header.items()}
        if self.client is not None:
            asked[_CLIENT] = self.client
        return all(
            name in headers and fnmatchcase(headers[name].decode("latin-1").strip(), pattern)
            for name, pattern in asked.items()
        )

    @property
    def conditions(self) -> str:
        """What it asks for, in words; the values of headers may be credentials."""
        told = [f"model {self.model}"] if self.model is not None else []
        told += [f"header {name}" for name in self.header]
        told += [f"client {self.client}"] if self.client is not None else []
        return ", ".join(told) or "any request"


class Way(msgspec.Struct, frozen=True):
    """A policy that a request may get."""

    policy: str
    """Its name; empty for the server's own."""
    by: str
    """What chose it, in words."""
    model: str | None = None
    """The pattern that the model must match; None where any does."""


_SERVERS = Way("", "the server's default")


def ways(rules: Sequence[Rule], named: str, headers: Mapping[bytes, bytes]) -> tuple[Way, ...]:
    """What may choose the policy of a request with this head, which ``named`` one or none, in order."""
    if named:
        return (Way(named, "the request's header"),)
    found: list[Way] = []
    for number, rule in enumerate(rules, 1):
        if rule.fits(headers):
            found.append(Way(rule.policy, f"use rule {number} ({rule.conditions})", rule.model))
            if rule.model is None:
                return tuple(found)
    return (*found, _SERVERS)


def chosen(open_ways: Sequence[Way], model: str) -> Way:
    """The first that is open to a model."""
    return next(way for way in open_ways if way.model is None or fnmatchcase(model, way.model))
