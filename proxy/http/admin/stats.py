"""What the admin API tells of what requests took and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, get_args

from starlette.requests import Request

from proxy.core.policy.values import seconds
from proxy.engine.admin.stats import By, Stats
from proxy.errors import InvalidType
from proxy.http.admin.bill_schemas import BillTold, StatsRow, StatsTold, told
from proxy.http.admin.openapi import Operation, Query, Table
from proxy.http.admin.schemas import NoBody, time

_USUAL = "7d"
_SINCE = Query("since", f"For how long back, at most 90d: 24h, 7d; {_USUAL} if absent.", "string")
_BY = Query("by", "What a row is of: hour, day, model or session; day if absent.", "string")
_TABLE = Table()


@dataclass(frozen=True)
class StatsOperations:
    """Bills for people and scripts."""

    stats: Stats

    def operations(self) -> list[Operation]:
        """Everything that is told of them."""
        return _TABLE.of(self)

    @_TABLE.operation("GET", "/stats", _SINCE, _BY)
    async def bills(self, request: Request, body: NoBody) -> StatsTold:
        """What requests took and cost."""
        asked = request.query_params.get("since", _USUAL)
        by = request.query_params.get("by", "day")
        if by not in get_args(By):
            raise InvalidType("`by` must be hour, day, model or session.", param="by")
        try:
            duration = cast("float", seconds(asked))
        except ValueError as error:
            raise InvalidType(f"`since` {error}.", param="since") from None
        since, total, rows = await self.stats.since(duration, cast("By", by))
        return StatsTold(
            since=time(since),
            by=cast("By", by),
            total=BillTold.of(total),
            rows=[
                StatsRow.model_validate(told(each.bill) | {"key": each.key, "name": each.name or None})
                for each in rows
            ],
        )
