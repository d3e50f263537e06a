"""Bills as the admin API tells them: the models are the contract."""

from __future__ import annotations

from typing import Literal

from proxy.core.economics.bill import NANO, Bill
from proxy.http.admin.schemas import SessionTold, Shape


class TokensTold(Shape):
    """Tokens of requests and of their answers, as their upstream counted them."""

    received: int
    """Of the whole conversations."""
    sent: int
    cached: int
    """Of those sent: from the provider's cache."""
    cache_writes: int
    """Of those sent: billed as written to it."""
    output: int
    shadow_cut: int
    """Of those sent, in shadow: would not have been sent."""


class DollarsTold(Shape):
    """Money by the price list."""

    answers: float
    hidden: float
    """For requests between which calls were answered out of the client's sight."""
    summaries: float
    memory: float
    spent: float
    """All of these."""
    without: float
    """What doing nothing would have cost, as far as it would have worked."""
    saved: float
    """What doing nothing would have cost more, for the requests that it would have answered."""
    shadow: float
    """What would have been saved in shadow, without what summaries would have cost."""


class BillTold(Shape):
    """What requests took and cost."""

    requests: int
    tokens: TokensTold
    dollars: DollarsTold | None
    """Null where nobody knows a price of any of it."""
    would_have_failed: int
    """Requests whose whole conversation would not have fitted the model's window."""
    price_unknown: int
    """Requests and calls of our own that are missing in the dollars, because nobody knows their price."""
    estimated: int
    """Requests whose answer told no usage, so that their tokens are our own count."""
    epochs: int
    summaries_failed: dict[str, int]
    """By the reason."""
    tool_calls_answered: int

    @classmethod
    def of(cls, bill: Bill) -> BillTold:
        """A bill as the API tells it."""
        return cls.model_validate(told(bill))


class StatsRow(BillTold):
    """The bill of an hour, a day, a model or a session."""

    key: str
    """The hour's time, the day, the model's name or the session's id."""
    name: str | None
    """What a client sends as `X-Unabridged-Session`, of a session."""


class StatsTold(Shape):
    """What requests took and cost over a time."""

    since: str
    """Beginning of the first hour, UTC."""
    by: Literal["hour", "day", "model", "session"]
    total: BillTold
    """Of all hours since then."""
    rows: list[StatsRow]
    """Of sessions: those that were used since then, each with the bill of all its life."""


class BilledSession(SessionTold):
    """A session as its latest turn left it, and its bill."""

    bill: BillTold
    """Of all its life."""


def told(bill: Bill) -> dict[str, object]:
    """A bill's members."""
    kinds = ("answers", "hidden", "summaries", "memory", "spent", "without", "saved", "shadow")
    is_priced = bill.spent or not bill.unpriced
    return {
        "requests": bill.requests,
        "tokens": {
            "received": bill.received,
            "sent": bill.sent,
            "cached": bill.cached,
            "cache_writes": bill.written,
            "output": bill.output,
            "shadow_cut": bill.shadow_cut,
        },
        "dollars": {kind: getattr(bill, kind) / NANO for kind in kinds} if is_priced else None,
        "would_have_failed": bill.failing,
        "price_unknown": bill.unpriced,
        "estimated": bill.estimated,
        "epochs": bill.epochs,
        "summaries_failed": dict(bill.failed),
        "tool_calls_answered": bill.tool_calls,
    }
