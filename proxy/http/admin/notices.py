"""The operation of the admin API that tells what is degraded."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from proxy.engine.admin.notices import Notices
from proxy.http.admin.api import Operation, Table
from proxy.http.admin.schemas import NoBody, Shape

_TABLE = Table()


class NoticeReport(Shape):
    """Something that is degraded now."""

    what: str
    advice: str
    """What to do about it."""


class NoticesReport(Shape):
    """All that is degraded now."""

    notices: list[NoticeReport]


@dataclass(frozen=True)
class NoticeOperations:
    """The operation on notices in the admin API."""

    notices: Notices

    def operations(self) -> list[Operation]:
        """Return the only operation."""
        return _TABLE.of(self)

    @_TABLE.operation("GET", "/notices")
    async def listed(self, request: Request, body: NoBody) -> NoticesReport:
        """Read what is degraded now, in plain words, and what to do about it."""
        found = await self.notices.now()
        return NoticesReport(notices=[NoticeReport.model_validate(each._asdict()) for each in found])
