"""The export of a session: everything that is stored of it, byte for byte; `unabridged replay` reads it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, AliasPath, Field

from proxy.core.formats.json import loads
from proxy.engine.admin.inspection import Branch, Everything
from proxy.http.admin.schemas import EpochReport, Exact, Hash, SessionReport, Shape, Time, exact


class ExportedMessage(Shape):
    """A message of the session's tree, byte for byte."""

    hash: Hash
    """Chain hash: identifies the message together with all messages before it."""
    parent: Hash
    sequence: int
    at: Time
    answer: bool
    complete: bool
    tokens: int
    original: Exact = Field(validation_alias=AliasChoices("original", "raw"))
    """The JSON of the message, byte for byte."""


class ExportedHidden(Shape):
    """The messages sent upstream in place of an answer in which the proxy answered tool calls itself."""

    hash: Hash
    """Chain hash of the answer."""
    at: Time
    tokens: int
    messages: list[Exact]
    """The messages with calls, results and text, byte for byte."""


class ExportedSummary(Shape):
    """The summary of messages `start` to `end` (exclusive) in a note."""

    start: int
    end: int
    text: str


class ExportedGap(Shape):
    """The cut messages `start` to `end` (exclusive), and the literal note in their place."""

    start: int
    end: int
    note: Exact
    summaries: list[ExportedSummary] = Field(validation_alias=AliasChoices("summaries", "anchors"))
    quotes: list[str]


class ExportedClip(Shape):
    """A message that is sent clipped or cleared, literally."""

    position: int
    clipped: Exact = Field(validation_alias=AliasChoices("clipped", "raw"))


class ExportedEpoch(EpochReport):
    """An epoch with its complete plan."""

    parent: str
    reach: Hash
    """Chain hash of the last message that the epoch edits; it applies to chains with that message."""
    depth: int
    budget: int
    ratio: float
    cut: list[ExportedGap] = Field(validation_alias=AliasChoices("cut", AliasPath("plan", "gaps")))
    clipped: list[ExportedClip] = Field(
        validation_alias=AliasChoices("clipped", AliasPath("plan", "replacements"))
    )
    without_reasoning: list[int]
    """Positions of messages that are sent without their signed reasoning."""


class Export(Shape):
    """Everything that is stored of a session. `unabridged replay` reads its `id` and `messages`."""

    id: str
    format: Literal["unabridged session 1"]
    exported: Time
    session: SessionReport
    head: list[Exact]
    """The system messages of the latest turn, byte for byte."""
    tip: str
    messages: list[Any]
    """The head and the messages of the session's branch."""
    tree: list[ExportedMessage]
    injected: Any
    """The session's injection, in the form in which it can be handed in again; null if it has none."""
    remembered: str
    """The memory briefing with which the session began; empty if it had none."""
    pins: list[Hash]
    """Chain hashes of the messages that the client has pinned."""
    hidden: list[ExportedHidden]
    epochs: dict[str, list[ExportedEpoch]]
    """All epochs by lane (model, policy and requested budget), including those of other branches."""


def export(branch: Branch, session: SessionReport, everything: Everything, now: str) -> Export:
    """Return the export of a session, given its newest branch."""
    found, injection = branch.found, branch.injection
    injected = injection.injected if injection else None
    return Export(
        id=found.id,
        format="unabridged session 1",
        exported=now,
        session=session,
        head=[exact(raw) for raw in found.session.head],
        tip=branch.tip,
        messages=[loads(raw) for raw in (*found.session.head, *(node.raw for node in branch.nodes))],
        tree=[ExportedMessage.model_validate(node) for node in everything.nodes],
        injected=injected and loads(injected.raw),
        remembered=injection.memory if injection else "",
        pins=[pin.hex() for pin in found.session.pins],
        hidden=[ExportedHidden.model_validate(each) for each in found.hidden.values()],
        epochs={
            lane: [ExportedEpoch.model_validate(each) for each in epochs]
            for lane, epochs in everything.epochs.items()
        },
    )
