"""Home: what goes on, what is the matter, and the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from operator import add
from typing import NamedTuple

from starlette.requests import Request

from proxy.core.economics.bill import NOTHING, Bill
from proxy.core.policy.sections import Stages
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable
from proxy.http.admin.openapi import number
from proxy.http.limits import Policies
from proxy.http.page.frame import Form, Page, Shown

_SHOWN, _MOST = 50, 1_000
_DAY = 24 * 3600
_WEEK, _KEPT = 7 * _DAY, 90 * _DAY
_LEFT_OUT: Mapping[str, str] = {
    "unknown_secret": (
        "are encrypted with another UNABRIDGED_SECRET: start the server with both, the new one first"
    ),
    "newer_release": "were written by a newer release of the proxy: upgrade this one",
    "damaged": "are damaged: see the log, and restore the store from a backup if they are needed",
}


@dataclass(frozen=True)
class Listing:
    """A session in the list, and the stages of its policy."""

    found: Inspected
    stages: Stages

    @property
    def usage(self) -> float | None:
        """Of its last view, over the budget; None where there is no budget."""
        session = self.found.session
        return session.tokens / session.budget if session.budget else None


class Span(NamedTuple):
    """What was done over a time."""

    name: str
    bill: Bill

    @property
    def is_priced(self) -> bool:
        """Whether the price of any of it is known."""
        return bool(self.bill.spent or not self.bill.unpriced)

    @property
    def failures(self) -> str:
        """Summaries that failed, by the reason."""
        failed = sorted(self.bill.failed.items())
        return ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in failed)


@dataclass(frozen=True)
class Notice:
    """Something that is the matter, and what to do about it."""

    what: str
    advice: str


@dataclass(frozen=True)
class Home:
    """The first page."""

    inspection: Inspection
    policies: Policies
    stats: Stats
    now: Callable[[], float]
    """Seconds since 1970."""

    def pages(self) -> list[Page]:
        """The one page."""
        return [Page("GET", "", self._home)]

    async def _home(self, request: Request, form: Form) -> Shown:
        words = request.query_params.get("q", "").strip()[:200]
        limit = number(request, "limit", _SHOWN, _MOST)
        found: list[Inspected] = []
        left_out, fault = Counter[str](), ""
        spans: Sequence[Span] = ()
        try:
            found, left_out = await self.inspection.newest(limit, words=words)
            spans = await self._spans()
        except StoreUnavailable as error:
            fault = error.message
        listed = [Listing(each, self.inspection.policy_of(each.session).stages) for each in found]
        content = {
            "words": words,
            "sessions": listed,
            "spans": spans,
            "has_more": len(found) == limit,
            "limit": limit,
            "notices": [*self._notices(found, left_out, fault), *_failures(spans)],
            "is_down": bool(fault),
        }
        return Shown("home.html", "Sessions", content)

    async def _spans(self) -> Sequence[Span]:
        """What it did today, in a week, and as long as that is kept. Raises StoreUnavailable."""
        _, total, rows = await self.stats.since(_KEPT, "day")
        today, days = (datetime.fromtimestamp(self.now() - ago, UTC).date() for ago in (0, _WEEK - _DAY))
        by_day = [(date.fromisoformat(row.key), row.bill) for row in rows]

        def over(first: date) -> Bill:
            return reduce(add, (bill for when, bill in by_day if when >= first), NOTHING)

        return (
            Span("Today", over(today)),
            Span("7 days", over(days)),
            Span("90 days", total),
        )

    def _notices(self, found: list[Inspected], left_out: Counter[str], fault: str) -> Iterator[Notice]:
        """Degraded states in plain words."""
        if fault:
            yield Notice(
                f"The store does not answer. {fault}",
                "Chats go on without memory of their sessions, unless a policy says otherwise. What is new is"
                " written when it is back. See that the store runs and is reached from here.",
            )
        if stale := self.policies.stale():
            yield Notice(
                f"These policy files cannot be used as they are now: {', '.join(stale)}.",
                "What they said before is in force. `unabridged check` names the line that is wrong.",
            )
        for reason, count in left_out.items():
            yield Notice(f"{count} of the newest sessions cannot be read.", f"They {_LEFT_OUT[reason]}.")
        sessions = (each.session for each in found)
        unknown = sorted({each.model for each in sessions if not each.budget and not each.window})
        if unknown:
            yield Notice(
                f"Nobody knows the context window of {', '.join(unknown[:5])}.",
                "Nothing is cut for its length until the upstream refuses a request. To begin earlier, name"
                " it under [budget] windows in the policy.",
            )


def _failures(spans: Sequence[Span]) -> Iterator[Notice]:
    """Summaries that could not be had today."""
    if spans and (failures := spans[0].failures):
        yield Notice(
            f"Summaries failed today: {failures}.",
            "Notices stand in their place, and exact facts are kept without them. See that the model of"
            " [summary] answers in time and says something; the log tells of each failure.",
        )
