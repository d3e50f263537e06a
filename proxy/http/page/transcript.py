"""The transcript beside the view: messages on one side, what the model gets of them and why on the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from proxy.core.planning.explain import Row, cut_by, explain
from proxy.core.planning.plan import Epoch
from proxy.engine.admin.inspection import Branch

_SHOWN = 20_000
"""Most characters of a message that a page shows; the export has all of it."""


@dataclass(frozen=True)
class Message:
    """A message as the page shows it: the model's, a client's, or a note."""

    number: int | None
    """Its number in the transcript; None for a note, and for messages before the transcript."""
    role: str
    name: str
    text: str
    calls: Sequence[tuple[str, str]]
    """Tool calls, as names and arguments."""
    left_out: int = 0
    """Number of characters that are not shown."""
    at: float | None = None
    """Seconds since 1970."""
    tokens: int | None = None
    is_pinned: bool = False
    hidden: Sequence[Message] = ()
    """The messages that the upstream gets in its place, if the proxy answered tool calls itself."""


@dataclass(frozen=True)
class Part:
    """Messages that are kept, edited or cut together, and what the model gets of them."""

    messages: Sequence[Message]
    state: str
    """`kept`, `clipped`, `cleared`, `cut` or `summarised`."""
    rows: Sequence[Row]
    gets: Sequence[Message] = ()
    """What the model gets in their place; empty if they are kept unchanged, or cut without a note."""
    by: Sequence[Epoch | None] = ()
    """For each row of a cut or edited part, the epoch that took it out of the view."""
    gap: int | None = None
    """The index of the gap that contains them."""
    span: tuple[int, int] = (0, 0)
    """The first and the last message of that gap, which may be on other pages."""
    is_noted: bool = False
    """Whether an earlier part on the page already shows the gap's note."""


@dataclass(frozen=True)
class SideBySide:
    """Both sides of a session's branch, a page at a time."""

    branch: Branch

    def parts(self, start: int, end: int) -> list[Part]:
        """Messages from ``start`` up to, but without, ``end``, and others of the same units."""
        plan, epochs = self.branch.situation.plan, self.branch.epochs

        def together(row: Row) -> tuple[int | None, bool, int]:
            """Rows of one gap that a summary covers, or does not, belong together; others stand alone."""
            if row.gap is None:
                return None, False, row.start
            anchors = plan.gaps[row.gap].anchors
            return row.gap, any(each.start <= row.start < each.end for each in anchors), -1

        parts: list[Part] = []
        explained = explain(self.branch.situation, epochs, start, end)
        for (number, is_summarised, _), each in groupby(explained, key=together):
            rows = [*each]
            messages = [*self._messages(rows[0].start, rows[-1].end)]
            if number is None:
                edits = [edit for at in range(rows[0].start, rows[0].end) if (edit := plan.edit_at(at))]
                part = Part(
                    messages=messages,
                    state=rows[0].state,
                    rows=rows,
                    gets=[self.read(edit.raw, edit.position) for edit in edits],
                    by=[cut_by(epochs, edits[0].position)] if edits else (),
                )
            else:
                gap, is_noted = plan.gaps[number], any(part.gap == number for part in parts)
                part = Part(
                    messages=messages,
                    state="summarised" if is_summarised else "cut",
                    rows=rows,
                    gets=[self.read(gap.note)] if gap.note and not is_noted else (),
                    by=[cut_by(epochs, row.start) for row in rows],
                    gap=number,
                    span=(gap.start, gap.end - 1),
                    is_noted=is_noted,
                )
            parts.append(part)
        return parts

    def _messages(self, start: int, end: int) -> Iterator[Message]:
        for number, node in enumerate(self.branch.nodes[start:end], start):
            hidden = self.branch.found.hidden.get(node.hash)
            yield replace(
                self.read(node.raw, number),
                at=node.at,
                tokens=node.tokens,
                is_pinned=node.hash in self.branch.situation.pins,
                hidden=[self.read(raw) for raw in hidden.messages] if hidden else (),
            )

    def read(self, raw: bytes, number: int | None = None) -> Message:
        """Return a message, with its number in the transcript if it has one."""
        content = self.branch.dialect.read(raw)
        text = content.text or content.refusal
        calls = [(name, arguments[:_SHOWN]) for _, name, arguments in content.calls]
        left_out = max(len(text) - _SHOWN, 0)
        return Message(number, content.role, content.name, text[:_SHOWN], calls, left_out)
