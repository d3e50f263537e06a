"""What the demo looks like: a live table on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from proxy.cli.demo.conversation import Refusal, TurnSeen
from proxy.cli.terminal import bar, one_line, percent, stage_marks, stage_text, table, words
from proxy.core.policy_sections import Stages

_MARKS = stage_marks(Stages().model_dump())
_COLUMNS = (">turn", ">conversation", ">sent", "stage", ">epoch", ">cached", "sent of the budget", "answer")
_ANSWER = 48  # characters
_BAR = 30
_BELOW = 16
"""Lines that a screen needs beside the rows of its table."""


class Picture(AbstractContextManager["Picture"], Protocol):
    """Something to look at while the demo runs."""

    def title(self, text: str) -> None:
        """A new part begins."""
        ...

    def writing(self, question: str, answer: str) -> None:
        """The answer so far."""
        ...

    def answered(self, turn: TurnSeen) -> None:
        """A turn is over."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """A turn was refused."""
        ...

    def remark(self, text: str) -> None:
        """What is going on between turns."""
        ...

    def summary(self, text: str) -> None:
        """What stands in the view for what was cut, since this epoch; empty where there is no summary."""
        ...


class Lines(Picture):
    """One line a turn."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def title(self, text: str) -> None:
        self._console.print(f"\n{text}")

    def writing(self, question: str, answer: str) -> None:
        """Lines tell of whole turns."""

    def answered(self, turn: TurnSeen) -> None:
        self._console.print(Text("  ").join(cell for cell in _told(turn) if cell))

    def refused(self, refusal: Refusal) -> None:
        self._console.print(_refusal(refusal))

    def remark(self, text: str) -> None:
        """Lines tell of whole turns."""

    def summary(self, text: str) -> None:
        if text:
            self._console.print(text)


def _told(turn: TurnSeen) -> list[Text]:
    if not turn.headers:
        return [Text(f"turn {turn.number}: {turn.prompt_tokens} tokens sent"), _answer(turn.answer)]
    size = f"turn {turn.number}: {words(turn.tokens('full'))} tokens, {turn.tokens('sent')} sent"
    stage = f"{turn.stage} ({percent(turn.usage)}), epoch {turn.epoch}"
    return [Text(size), Text(stage), Text(f"{turn.cached_tokens} cached"), _answer(turn.answer)]


class Screen(Picture):
    """A table that grows, the answer as it is written below it, and the newest summary."""

    def __init__(self, console: Console) -> None:
        self._height = console.height
        self._title, self._remark, self._summary = "", "", ""
        self._turns: list[TurnSeen] = []
        self._refusal: Refusal | None = None
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remark = ""
        self._live.stop()

    def title(self, text: str) -> None:
        if self._title:  # what was shown so far stays above
            self._live.console.print(self._render())
        self._title, self._remark, self._summary = text, "", ""
        self._turns, self._refusal = [], None

    def writing(self, question: str, answer: str) -> None:
        self._remark = f"{one_line(question, 90)}\n→ {one_line(answer, 200)}"

    def answered(self, turn: TurnSeen) -> None:
        self._turns.append(turn)

    def refused(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def remark(self, text: str) -> None:
        self._remark = text

    def summary(self, text: str) -> None:
        self._summary = text

    def _render(self) -> RenderableType:
        return Group(*self._parts())

    def _parts(self) -> Iterator[RenderableType]:
        yield Text(self._title, style="bold")
        shown = self._turns[-max(self._height - _BELOW, 5) :]
        yield table(_COLUMNS, [_cells(turn) for turn in shown])
        if self._refusal is not None:
            yield _refusal(self._refusal)
        elif self._remark:
            yield Text(f"\n{self._remark}", style="dim")
        if self._summary:
            yield Panel(
                Text(one_line(self._summary, 600)), title="in place of what was cut", title_align="left"
            )


def _cells(turn: TurnSeen) -> Sequence[object]:
    cached = f"{words(turn.cached_tokens)} of {words(turn.prompt_tokens)}"
    answer = _answer(turn.answer)
    if not turn.headers:
        return (turn.number, turn.prompt_tokens, turn.prompt_tokens, "", "", cached, "", answer)
    sizes = (turn.tokens("full"), turn.tokens("sent"))
    shown = bar(turn.usage, _MARKS, _BAR).append(f"{percent(turn.usage):>4}")
    return (turn.number, *sizes, stage_text(turn.stage), turn.epoch, cached, shown, answer)


def _answer(text: str) -> Text:
    return Text(one_line(text, _ANSWER), style="dim")


def _refusal(refusal: Refusal) -> Text:
    return Text(f"turn {refusal.number}: refused. {refusal.message}", style="bold red")
