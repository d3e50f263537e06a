"""A policy: everything that a person may decide about what is cut, and when.

A policy is data: frozen, equal where its rules are equal, read from no file here. Its tables are
`core/policy/sections.py`.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import Annotated, ClassVar, Self, get_args

import msgspec
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from proxy.core.policy.sections import (
    Append,
    Budget,
    Compactor,
    Economy,
    Importance,
    Keep,
    Ledger,
    Limits,
    Memory,
    Proof,
    Recall,
    Retention,
    Section,
    Stages,
    Store,
    Strategy,
    Summary,
    Tool,
    ToolResults,
)
from proxy.core.policy.values import Glob
from proxy.errors import InvalidPolicy

_TOKEN_BYTES = 4
"""Bytes of UTF-8 that a token of a summary has, about."""


class Policy(Section):
    """One policy. `name` is its file's name and part of a session's lane; the rest is the file's content."""

    RETIRED: ClassVar[Mapping[str, str]] = {
        "recall.embeddings": "searches are by words; a plug-in can bring another, which `recall.search` names"
    }
    """Keys that are read, and do nothing any more; and why."""

    name: SkipJsonSchema[str] = "default"
    extends: str | None = None
    budget: Budget = Budget()
    stages: Stages = Stages()
    importance: Importance = Importance()
    keep: Keep = Keep()
    summary: Summary = Summary()
    ledger: Ledger = Ledger()
    strategy: Strategy = Strategy()
    economy: Economy = Economy()
    retention: tuple[Retention, ...] = ()
    compactors: tuple[Compactor, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_results: ToolResults = ToolResults()
    recall: Recall = Recall()
    memory: Memory = Memory()
    proof: Proof = Proof()
    append: Append = Append()
    store: Store = Store()
    limits: Limits = Limits()

    @property
    def digest(self) -> str:
        """Twelve hex digits that are equal exactly when the rules are: for people to compare."""
        rules = self.model_dump(mode="json", by_alias=True, exclude={"name", "extends"})
        canonical = json.dumps(rules, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def summary_tokens(self, budget: int, saved: float = math.inf) -> int:
        """Tokens that one summary may have under a budget of so many tokens.

        `summary.max_tokens`; where that is "auto" a 64th of the budget from 100 to 2,000, so that it costs no
        more than a few requests. A longer one costs no more than is ``saved``, in tokens that a model writes.
        Never more than an eighth, nor than `summary.max_characters`, nor than fits into the running summary
        of `exchanges`.
        """
        usual, wanted = min(max(budget // 64, 100), 2000), self.summary.max_tokens
        wanted = usual if wanted == "auto" else int(min(wanted, max(saved, usual)))
        if self.summary.max_characters:
            wanted = min(wanted, self.summary.max_characters)
        if self.strategy.name == "exchanges":
            wanted = min(wanted, self.strategy.summary_to // _TOKEN_BYTES)
        return max(1, min(wanted, budget // 8))

    @cached_property
    def in_shadow(self) -> Self:
        """The same policy for requests of which nothing is changed, however it decides on them.

        Nothing of it puts anything into a request, refuses one, or makes one wait. Summaries are written only
        where `summary.shadow` says so, and not behind the last view, which no provider has read.
        """
        summary = self.summary
        written = {"enabled": summary.enabled and summary.shadow, "wait": 0.0, "cached_prefix": False}
        quiet = {
            "budget": self.budget.model_copy(update={"overflow": "forward"}),
            "summary": summary.model_copy(update=written),
            "recall": Recall(),
            "memory": Memory(),
            "proof": Proof(),
            "store": self.store.model_copy(update={"on_fault": "open"}),
        }
        return self.model_copy(update=quiet)

    def retired(self) -> Iterator[tuple[str, str]]:
        """Keys that differ from the default and do nothing any more, each with a sentence about it."""
        plain = Policy()
        for key, why in self.RETIRED.items():
            if attrgetter(key)(self) != attrgetter(key)(plain):
                yield key, f"`{key}` has no effect any more: {why}"


def dotted_keys(model: type[BaseModel] = Policy) -> tuple[str, ...]:
    """Every key that a file may have, such as `budget.tokens`; a table stands before its keys."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        if name == "name":
            continue  # the file's own name, never a key in it
        key = field.alias or name
        found.append(key)
        for each in (field.annotation, *get_args(field.annotation)):  # a section, alone or in a tuple
            if isinstance(each, type) and issubclass(each, Section):
                found += (f"{key}.{inner}" for inner in dotted_keys(each))
    return tuple(found)


# --- Which policy a request gets: what it names itself, else what the first rule says that it fits ---

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
        parts = [f"model {self.model}"] if self.model is not None else []
        parts += [f"header {name}" for name in self.header]
        parts += [f"client {self.client}"] if self.client is not None else []
        return ", ".join(parts) or "any request"


class Candidate(msgspec.Struct, frozen=True):
    """A policy that a request may get."""

    policy: Policy
    by: str
    """What chose it, in words."""
    model: str | None = None
    """The pattern that the model must match; None where any does."""


class Candidates(msgspec.Struct, frozen=True):
    """The policies that a request may get by its head, in order, and what holds whichever of them it gets."""

    options: tuple[Candidate, ...]
    streams: int
    """Requests at a time, by the widest limit."""
    body: int
    """Bytes, by the widest limit."""
    are_off: bool
    """Whether none of them cuts anything."""

    def chosen(self, model: str) -> Candidate:
        """The first that is open to a model."""
        return next(each for each in self.options if each.model is None or fnmatchcase(model, each.model))


class PolicySet(msgspec.Struct, frozen=True):
    """The policies that are in force at one moment; another set takes its place when a file is edited."""

    default: Policy
    """The server's own."""
    by_name: Mapping[str, Policy] = {}
    rules: Sequence[Rule] = ()
    """Which requests that name no policy get which."""

    def named(self, name: str) -> Policy:
        """The policy of that name; without a name the default. Raises InvalidPolicy where there is none."""
        policy = self.by_name.get(name) if name else self.default
        if policy is None:
            raise InvalidPolicy(f"There is no usable policy {name!r}.")
        return policy

    def candidates(self, named: str, headers: Mapping[bytes, bytes]) -> Candidates:
        """What may choose the policy of a request with this head, which ``named`` one or none.

        Raises InvalidPolicy.
        """
        options = [Candidate(self.named(named), "the request's header")] if named else list[Candidate]()
        for number, rule in enumerate(() if named else self.rules, 1):
            if rule.fits(headers):
                by = f"use rule {number} ({rule.conditions})"
                options.append(Candidate(self.named(rule.policy), by, rule.model))
                if rule.model is None:
                    break
        if not options or options[-1].model is not None:
            options.append(Candidate(self.default, "the server's default"))
        limits = [candidate.policy.limits for candidate in options]
        return Candidates(
            tuple(options),
            streams=max(each.streams for each in limits),
            body=max(each.body for each in limits),
            are_off=all(candidate.policy.strategy.name == "off" for candidate in options),
        )
