"""What requests took and cost: bills as the admin API answers them, and the operation that adds them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from pydantic import AliasChoices, Field
from starlette.requests import Request

from proxy.core.economics.bill import NANO, Bill
from proxy.core.policy.values import seconds
from proxy.core.proof.evidence import Arm, Evidence, Interval, Signal, Unproven
from proxy.engine.admin.stats import By, Stats
from proxy.errors import InvalidType
from proxy.http.admin.api import Operation, Query, Table
from proxy.http.admin.schemas import NoBody, SessionReport, Shape, time

_USUAL = "7d"
_SINCE = Query("since", f"For how long back, at most 90d: 24h, 7d; {_USUAL} if absent.", "string")
_BY = Query("by", "What a row is of: hour, day, model or session; day if absent.", "string")
_TABLE = Table()


class TokenCounts(Shape):
    """Tokens of requests and of their answers, as their upstream counted them."""

    received: int
    """Of the whole conversations."""
    sent: int
    cached: int
    """Of those sent: from the provider's cache."""
    cache_writes: int = Field(validation_alias=AliasChoices("cache_writes", "written"))
    """Of those sent: billed as written to it."""
    output: int
    shadow_cut: int
    """Of those sent: would not have been sent, but for shadow mode."""


class DollarAmounts(Shape):
    """Money by the price list."""

    answers: float
    hidden: float
    """For further requests of an answer, after the proxy had answered tool calls itself."""
    summaries: float
    memory: float
    proof: float
    """For second answers, which tell whether cuts change the first."""
    spent: float
    """All of these."""
    without: float
    """What sending the whole conversations would have cost, where they would have fitted."""
    saved: float
    """`without` less `spent`, for the requests whose whole conversation would have fitted."""
    shadow: float
    """What would have been saved in shadow mode, before the cost of summaries."""


class BillReport(Shape):
    """What requests took and cost."""

    requests: int
    tokens: TokenCounts
    dollars: DollarAmounts | None
    """Null where nobody knows a price of any of it."""
    would_have_failed: int
    """Requests whose whole conversation would not have fitted the model's window."""
    price_unknown: int
    """Requests, and calls of the proxy's own, whose price is unknown: they are missing in the dollars."""
    estimated: int
    """Requests whose answer had no `usage`: their tokens are counted by the proxy."""
    epochs: int
    summaries_failed: dict[str, int]
    """By the reason."""
    tool_calls_answered: int


class StatsRow(BillReport):
    """The bill of an hour, a day, a model or a session."""

    key: str
    """The hour's time, the day, the model's name or the session's id."""
    name: str | None
    """What a client sends as `X-Unabridged-Session`, of a session."""


class IntervalReport(Shape):
    """A share, or a difference of shares, and between what it lies with a confidence of 95 %."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval | None) -> IntervalReport | None:
        """An interval as the API tells it."""
        return None if interval is None else cls.model_validate(interval._asdict())


class PairCounts(Shape):
    """Answers, and second ones to the same requests."""

    compared: int
    agree: IntervalReport | None
    """The share of them that say the same; null of none."""
    likeness: list[int]
    """How many are how alike, in tenths, those least alike first."""


class MissedMessages(Shape):
    """How often messages of one kind were asked for again."""

    kind: str
    """Who said them: user, assistant, system, or result, of a tool."""
    retention: str
    """Their retention class."""
    signal: Signal
    """recalled, rerun, reread, said_again, or used: an exact string of one was in a second answer alone."""
    cut: int
    """While they were cut, cleared or clipped."""
    shown: int
    """While they stood in the view."""


class CutMessages(Shape):
    """Messages that were cut, cleared or clipped."""

    kind: str
    retention: str
    messages: int


class ProofRow(Shape):
    """What was found out about the cuts of a policy in conversations with a model."""

    policy: str
    model: str
    whole: PairCounts
    """Second answers to the whole history."""
    control: PairCounts
    """Second answers to the same view."""
    difference: IntervalReport | None
    """By how much a model agrees more with itself; null where one of both was not compared yet."""
    unproven: dict[Unproven, int]
    """Answers that were chosen and not compared, by the reason."""
    dollars: float
    """For second answers."""
    tokens: int
    cut: list[CutMessages]
    missed: list[MissedMessages]

    @classmethod
    def of(cls, policy: str, model: str, evidence: Evidence) -> ProofRow:
        """Evidence as the API tells it."""
        pairs = {
            arm.value: PairCounts(
                compared=evidence.pairs(arm),
                agree=IntervalReport.of(evidence.agreement(arm)),
                likeness=evidence.likeness(arm),
            )
            for arm in Arm
        }
        cuts = sorted(evidence.cut.items())
        return cls(
            policy=policy,
            model=model,
            **pairs,
            difference=IntervalReport.of(evidence.difference),
            unproven={why: evidence.unproven[why] for why in Unproven if evidence.unproven[why]},
            dollars=evidence.dollars,
            tokens=evidence.tokens,
            cut=[CutMessages(kind=kind, retention=of, messages=number) for (kind, of), number in cuts],
            missed=[MissedMessages.model_validate(each._asdict()) for each in evidence.missed],
        )


class StatsReport(Shape):
    """What requests took and cost over a time."""

    since: str
    """Beginning of the first hour, UTC."""
    by: Literal["hour", "day", "model", "session"]
    total: BillReport
    """Of all hours since then."""
    rows: list[StatsRow]
    """Of sessions: those that were used since then, each with the bill of all its life."""
    proof: list[ProofRow]
    """What was found out about cuts since then."""


class BilledSession(SessionReport):
    """A session as its latest turn left it, and its bill."""

    bill: BillReport
    """Of all its life."""


def members(bill: Bill) -> dict[str, Any]:
    """The members of a bill."""
    dollars = {kind: getattr(bill, kind) / NANO for kind in DollarAmounts.model_fields}
    return {
        "requests": bill.requests,
        "tokens": TokenCounts.model_validate(bill),
        "dollars": DollarAmounts(**dollars) if bill.is_priced else None,
        "would_have_failed": bill.failing,
        "price_unknown": bill.unpriced,
        "estimated": bill.estimated,
        "epochs": bill.epochs,
        "summaries_failed": dict(bill.failed),
        "tool_calls_answered": bill.tool_calls,
    }


@dataclass(frozen=True)
class StatsOperations:
    """Bills for people and scripts."""

    stats: Stats

    def operations(self) -> list[Operation]:
        """The one operation."""
        return _TABLE.of(self)

    @_TABLE.operation("GET", "/stats", _SINCE, _BY)
    async def bills(self, request: Request, body: NoBody) -> StatsReport:
        """What requests took and cost, and what cuts did to answers."""
        asked = request.query_params.get("since", _USUAL)
        by = request.query_params.get("by", "day")
        if by not in get_args(By):
            raise InvalidType("`by` must be hour, day, model or session.", param="by")
        try:
            duration = cast("float", seconds(asked))
        except ValueError as error:
            raise InvalidType(f"`since` {error}.", param="since") from None
        since, total, rows = await self.stats.since(duration, cast("By", by))
        return StatsReport(
            since=time(since),
            by=cast("By", by),
            total=BillReport(**members(total)),
            rows=[StatsRow(key=each.key, name=each.name or None, **members(each.bill)) for each in rows],
            proof=[ProofRow.of(*each) for each in await self.stats.evidence(duration)],
        )
