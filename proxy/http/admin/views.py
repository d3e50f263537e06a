"""Sessions in the shapes of the admin API. Pure, and for a long session much: run it in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.core.conversation.extension import Injection
from proxy.core.conversation.records import Node
from proxy.core.formats.json import loads
from proxy.core.planning.explain import explain
from proxy.core.planning.plan import Epoch, Verb
from proxy.engine.admin.inspection import Inspected, Inspection, NewestExchange
from proxy.engine.state import State, Summarised, spoken
from proxy.http.admin import memory_schemas, schemas
from proxy.http.admin.schemas import time


def session(found: Inspected, cycle: NewestExchange | None = None) -> schemas.SessionTold:
    """A session; with its newest exchange where that is given."""
    record = found.session
    summarised = Summarised.of(found.epochs)
    blocked: Any = record.blocked or None
    return schemas.SessionTold(
        id=found.id,
        name=record.name,
        began_with=record.began_with or None,
        stage=record.stage,
        tokens=record.tokens,
        full_tokens=record.full_tokens,
        budget=record.budget or None,
        window=record.window or None,
        window_from=record.window_from,
        model=record.model,
        policy=record.policy,
        shadow=record.is_shadow,
        blocked=blocked,
        turns=record.turns,
        exchanges=record.exchanges,
        prune_count=sum(epoch.asked is not Verb.RESTORE for epoch in found.epochs),
        summary_bytes=summarised.bytes,
        llm_compressions=summarised.written,
        current_cycle=cycle and schemas.Cycle.model_validate(cycle),
        epochs=[epoch(each) for each in found.epochs],
        created=time(record.created),
        updated=time(record.updated),
    )


def epoch(begun: Epoch) -> schemas.EpochTold:
    """An epoch without its plan."""
    return schemas.EpochTold.model_validate(begun)


def transcript(found: Inspected, numbered: Sequence[tuple[int | None, Node]]) -> schemas.Transcript:
    """A branch, message by message."""
    updated = time(found.session.updated)
    head = [
        schemas.Entry(number=None, message=loads(raw), at=updated, tokens=None, answer=False, complete=True)
        for raw in found.session.head
    ]
    entries = [
        schemas.Entry(
            number=number,
            message=loads(node.raw),
            at=time(node.at),
            tokens=node.tokens,
            answer=node.answer,
            complete=node.complete,
        )
        for number, node in numbered
    ]
    tip = numbered[-1][1].hash.hex() if numbered else ""
    return schemas.Transcript(id=found.id, tip=tip, messages=[*head, *entries])


def view(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> schemas.View:
    """What the model gets of a branch."""
    situation, in_force = inspection.situation(found, branch)
    budget = situation.budget
    return schemas.View(
        id=found.id,
        tip=tip(branch),
        epoch=in_force.number if in_force else 0,
        tokens=budget.real(budget.head + situation.view),
        budget=budget.tokens,
        messages=[loads(raw) for raw in inspection.view(found, situation, in_force, injection)],
    )


def explanation(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> schemas.Explanation:
    """Why the view of a branch looks as it does."""
    record, (situation, in_force) = found.session, inspection.situation(found, branch)
    budget, stages = situation.budget, situation.policy.stages
    return schemas.Explanation(
        id=found.id,
        policy=situation.policy.name,
        policy_by=record.chosen_by if situation.policy.name == record.policy else "",
        stage=inspection.stage(situation),
        usage=round(budget.usage(situation.view), 4),
        tokens=budget.real(budget.head + situation.view),
        full_tokens=budget.real(budget.head + situation.chain.tokens.total),
        budget=budget.tokens,
        window=budget.window.tokens,
        window_from=budget.window.source.value,
        ratio=budget.ratio,
        head_tokens=budget.head,
        stages=stages.model_dump(),
        lacking=budget.real(record.lacking),
        injected=len(injection.messages(situation.chain.dialect)) if injection else 0,
        pins=situation.pinned,
        epochs=[epoch(each) for each in found.epochs],
        missing_summaries=[
            schemas.MissingSummary(gap=each.gap, why=each.why)
            for each in inspection.missing(found, situation, in_force)
        ],
        units=explain(situation),
    )


def tools(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> schemas.ToolResults:
    """The tool results that are fresh at the end of a branch."""
    record = found.session
    arrivals = {node.hash: node.at for node in branch}
    results: list[schemas.ToolResult] = []
    for fresh in inspection.fresh(record, branch, found.upstream_messages, injection=injection):
        try:
            parameters = loads(fresh.arguments or "{}")
        except ValueError:
            parameters = fresh.arguments
        result = schemas.ToolResult(
            tool_name=fresh.tool,
            parameters=parameters,
            result=fresh.text,
            result_bytes=fresh.result_bytes,
            remaining_duration=fresh.remaining,
            original_duration=fresh.duration,
            call_id=fresh.call_id,
            cached_at=time(arrivals.get(fresh.place, record.created)),
            hits=fresh.hits,
        )
        results.append(result)
    policy = inspection.policy_of(record).name
    return schemas.ToolResults(id=found.id, tip=tip(branch), policy=policy, tools=results)


def state(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> memory_schemas.StateTold:
    """What a session stands at, as the log of a request tells it."""
    situation, in_force = inspection.situation(found, branch)
    view = inspection.view(found, situation, in_force, injection)
    now = State(
        id=found.id,
        session=found.session.name,
        exchanges=found.session.exchanges,
        summarised=Summarised.of(found.epochs),
        functions=[*inspection.fresh(found.session, branch, found.upstream_messages, injection=injection)],
        messages=spoken(view, situation.chain.dialect),
    )
    return memory_schemas.StateTold(
        session=now.session,
        exchanges=now.exchanges,
        summary_bytes=now.summarised.bytes,
        llm_compressions=now.summarised.written,
        functions=[
            memory_schemas.CachedFunction(
                name=each.tool,
                arguments=each.arguments,
                remaining_exchanges=each.remaining,
                cache_exchanges=each.duration,
            )
            for each in now.functions
        ],
        messages=[memory_schemas.Received(role=role, text=text) for role, text in now.messages],
        lines=now.lines(with_content=True),
    )


def tip(branch: Sequence[Node]) -> str:
    """The chain hash of a branch's last message."""
    return branch[-1].hash.hex() if branch else ""
