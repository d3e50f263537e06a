"""All that is kept of a session, byte for byte: what `unabridged replay` takes, and people keep."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, AliasPath, Field

from proxy.core.formats.json import loads
from proxy.engine.admin.inspection import Branch, Everything
from proxy.http.admin.schemas import EpochReport, Exact, Hash, SessionReport, Shape, Time, exact


class ExportedMessage(Shape):
    """A message of the tree, exactly."""

    hash: Hash
    """Names the message at its place: of it, and of all before it."""
    parent: Hash
    sequence: int
    at: Time
    answer: bool
    complete: bool
    tokens: int
    original: Exact = Field(validation_alias=AliasChoices("original", "raw"))
    """The message's own JSON, byte for byte."""


class ExportedHidden(Shape):
    """What stands upstream for an answer in which the proxy has answered calls itself."""

    hash: Hash
    """The answer's hash in the tree."""
    at: Time
    tokens: int
    messages: list[Exact]
    """Calls, results and text, byte for byte."""


class ExportedSummary(Shape):
    """What a note says of messages `start` up to and without `end`."""

    start: int
    end: int
    text: str


class ExportedGap(Shape):
    """Messages `start` up to and without `end`, cut, and the literal note in their place."""

    start: int
    end: int
    note: Exact
    summaries: list[ExportedSummary] = Field(validation_alias=AliasChoices("summaries", "anchors"))
    quotes: list[str]


class ExportedClip(Shape):
    """A message that goes out clipped, literally."""

    position: int
    clipped: Exact = Field(validation_alias=AliasChoices("clipped", "raw"))


class ExportedEpoch(EpochReport):
    """An epoch with its whole plan."""

    parent: str
    reach: Hash
    """Hash of the message at which it comes into force."""
    depth: int
    budget: int
    ratio: float
    cut: list[ExportedGap] = Field(validation_alias=AliasChoices("cut", AliasPath("plan", "gaps")))
    clipped: list[ExportedClip] = Field(
        validation_alias=AliasChoices("clipped", AliasPath("plan", "replacements"))
    )
    without_reasoning: list[int]
    """Positions of messages that go out without their signed reasoning."""


class Export(Shape):
    """All that is kept of a session. `id` and `messages` make it a line that `unabridged replay` takes."""

    id: str
    format: Literal["unabridged session 1"]
    exported: Time
    session: SessionReport
    head: list[Exact]
    """The system messages of the latest turn, byte for byte."""
    tip: str
    messages: list[Any]
    """The head, and the branch of the tip."""
    tree: list[ExportedMessage]
    injected: Any
    """What was handed in for the session, as it may be handed in again; null where nothing was."""
    remembered: str
    """What it was told of earlier conversations when it began; empty where it was told nothing."""
    pins: list[Hash]
    """Hashes of the messages that the client has pinned."""
    hidden: list[ExportedHidden]
    epochs: dict[str, list[ExportedEpoch]]
    """By lane: model, policy and explicit budget. All of them, whichever tip they are in force for."""


def export(branch: Branch, session: SessionReport, everything: Everything, now: str) -> Export:
    """All of a session, whose newest branch this is."""
    found, injection = branch.found, branch.injection
    injected = injection.handed_in if injection else None
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
