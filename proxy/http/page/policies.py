"""The policies in force, what follows from them, and what they would have made of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request

from proxy.core.conversation.records import Node
from proxy.core.economics.consequences import EXAMPLE_WINDOW, budget_of, consequences, decisions
from proxy.core.economics.simulate import totals
from proxy.core.policy.policy import Policy
from proxy.core.policy.warnings import warnings_of
from proxy.engine.admin.inspection import Inspected
from proxy.engine.admin.trials import MOST, Trials
from proxy.http.limits import Policies
from proxy.http.page.frame import Form, Page, Shown
from proxy.http.page.session import ONE

_COMPARED = 4
"""Policies that are tried at a time."""


@dataclass(frozen=True)
class PolicyPages:
    """Policies for people."""

    policies: Policies
    trials: Trials
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Sessions are tried one after the other: that takes seconds, and users' requests go on meanwhile."""

    def pages(self) -> list[Page]:
        """All of them, one, and a session under some."""
        return [
            Page("GET", "policies", self._all),
            Page("GET", "policies/{name}", self._one),
            Page("GET", f"{ONE}/try", self._try),
        ]

    async def _all(self, request: Request, form: Form) -> Shown:
        """The server's own first."""
        now = self.policies.in_force
        others = sorted(name for name in now.by_name if name != now.default.name)
        policies = [now.default, *(now.by_name[name] for name in others)]
        content = {
            "policies": [(each, _decided(each)) for each in policies],
            "default": now.default.name,
            "rules": now.rules,
            "stale": self.policies.stale(),
            "window": EXAMPLE_WINDOW,
        }
        return Shown("policies.html", "Policies", content)

    async def _one(self, request: Request, form: Form) -> Shown:
        policy = self.policies.in_force.named(request.path_params["name"])
        window = f"for example, in a window of {EXAMPLE_WINDOW:,}"
        content = {
            "policy": policy,
            "is_default": policy.name == self.policies.in_force.default.name,
            "sentences": [*consequences(policy, _decided(policy), window)],
            "warnings": [
                (".".join(map(str, each.location)), each.message)
                for each in warnings_of(policy, (), budget_of(policy, EXAMPLE_WINDOW))
            ],
            "differences": [*_differences(policy)],
        }
        return Shown("policy.html", policy.name, content)

    async def _try(self, request: Request, form: Form) -> Shown:
        inspection = self.trials.inspection
        found = await inspection.find(request.path_params["id"])
        branch = await inspection.branch(found)
        now = self.policies.in_force
        names = [*dict.fromkeys(filter(None, request.query_params.getlist("policy")))][:_COMPARED]
        policies = [inspection.policy_of(found.session), *map(now.named, names)]
        async with self._turn:
            outcomes = await asyncio.to_thread(self._outcomes, found, branch, policies) if names else []
        content = {
            "found": found,
            "session": found.session,
            "names": sorted({*now.by_name, now.default.name} - {policies[0].name}),
            "chosen": names,
            "outcomes": outcomes,
            "own": policies[0].name,
            "left_out": max(len(branch) - MOST, 0),
            "is_priced": self.trials.prices(found.session.model).is_known,
        }
        return Shown("try.html", "Other policies", content)

    def _outcomes(
        self, found: Inspected, branch: Sequence[Node], policies: Sequence[Policy]
    ) -> list[tuple[str, int | None, Mapping[str, Any]]]:
        distinct = {policy.name: policy for policy in policies}
        played = (self.trials.outcome(found, branch, policy) for policy in distinct.values())
        return [(each.policy, each.budget, totals([each])) for each in played]


def _decided(policy: Policy) -> Mapping[str, Any]:
    return decisions(policy, EXAMPLE_WINDOW)


def _differences(policy: Policy) -> Iterator[tuple[str, object, object]]:
    """Keys, values and defaults, where they are not the same; tables that may come several times whole."""
    plain = Policy().model_dump(mode="json", by_alias=True)
    stated = policy.model_dump(mode="json", by_alias=True, exclude={"name", "extends"})
    for section, values in stated.items():
        if isinstance(values, dict):
            for key, value in cast("Mapping[str, Any]", values).items():
                if value != plain[section].get(key):
                    yield f"{section}.{key}", value, plain[section].get(key)
        elif values != plain[section]:
            yield section, values, plain[section]
