"""The home page: what was done lately, notices of problems, and the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request

from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.notices import Notices
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable
from proxy.http.admin.api import number
from proxy.http.page.frame import Form, Page, page
from proxy.ports.bill_store import HOUR, KEPT_HOURS

_SHOWN, _MOST = 50, 1_000
_DAY = 24 * HOUR
_WEEK, _KEPT = 7 * _DAY, KEPT_HOURS * HOUR


@dataclass(frozen=True)
class Home:
    """The first page."""

    inspection: Inspection
    notices: Notices
    stats: Stats
    now: Callable[[], float]
    """Seconds since 1970."""

    @page("GET", "")
    async def home(self, request: Request, form: Form) -> Page:
        words = request.query_params.get("q", "").strip()[:200]
        limit = number(request, "limit", _SHOWN, _MOST)
        found: list[Inspected] = []
        left_out, fault = Counter[str](), ""
        spans: dict[str, Bill] = {}
        try:
            found, left_out = await self.inspection.newest(limit, words=words)
            _, of_90_days, rows = await self.stats.since(_KEPT, "day")
        except StoreUnavailable as error:
            fault = error.message
        else:
            for name, ago in (("Today", 0), ("7 days", _WEEK - _DAY)):
                # A day in UTC, as an ISO date, which sorts as text.
                first = f"{datetime.fromtimestamp(self.now() - ago, UTC):%Y-%m-%d}"
                spans[name] = sum((row.bill for row in rows if row.key >= first), NOTHING)
            spans["90 days"] = of_90_days
            fault = await self.notices.refusal()
        content = {
            "words": words,
            "sessions": [(each, self.inspection.policy_of(each.session).stages) for each in found],
            "spans": spans,
            "more": min(2 * limit, _MOST) if len(found) == limit < _MOST else None,
            "notices": [*self.notices.of(found, left_out, spans.get("Today", NOTHING), fault)],
            "is_down": bool(fault),
        }
        return Page("home.html", "Sessions", content)
