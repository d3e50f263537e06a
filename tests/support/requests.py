"""Requests to be decided on, without the way that they came."""

from __future__ import annotations

from typing import Any

from proxy.core.budget.budget import Budget
from proxy.core.budget.learning import Ratio
from proxy.core.planning.chain import Chain
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Request
from proxy.engine.models.models import Model
from proxy.engine.models.stated_windows import Stated
from proxy.engine.sessions.session_cache import EpochLog, SessionState
from tests.support.stores import KEY


def a_request(chain: Chain, budget: Budget, **members: Any) -> Request:
    """A request of this chain and budget; whatever is not among ``members`` is as plain as can be."""
    model = Model(name="gpt-test", ratio=Ratio(), priced=None, stated=Stated("gpt-test"))
    plain: dict[str, Any] = {
        "session": SessionState("t", KEY),
        "log": EpochLog(),
        "lane": "lane",
        "model": model,
        "head_count": 0,
        "policy": Policy(),
    }
    return Request(chain=chain, budget=budget, **plain | members)
