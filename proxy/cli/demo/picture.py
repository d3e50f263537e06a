"""What the demo looks like: a live table on a terminal, a line a turn everywhere else."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from proxy.cli.demo.conversation import Refusal, TurnSeen
from proxy.cli.terminal import bar, percent, stage_marks, stage_text, table, words
from proxy.core.policy.sections import Stages
from proxy.core.text.words import one_line

_MARKS = stage_marks(Stages().model_dump())
_COLUMNS = (">turn", ">conversation", ">sent", "stage", ">epoch", ">cached", "sent of the budget", "answer")
_ANSWER = 48  # characters
_BAR = 30
_BELOW = 16
"""Lines that a screen needs beside the rows of its table."""


class Picture:
    """Something to look at while the demo runs."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console, self._is_live = console, is_live
        self._title, self._summary = "", ""
        self._turns: list[TurnSeen] = []
        self._remark = Text()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Within, a live picture follows what it is told."""
        if not self._is_live:
            yield
            return
        with Live(console=self._console, get_renderable=lambda: Group(*self._parts()), refresh_per_second=8):
            try:
                yield
            finally:
                self._remark = Text()

    def title(self, text: str) -> None:
        """A new part begins; what was shown so far stays above."""
        if self._title and self._is_live:
            self._console.print(*self._parts(), sep="\n")
        self._title, self._summary, self._turns, self._remark = text, "", [], Text()
        self._line(f"\n{text}")

    def answered(self, turn: TurnSeen) -> None:
        """A turn is over."""
        self._turns.append(turn)
        answer = Text(one_line(turn.answer, _ANSWER), style="dim")
        if not turn.headers:
            told = [f"turn {turn.number}: {turn.prompt_tokens} tokens sent"]
        else:
            size = f"turn {turn.number}: {words(turn.tokens('full'))} tokens, {turn.tokens('sent')} sent"
            stage = f"{turn.stage} ({percent(turn.usage)}), epoch {turn.epoch}"
            told = [size, stage, f"{turn.cached_tokens} cached"]
        self._line(Text("  ").join(cell for cell in (*map(Text, told), answer) if cell))

    def refused(self, refusal: Refusal) -> None:
        """A turn was refused."""
        self._remark = Text(f"turn {refusal.number}: refused. {refusal.message}", style="bold red")
        self._line(self._remark)

    def summary(self, text: str) -> None:
        """What stands in the view for what was cut, since this epoch; empty where there is no summary."""
        self._summary = text
        if text:
            self._line(text)

    def writing(self, question: str, answer: str) -> None:
        """The answer so far."""
        self.remark(f"{one_line(question, 90)}\n→ {one_line(answer, 200)}")

    def remark(self, text: str) -> None:
        """What is going on; lines tell of whole turns alone."""
        self._remark = Text(f"\n{text}", style="dim")

    def _line(self, line: RenderableType) -> None:
        if not self._is_live:
            self._console.print(line)

    def _parts(self) -> Iterator[RenderableType]:
        yield Text(self._title, style="bold")
        shown = self._turns[-max(self._console.height - _BELOW, 5) :]
        yield table(_COLUMNS, [_cells(turn) for turn in shown])
        if self._remark:
            yield self._remark
        if self._summary:
            summary = Text(one_line(self._summary, 600))
            yield Panel(summary, title="in place of what was cut", title_align="left")


def _cells(turn: TurnSeen) -> Sequence[object]:
    cached = f"{words(turn.cached_tokens)} of {words(turn.prompt_tokens)}"
    answer = Text(one_line(turn.answer, _ANSWER), style="dim")
    if not turn.headers:
        return (turn.number, turn.prompt_tokens, turn.prompt_tokens, "", "", cached, "", answer)
    sizes = (turn.tokens("full"), turn.tokens("sent"))
    shown = bar(turn.usage, _MARKS, _BAR).append(f"{percent(turn.usage):>4}")
    return (turn.number, *sizes, stage_text(turn.stage), turn.epoch, cached, shown, answer)
