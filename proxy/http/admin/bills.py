"""Bills in the admin API: their response bodies, and the operation that adds them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

from pydantic import AliasChoices, Field
from starlette.requests import Request

from proxy.core.economics.bill import NANO, Bill
from proxy.core.policy.values import seconds
from proxy.core.proof.evidence import Arm, Evidence, Interval, Missed, Unproven
from proxy.engine.admin.stats import By, Stats
from proxy.errors import InvalidType, InvalidValue
from proxy.http.admin.api import Query, operation
from proxy.http.admin.schemas import NoBody, SessionReport, Shape, time
from proxy.ports.bill_store import HOUR, KEPT_HOURS

_USUAL = "7d"
_SINCE = Query("since", f"For how long back, at most 90d: 24h, 7d; {_USUAL} if absent.", "string")
_BY = Query("by", "What a row is of: hour, day, model or session; day if absent.", "string")


class TokenCounts(Shape):
    """Tokens of requests and their answers, as the upstream counted them."""

    received: int
    """Prompt tokens of the whole conversations."""
    sent: int
    cached: int
    """Tokens of those sent that the provider read from its cache."""
    cache_writes: int = Field(validation_alias=AliasChoices("cache_writes", "written"))
    """Tokens of those sent that were billed as written to the cache."""
    output: int
    shadow_cut: int
    """Tokens of those sent that would have been cut without shadow mode."""


class DollarAmounts(Shape):
    """Costs in dollars by the price list."""

    answers: float
    hidden: float
    """Cost of requests that the client does not see, after the proxy has answered tool calls itself."""
    summaries: float
    memory: float
    proof: float
    """Cost of second answers, which show whether cuts change the first."""
    spent: float
    """The sum of all costs."""
    without: float
    """What sending the whole conversations would have cost, if they fitted the window."""
    saved: float
    """`without` minus `spent`, for requests whose whole conversation would have fitted."""
    shadow: float
    """What shadow requests would have saved, without deducting the cost of summaries."""


class BillReport(Shape):
    """What requests took and cost."""

    requests: int
    tokens: TokenCounts
    dollars: DollarAmounts | None
    """Null if no price is known."""
    would_have_failed: int
    """Requests whose whole conversation would not have fitted the model's window."""
    price_unknown: int
    """Requests, and the proxy's own calls, whose price is unknown; their costs are missing."""
    estimated: int
    """Requests whose answer had no `usage`, so that the proxy counted their tokens."""
    epochs: int
    summaries_failed: dict[str, int]
    """Numbers of failed summaries by reason."""
    tool_calls_answered: int

    @classmethod
    def of(cls, bill: Bill, **members: object) -> Self:
        """Return the report of a bill, with further members."""
        dollars = {kind: getattr(bill, kind) / NANO for kind in DollarAmounts.model_fields}
        return cls.from_object(
            bill,
            tokens=bill,
            dollars=dollars if bill.is_priced else None,
            would_have_failed=bill.failing,
            price_unknown=bill.unpriced,
            summaries_failed=bill.failed,
            tool_calls_answered=bill.tool_calls,
            **members,
        )


class StatsRow(BillReport):
    """The bill of an hour, a day, a model or a session."""

    key: str
    """The start of the hour, the day, the model's name, or the session's id."""
    name: str | None
    """For a session, the name that a client sends as `X-Unabridged-Session`."""


class PairCounts(Shape):
    """Comparisons of answers with second answers to the same requests."""

    compared: int
    agree: Interval | None
    """The share of them that agree; null if there are none."""
    likeness: list[int]
    """Numbers of comparisons by likeness in steps of a tenth, the least alike first."""


class CutMessages(Shape):
    """Messages that were cut, cleared or clipped."""

    kind: str
    retention: str
    messages: int


class ProofRow(Shape):
    """Evidence about the cuts of a policy in conversations with a model."""

    policy: str
    model: str
    whole: PairCounts
    """Comparisons with second answers to the whole history."""
    control: PairCounts
    """Comparisons with second answers to the same view."""
    difference: Interval | None
    """By how much more often the model agrees with itself; null until both kinds were compared."""
    unproven: dict[Unproven, int]
    """Numbers of answers that were chosen but not compared, by reason."""
    dollars: float
    """Cost of the second answers."""
    tokens: int
    cut: list[CutMessages]
    missed: list[Missed]

    @classmethod
    def of(cls, policy: str, model: str, evidence: Evidence) -> ProofRow:
        pairs = {
            arm.value: PairCounts(
                compared=evidence.pairs(arm),
                agree=evidence.agreement(arm),
                likeness=evidence.likeness(arm),
            )
            for arm in Arm
        }
        cuts = sorted(evidence.cut.items())
        return cls(
            policy=policy,
            model=model,
            **pairs,
            difference=evidence.difference,
            unproven={why: evidence.unproven[why] for why in Unproven if evidence.unproven[why]},
            dollars=evidence.dollars,
            tokens=evidence.tokens,
            cut=[CutMessages(kind=kind, retention=of, messages=number) for (kind, of), number in cuts],
            missed=evidence.missed,
        )


class StatsReport(Shape):
    """What requests took and cost in a period."""

    since: str
    """Start of the first hour, UTC."""
    by: Literal["hour", "day", "model", "session"]
    total: BillReport
    """The bill of all hours since then."""
    rows: list[StatsRow]
    """The rows; by session, those used since then, each with the bill of its whole life."""
    proof: list[ProofRow]
    """Evidence about cuts since then."""


class BilledSession(SessionReport):
    """A session as its latest turn left it, and its bill."""

    bill: BillReport
    """The bill of the session's whole life."""


@dataclass(frozen=True)
class StatsOperations:
    """The operation on bills in the admin API."""

    stats: Stats

    @operation("GET", "/stats", _SINCE, _BY)
    async def bills(self, request: Request, body: NoBody) -> StatsReport:
        """Read what requests took and cost, and what cuts did to answers."""
        asked = request.query_params.get("since", _USUAL)
        by = request.query_params.get("by", "day")
        if by not in get_args(By):
            raise InvalidType("`by` must be hour, day, model or session.", param="by")
        try:
            duration = cast("float", seconds(asked))
        except ValueError:
            raise InvalidType("`since` must be a duration such as 24h or 7d.", param="since") from None
        if duration > KEPT_HOURS * HOUR:
            raise InvalidValue(
                f"`since` is at most {KEPT_HOURS // 24}d: older bills are not kept.", param="since"
            )
        since, total, rows = await self.stats.since(duration, cast("By", by))
        return StatsReport(
            since=time(since),
            by=cast("By", by),
            total=BillReport.of(total),
            rows=[StatsRow.of(each.bill, key=each.key, name=each.name or None) for each in rows],
            proof=[ProofRow.of(*each) for each in await self.stats.evidence(duration)],
        )
