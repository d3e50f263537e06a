"""Sessions in the shapes of the admin API. Pure, and for a long session much: run it in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from proxy.core.conversation.injection import Injection
from proxy.core.conversation.records import HiddenCalls, Node
from proxy.core.formats.json import loads
from proxy.core.planning.explain import explain
from proxy.core.planning.plan import Epoch, Gap, Verb
from proxy.core.tool_cache.cache import Fresh
from proxy.engine.admin.inspection import Cycle, Everything, Inspected, Inspection
from proxy.http.admin import schemas as shapes


def session(found: Inspected, cycle: Cycle | None = None) -> shapes.SessionTold:
    """A session; with its newest exchange where that is given."""
    kept = found.session
    written = (anchor for epoch in found.epochs for anchor in epoch.plan.anchors if not anchor.by_code)
    standing = found.epochs[-1].plan.anchors if found.epochs else ()
    blocked: Any = kept.blocked or None
    newest = cycle and shapes.Cycle(
        user_question=cycle.user_question,
        agent_messages=cycle.agent_messages,
        final_answer=cycle.final_answer,
    )
    return shapes.SessionTold(
        id=found.id,
        name=kept.name,
        began_with=kept.began_with or None,
        stage=kept.stage,
        tokens=kept.tokens,
        full_tokens=kept.full_tokens,
        budget=kept.budget or None,
        window=kept.window or None,
        window_from=kept.window_from,
        model=kept.model,
        policy=kept.policy,
        blocked=blocked,
        turns=kept.turns,
        exchanges=kept.exchanges,
        prune_count=sum(epoch.asked is not Verb.RESTORE for epoch in found.epochs),
        summary_bytes=sum(len(anchor.text.encode(errors="replace")) for anchor in standing),
        llm_compressions=len({anchor.text for anchor in written}),
        current_cycle=newest,
        epochs=[epoch(each) for each in found.epochs],
        created=time(kept.created),
        updated=time(kept.updated),
    )


def epoch(begun: Epoch) -> shapes.EpochTold:
    """An epoch without its plan."""
    return shapes.EpochTold(**_epoch(begun))


def _epoch(begun: Epoch) -> dict[str, Any]:
    return {
        "id": begun.id,
        "number": begun.number,
        "at": time(begun.at),
        "stage": begun.stage,
        "original_count": begun.original_count,
        "original_tokens": begun.original_tokens,
        "final_count": begun.final_count,
        "final_tokens": begun.final_tokens,
        "removed_count": begun.removed_count,
        "removed_tokens": begun.removed_tokens,
        "emergency_mode": begun.emergency_mode,
        "asked": begun.asked or None,
        "reason": begun.reason,
    }


def transcript(found: Inspected, numbered: Sequence[tuple[int | None, Node]]) -> shapes.Transcript:
    """A branch, message by message."""
    kept = found.session
    head = [_entry(None, raw, kept.updated, None) for raw in kept.head]
    told = [
        _entry(number, node.raw, node.at, node.tokens, answer=node.answer, complete=node.complete)
        for number, node in numbered
    ]
    tip = numbered[-1][1].hash.hex() if numbered else ""
    return shapes.Transcript(id=found.id, tip=tip, messages=[*head, *told])


def _entry(
    number: int | None,
    raw: bytes,
    at: float,
    tokens: int | None,
    *,
    answer: bool = False,
    complete: bool = True,
) -> shapes.Entry:
    return shapes.Entry(
        number=number, message=loads(raw), at=time(at), tokens=tokens, answer=answer, complete=complete
    )


def view(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> shapes.View:
    """What the model gets of a branch."""
    situation, in_force = inspection.situation(found, branch)
    budget = situation.budget
    return shapes.View(
        id=found.id,
        tip=_tip(branch),
        epoch=in_force.number if in_force else 0,
        tokens=budget.real(budget.head + situation.view),
        budget=budget.tokens,
        messages=[loads(raw) for raw in inspection.view(found, situation, injection)],
    )


def explanation(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> shapes.Explanation:
    """Why the view of a branch looks as it does."""
    kept, (situation, _) = found.session, inspection.situation(found, branch)
    budget, stages = situation.budget, situation.policy.stages
    return shapes.Explanation(
        id=found.id,
        policy=situation.policy.name,
        policy_by=kept.chosen_by if situation.policy.name == kept.policy else "",
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
        injected=len(injection.messages(situation.chain.dialect)) if injection else 0,
        pins=situation.pinned,
        epochs=[epoch(each) for each in found.epochs],
        units=explain(situation),
    )


def tools(
    inspection: Inspection, found: Inspected, branch: Sequence[Node], injection: Injection | None
) -> shapes.ToolResults:
    """The tool results that are fresh at the end of a branch."""
    kept = found.session
    arrivals = {node.hash: node.at for node in branch}
    return shapes.ToolResults(
        id=found.id,
        tip=_tip(branch),
        policy=inspection.policy_of(kept).name,
        tools=[
            _tool_result(each, arrivals.get(each.place, kept.created))
            for each in inspection.fresh(kept, branch, found.said_in_place, injection=injection)
        ],
    )


def _tool_result(fresh: Fresh, at: float) -> shapes.ToolResult:
    try:
        parameters = loads(fresh.arguments or "{}")
    except ValueError:
        parameters = fresh.arguments
    return shapes.ToolResult(
        tool_name=fresh.tool,
        parameters=parameters,
        result=fresh.text,
        result_bytes=fresh.result_bytes,
        remaining_duration=fresh.remaining,
        original_duration=fresh.duration,
        call_id=fresh.call_id,
        cached_at=time(at),
        hits=fresh.hits,
    )


def export(
    found: Inspected, branch: Sequence[Node], cycle: Cycle | None, everything: Everything, now: float
) -> shapes.Export:
    """All of a session; ``branch`` is that of its default tip, with its newest exchange."""
    head = found.session.head
    return shapes.Export(
        id=found.id,
        format="unabridged session 1",
        exported=time(now),
        session=session(found, cycle),
        head=[_exact(raw) for raw in head],
        tip=_tip(branch),
        messages=[loads(raw) for raw in (*head, *(node.raw for node in branch))],
        tree=[_kept_message(node) for node in everything.nodes],
        injected=everything.injection and loads(everything.injection.raw),
        pins=[pin.hex() for pin in found.session.pins],
        hidden=[_kept_hidden(each) for each in found.hidden.values()],
        epochs={lane: [_kept_epoch(each) for each in epochs] for lane, epochs in everything.epochs.items()},
    )


def _kept_message(node: Node) -> shapes.KeptMessage:
    return shapes.KeptMessage(
        hash=node.hash.hex(),
        parent=node.parent.hex(),
        sequence=node.sequence,
        at=time(node.at),
        answer=node.answer,
        complete=node.complete,
        tokens=node.tokens,
        original=_exact(node.raw),
    )


def _kept_hidden(hidden: HiddenCalls) -> shapes.KeptHidden:
    return shapes.KeptHidden(
        hash=hidden.hash.hex(),
        at=time(hidden.at),
        tokens=hidden.tokens,
        messages=[_exact(raw) for raw in hidden.messages],
    )


def _kept_epoch(begun: Epoch) -> shapes.KeptEpoch:
    clipped = begun.plan.replacements
    return shapes.KeptEpoch(
        **_epoch(begun),
        parent=begun.parent,
        reach=begun.reach.hex(),
        depth=begun.depth,
        budget=begun.budget,
        ratio=begun.ratio,
        cut=[_kept_gap(gap) for gap in begun.plan.gaps],
        clipped=[shapes.KeptClip(position=each.position, clipped=_exact(each.raw)) for each in clipped],
    )


def _kept_gap(gap: Gap) -> shapes.KeptGap:
    summaries = [shapes.KeptSummary(start=each.start, end=each.end, text=each.text) for each in gap.anchors]
    return shapes.KeptGap(
        start=gap.start, end=gap.end, note=_exact(gap.note), summaries=summaries, quotes=list(gap.quotes)
    )


def _tip(branch: Sequence[Node]) -> str:
    return branch[-1].hash.hex() if branch else ""


def _exact(raw: bytes) -> str:
    """Bytes as a text from which the same bytes can be had."""
    return raw.decode(errors="surrogateescape")


def time(seconds: float) -> str:
    """A time as the API writes it: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
