"""A policy: everything that a person may decide about what is cut, and when.

A policy is immutable data; two policies with the same rules are equal. Reading policy files is not done here
(`adapters/files/policies.py`). The tables of a policy are in `core/policy/sections.py`.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import Annotated, ClassVar, Self, get_args

import msgspec
from pydantic import AfterValidator, BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from proxy.core.policy import sections
from proxy.core.policy.values import Glob
from proxy.core.text.similarity import nearest
from proxy.errors import InvalidPolicy

_TOKEN_BYTES = 4
"""Approximate bytes of UTF-8 per token of a summary."""


class Policy(sections.Section):
    """One policy. `name` is the name of its file, and part of a lane; the rest is the file's content."""

    RETIRED: ClassVar[Mapping[str, str]] = {
        "recall.embeddings": "searches are by words; a plug-in can bring another, which `recall.search` names"
    }
    """Keys that are still accepted but have no effect any more, each with the reason."""

    name: SkipJsonSchema[str] = "default"
    extends: str | None = None
    """The policy that this one builds on; without it, the defaults."""
    budget: sections.Budget = sections.Budget()
    stages: sections.Stages = sections.Stages()
    importance: sections.Importance = sections.Importance()
    keep: sections.Keep = sections.Keep()
    summary: sections.Summary = sections.Summary()
    ledger: sections.Ledger = sections.Ledger()
    strategy: sections.Strategy = sections.Strategy()
    economy: sections.Economy = sections.Economy()
    retention: tuple[sections.Retention, ...] = ()
    compactors: tuple[sections.Compactor, ...] = ()
    tools: tuple[sections.Tool, ...] = ()
    tool_results: sections.ToolResults = sections.ToolResults()
    recall: sections.Recall = sections.Recall()
    memory: sections.Memory = sections.Memory()
    proof: sections.Proof = sections.Proof()
    append: sections.Append = sections.Append()
    store: sections.Store = sections.Store()
    limits: sections.Limits = sections.Limits()

    @property
    def digest(self) -> str:
        """Twelve hex digits that identify the rules, so that people can compare policies."""
        rules = self.model_dump(mode="json", by_alias=True, exclude={"name", "extends"})
        canonical = json.dumps(rules, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def summary_tokens(self, budget: int, saved: float = math.inf) -> int:
        """Return the tokens that one summary may have under a budget of ``budget`` tokens.

        This is `summary.max_tokens` or, if that is "auto", a 64th of the budget, but between 100 and 2,000,
        so that a summary costs no more than a few requests. A stated number above that is limited to what
        cutting saves (``saved``, in tokens that a model writes). A summary never has more than an eighth of
        the budget, than `summary.max_characters` allows, or than fits into the running summary of
        `exchanges`.
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
        """The same policy for requests in shadow, which are decided on but never changed.

        It adds nothing to requests, refuses none, and makes none wait. Summaries are written only if
        `summary.shadow` is set, and never as continuations of the last view, which no provider has cached.
        """
        summary = self.summary
        written = {"enabled": summary.enabled and summary.shadow, "wait": 0.0, "cached_prefix": False}
        quiet = {
            "budget": self.budget.model_copy(update={"overflow": "forward"}),
            "summary": summary.model_copy(update=written),
            "recall": sections.Recall(),
            "memory": sections.Memory(),
            "proof": sections.Proof(),
            "store": self.store.model_copy(update={"on_fault": "open"}),
        }
        return self.model_copy(update=quiet)

    @cached_property
    def without_summaries(self) -> Self:
        """The same policy without summaries of what it cuts; ledgers and notices stay."""
        return self.model_copy(update={"summary": self.summary.model_copy(update={"enabled": False})})

    def retired(self) -> Iterator[tuple[str, str]]:
        """Yield the keys in :data:`RETIRED` that this policy sets, each with a sentence that says so."""
        plain = Policy()
        for key, why in self.RETIRED.items():
            if attrgetter(key)(self) != attrgetter(key)(plain):
                yield key, f"`{key}` has no effect any more: {why}"


def dotted_keys(model: type[BaseModel] = Policy) -> tuple[str, ...]:
    """Return all keys that a file may have, such as `budget.tokens`; a table comes before its keys."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        if name == "name":
            continue  # the file's own name, never a key in it
        key = field.alias or name
        found.append(key)
        for each in (field.annotation, *get_args(field.annotation)):  # a section, alone or in a tuple
            if isinstance(each, type) and issubclass(each, sections.Section):
                found += (f"{key}.{inner}" for inner in dotted_keys(each))
    return tuple(found)


# --- which policy a request gets: the one that it names, else that of the first rule that it meets ---

_CLIENT = b"user-agent"
_CODINGS = "utf-8", "latin-1"
"""How a header's value may be written."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, section 5.6.2."""


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError("is not the name of a header")
    return name


class PolicyRule(sections.Section):
    """A rule that gives a policy to requests that meet all of its conditions; `*` matches anything."""

    model: Glob | None = None
    header: Mapping[Annotated[str, AfterValidator(_header_name)], Glob] = {}
    client: Glob | None = None
    """The request's User-Agent."""
    policy: Annotated[str, Field(min_length=1)]

    def fits(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether these headers (names in lower case) meet all conditions except the one on the model."""
        asked = {name.lower().encode(): pattern for name, pattern in self.header.items()}
        if self.client is not None:
            asked[_CLIENT] = self.client
        return all(
            name in headers
            and any(_matches(headers[name].decode(coding, "replace").strip(), pattern) for coding in _CODINGS)
            for name, pattern in asked.items()
        )

    @property
    def conditions(self) -> str:
        """The conditions in words, without the values of headers, which may be credentials."""
        parts = [f"model {self.model}"] if self.model is not None else []
        parts += [f"header {name}" for name in self.header]
        parts += [f"client {self.client}"] if self.client is not None else []
        return ", ".join(parts) or "any request"


def _matches(text: str, pattern: str) -> bool:
    """Whether a text is what a rule asks for; `*` alone is special, since names of models have brackets."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


class Candidate(msgspec.Struct, frozen=True):
    """A policy that a request may get, depending on its model."""

    policy: Policy
    by: str
    """Why the policy was chosen, in words."""
    model: str | None = None
    """The pattern that the request's model must match; None if any model does."""


class Candidates(msgspec.Struct, frozen=True):
    """The policies that a request may get, in order, and what holds whichever of them it gets.

    The head of a request is known before its model.
    """

    options: tuple[Candidate, ...]
    streams: int
    """The largest number of concurrent requests that any of them allows."""
    body: int
    """The largest body in bytes that any of them allows."""
    are_off: bool
    """Whether none of the policies ever cuts anything."""

    def chosen(self, model: str) -> Candidate:
        """Return the first candidate whose pattern the model matches."""
        return next(each for each in self.options if each.model is None or _matches(model, each.model))


class PolicySet(msgspec.Struct, frozen=True):
    """The policies in force at one moment; when a file is edited, a new set replaces this one."""

    default: Policy
    """The server's policy, for requests that no rule matches."""
    by_name: Mapping[str, Policy] = {}
    rules: Sequence[PolicyRule] = ()
    """The rules for requests that name no policy, in order."""

    @property
    def remembers(self) -> bool:
        """Whether any of the policies has memory enabled."""
        return any(each.memory.enabled for each in (self.default, *self.by_name.values()))

    def named(self, name: str) -> Policy:
        """Return the policy of this name, or the default for an empty name. Raises InvalidPolicy."""
        policy = self.by_name.get(name) if name else self.default
        if policy is None:
            meant = nearest(name, self.by_name)
            hint = f"; did you mean {meant!r}?" if meant else "."
            raise InvalidPolicy(f"There is no usable policy {name!r}{hint}")
        return policy

    def named_or_default(self, name: str) -> Policy:
        """Return the policy under which something was written; the default if there is none of that name."""
        return self.by_name.get(name, self.default)

    def candidates(self, named: str, headers: Mapping[bytes, bytes]) -> Candidates:
        """Return the policies that a request with these headers may get.

        ``named`` is the policy that the request names itself, or empty. Raises InvalidPolicy.
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
