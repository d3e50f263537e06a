"""The home page: what was done lately, notices of problems, and the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.requests import Request

from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.notices import Notices
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable
from proxy.http.admin.api import number
from proxy.http.page.frame import Form, Shown, page
from proxy.ports.bill_store import HOUR

_SHOWN, _MOST = 50, 1_000
_DAY = 24 * HOUR
_WEEK, _KEPT = 7 * _DAY, 90 * _DAY


@dataclass(frozen=True)
class Home:
    """The first page."""

    inspection: Inspection
    notices: Notices
    stats: Stats
    now: Callable[[], float]
    """Seconds since 1970."""

    @page("GET", "")
    async def home(self, request: Request, form: Form) -> Shown:
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
            "more": min(2 * limit, _MOST) if len(found) == limit < _MOST else None,
            "notices": [*self.notices.of(found, left_out, spans.get("Today", NOTHING), fault)],
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
