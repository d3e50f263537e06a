"""The home page: what was done lately, notices of problems, and the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import Request

from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable
from proxy.http.admin.api import number
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


class Notice(NamedTuple):
    """A problem, and what to do about it."""

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
        """The home page alone."""
        return [Page("GET", "", self._home)]

    async def _home(self, request: Request, form: Form) -> Shown:
        words = request.query_params.get("q", "").strip()[:200]
        limit = number(request, "limit", _SHOWN, _MOST)
        found: list[Inspected] = []
        left_out, fault = Counter[str](), ""
        spans: Mapping[str, Bill] = {}
        try:
            found, left_out = await self.inspection.newest(limit, words=words)
            spans = await self._spans()
        except StoreUnavailable as error:
            fault = error.message
        content = {
            "words": words,
            "sessions": [(each, self.inspection.policy_of(each.session).stages) for each in found],
            "spans": spans,
            "has_more": len(found) == limit,
            "limit": limit,
            "notices": [*self._notices(found, left_out, fault), *_failures(spans.get("Today", NOTHING))],
            "is_down": bool(fault),
        }
        return Shown("home.html", "Sessions", content)

    async def _spans(self) -> Mapping[str, Bill]:
        """Bills of today, of 7 days, and of the 90 days that bills are stored. Raises StoreUnavailable."""
        _, total, rows = await self.stats.since(_KEPT, "day")
        # Days in UTC, as ISO dates, which sort as text.
        today, days = (
            f"{datetime.fromtimestamp(self.now() - ago, UTC):%Y-%m-%d}" for ago in (0, _WEEK - _DAY)
        )
        spans = {
            name: sum((row.bill for row in rows if row.key >= first), NOTHING)
            for name, first in (("Today", today), ("7 days", days))
        }
        return {**spans, "90 days": total}

    def _notices(self, found: list[Inspected], left_out: Counter[str], fault: str) -> Iterator[Notice]:
        """Notices of degraded states, in plain words."""
        if fault:
            yield Notice(
                f"The store does not answer. {fault}",
                "Chats go on without their sessions, unless a policy says otherwise, and are stored when it"
                " is back. Check that the store runs and can be reached from here.",
            )
        if stale := self.policies.stale():
            yield Notice(
                f"These policy files cannot be used as they are now: {', '.join(stale)}.",
                "Their last valid version is in force. `unabridged check` names the line that is wrong.",
            )
        for reason, count in left_out.items():
            yield Notice(f"{count} of the newest sessions cannot be read.", f"They {_LEFT_OUT[reason]}.")
        sessions = (each.session for each in found)
        unknown = sorted({each.model for each in sessions if not each.budget and not each.window})
        if unknown:
            yield Notice(
                f"Unknown context window: {', '.join(unknown[:5])}.",
                "Nothing is cut for its length until the upstream refuses a request. To cut earlier, state"
                " the window under [budget.windows] in the policy.",
            )


def _failures(today: Bill) -> Iterator[Notice]:
    """A notice of the summaries that failed today."""
    if today.failed:
        failures = ", ".join(
            f"{count} {why.replace('_', ' ')}" for why, count in sorted(today.failed.items())
        )
        yield Notice(
            f"Summaries failed today: {failures}.",
            "Short notices stand in their place, and exact facts are kept without them. Check that the model"
            " under [summary] answers in time; the log has each failure.",
        )
