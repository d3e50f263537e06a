"""Requests to decide on, made without an HTTP request."""

from __future__ import annotations

from typing import Any

from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.budget.learning import Ratio
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.chat.body import read_body
from proxy.core.persistent import PersistentList
from proxy.core.planning.chain import Chain
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Incoming, Request
from proxy.engine.intake.history import History
from proxy.engine.intake.naming import Envelope, Naming
from proxy.engine.models.models import Model
from proxy.engine.models.stated_windows import Stated
from proxy.engine.sessions.session_cache import CachedLane, EpochLog, SessionState
from tests.support.stores import KEY

ENVELOPE = Envelope.read(Naming("secret", CacheMemory()), "/chat/completions", {}, [])


def a_request(
    chain: Chain,
    budget: Budget,
    *,
    policy: Policy | None = None,
    lane: str = "lane",
    arrived: float = 0.0,
    **members: Any,
) -> Request:
    """Return a request with this chain and budget, and simple defaults for everything else."""
    body = b'{"model":"gpt-test","messages":[%b]}' % b",".join(chain.raws)
    plain: dict[str, Any] = {
        "incoming": Incoming(ENVELOPE, body, policy or Policy(), arrived),
        "history": a_history(chain, body),
        "session": SessionState("t", KEY, lane=CachedLane(lane)),
        "epoch_log": EpochLog(),
        "model": Model(name="gpt-test", ratio=Ratio(), priced=None, stated=Stated("gpt-test")),
    }
    return Request(chain=chain, budget=budget, **plain | members)


def a_history(chain: Chain, body: bytes) -> History:
    """Return a counted chain as the history of a body without a head."""
    return History(
        body=read_body(body, len(chain)),
        model="gpt-test",
        head=(),
        head_entries=(),
        raws=PersistentList([*chain.raws]),
        entries=PersistentList([]),
        root=root_hash(),
        hashes=PersistentList([*chain.hashes]),
        tip=chain.hashes[-1],
        length=len(chain),
        exchanges=chain.exchanges,
        counted=chain,
        new=(),
        uncounted={},
    )
