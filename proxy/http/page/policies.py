"""The pages of policies: those in force, their consequences, and a session replayed under some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
from starlette.requests import Request

from proxy.core.budget.budget import Budget, budget_tokens
from proxy.core.budget.prices import Prices
from proxy.core.economics.consequences import EXAMPLE_WINDOW, budget_of, consequences, decisions, effects
from proxy.core.economics.simulate import Outcome, replay, totals
from proxy.core.planning.plan import EMPTY
from proxy.core.policy.policy import Policy
from proxy.core.policy.warnings import warnings_of
from proxy.core.proof.evidence import Evidence, Unproven
from proxy.engine.admin.inspection import Branch, Inspected, Inspection
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable
from proxy.http.page.frame import Form, Page, page
from proxy.http.page.session import SESSION_PATH
from proxy.ports import Policies
from proxy.ports.bill_store import HOUR, KEPT_HOURS

_COMPARED = 4
"""Most policies that are tried on a session at a time."""
_OFFERED = 10
"""Most sessions that a policy's page offers for trying it."""
_REPLAYED = 1_000
"""Most messages of a session that are replayed, from its beginning."""
_UNPROVEN: Mapping[Unproven, str] = {
    Unproven.BEYOND: "whose whole history does not fit the window",
    Unproven.CEILING: "because of the day's ceiling",
    Unproven.HIDDEN: "within which the proxy answered calls",
    Unproven.BUSY: "because too many waited",
    Unproven.FAILED: "without a second answer",
}


@dataclass(frozen=True)
class PolicyPages:
    """Web pages for policies."""

    policies: Policies
    inspection: Inspection
    prices: Callable[[str], Prices]
    """Returns the prices of a model's tokens."""
    stats: Stats
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a replay: only one runs at a time, since it takes seconds and users' requests go on."""

    @page("GET", "policies")
    async def index(self, request: Request, form: Form) -> Page:
        """All policies, the server's default one first."""
        now = self.policies.in_force
        others = sorted(name for name in now.by_name if name != now.default.name)
        policies = [now.default, *(now.by_name[name] for name in others)]
        content = {
            "policies": [(each, decisions(each, EXAMPLE_WINDOW)) for each in policies],
            "default": now.default.name,
            "rules": now.rules,
            "stale": self.policies.stale(),
            "window": EXAMPLE_WINDOW,
        }
        return Page("policies.html", "Policies", content)

    @page("GET", "policies/{name}")
    async def policy(self, request: Request, form: Form) -> Page:
        """A policy, with the sessions on which it can be tried, as far as the store can be reached."""
        now = self.policies.in_force
        policy = now.named(request.path_params["name"])
        base = now.by_name.get(policy.extends or "") or Policy()
        stated = {tuple(key.split(".")) for key, _, _ in _differences(policy, base)}
        window = f"for example, in a window of {EXAMPLE_WINDOW:,}"
        sessions, evidence = list[Inspected](), list[tuple[str, str, Evidence]]()
        with suppress(StoreUnavailable):
            sessions, _ = await self.inspection.newest(_OFFERED)
        with suppress(StoreUnavailable):
            evidence = await self.stats.evidence(KEPT_HOURS * HOUR)
        content = {
            "policy": policy,
            "is_default": policy.name == now.default.name,
            "sentences": [*consequences(policy, decisions(policy, EXAMPLE_WINDOW), window)],
            "warnings": [
                (".".join(map(str, each.location)), each.message)
                for each in warnings_of(policy, stated, budget_of(policy, EXAMPLE_WINDOW))
            ],
            "differences": [*_differences(policy, Policy())],
            "sessions": sessions,
            **await self._effects(policy, request.query_params.get("session", "")),
            "evidence": [(model, found) for name, model, found in evidence if name == policy.name],
            "unproven": _UNPROVEN,
        }
        return Page("policy.html", policy.name, content)

    async def _effects(self, policy: Policy, chosen: str) -> Mapping[str, object]:
        """What each table of the policy comes to in the chosen session, if one is."""
        if not chosen:
            return {"chosen": None, "effects": ()}
        found = await self.inspection.find(chosen)
        branch = await self.inspection.branch(found)
        short = replace(branch, nodes=branch.nodes[:_REPLAYED])

        def replayed() -> list[tuple[str, str]]:
            situation = short.situation.under(EMPTY)
            under = msgspec.structs.replace(situation, policy=policy, budget=_budget(short, policy))
            return [*effects(under, self.prices(found.session.model))]

        async with self._turn:
            tables = await asyncio.to_thread(replayed)
        return {"chosen": found, "effects": tables, "left_out": max(len(branch.nodes) - _REPLAYED, 0)}

    @page("GET", f"{SESSION_PATH}/try")
    async def trial(self, request: Request, form: Form) -> Page:
        found = await self.inspection.find(request.path_params["id"])
        branch = await self.inspection.branch(found)
        now = self.policies.in_force
        names = [*dict.fromkeys(filter(None, request.query_params.getlist("policy")))][:_COMPARED]
        policies = [self.inspection.policy_of(found.session), *map(now.named, names)]
        short, model = replace(branch, nodes=branch.nodes[:_REPLAYED]), found.session.model

        def replayed() -> list[tuple[str, int | None, Mapping[str, Any]]]:
            """Replay the session's transcript under each policy, without calling a model."""
            situation, known = short.situation, self.prices(model)
            outcomes: list[tuple[str, int | None, Mapping[str, Any]]] = []
            for policy in {each.name: each for each in policies}.values():
                budget, paid = _budget(short, policy), known.under(policy.economy)
                turns = tuple(replay(situation.chain, policy, budget, situation.count, prices=known))
                writer = self.prices(policy.summary.model or model)
                outcome = Outcome(found.id, policy.name, budget.tokens, paid, writer, turns)
                outcomes.append((policy.name, budget.tokens, totals([outcome])))
            return outcomes

        async with self._turn:
            outcomes = await asyncio.to_thread(replayed) if names else []
        content = {
            "found": found,
            "names": sorted({*now.by_name, now.default.name} - {policies[0].name}),
            "chosen": names,
            "outcomes": outcomes,
            "own": policies[0].name,
            "left_out": max(len(branch.nodes) - _REPLAYED, 0),
            "is_priced": self.prices(model).is_known,
        }
        return Page("try.html", "Other policies", content)


def _budget(branch: Branch, policy: Policy) -> Budget:
    """The budget under a policy, with the window, head and ratio of the session's newest turn."""
    before, rules = branch.situation.budget, policy.budget
    window = rules.window(branch.found.session.model) or before.window.tokens
    tokens = budget_tokens(rules.limit, window, rules.reserved, before.real(before.head))
    return Budget(tokens, before.ratio, before.head, before.window, tool=before.tool)


def _differences(policy: Policy, base: Policy) -> Iterator[tuple[str, object, object]]:
    """Yield key, value and the value in ``base`` where they differ; arrays of tables are compared whole."""
    plain = base.model_dump(mode="json", by_alias=True)
    stated = policy.model_dump(mode="json", by_alias=True, exclude={"name", "extends"})
    for section, values in stated.items():
        if isinstance(values, dict):
            for key, value in cast("Mapping[str, Any]", values).items():
                if value != plain[section].get(key):
                    yield f"{section}.{key}", value, plain[section].get(key)
        elif values != plain[section]:
            yield section, values, plain[section]
