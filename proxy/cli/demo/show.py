"""The demo from beginning to end: the conversation without the proxy and with it, and what it came to.

A line tells of each turn, and below the lines a terminal shows how full the budget is and what is going on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from proxy.cli.client import AdminApi
from proxy.cli.demo.children import Proxy, running_model, running_proxy
from proxy.cli.demo.conversation import QUESTIONS, Refusal, TurnSeen, converse
from proxy.cli.process import sigterm_interrupts
from proxy.cli.terminal import (
    CommandError,
    bar,
    notes,
    percent,
    print_json,
    show,
    stage_marks,
    stage_text,
    words,
)
from proxy.core.budget.budget import Stage
from proxy.core.policy.sections import Stages
from proxy.core.text.words import one_line

_WINDOW = 1024
"""Tokens of the model's window."""
_READING = 20.0
"""Seconds that a reader takes for an answer, at most: time in which a summary can be written."""
_GLANCE = 0.1
_MARKS = stage_marks(Stages().model_dump())


class Picture:
    """What there is to look at while the demo runs; a live one shows what is going on, too."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, refresh_per_second=8) if is_live else None
        self._budget = Text()

    def shown(self) -> AbstractContextManager[object]:
        """Within, it follows what happens."""
        return self._live or nullcontext()

    def title(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", style="bold"))

    def answered(self, turn: TurnSeen) -> None:
        line = Text(f"turn {turn.number}: ")
        if turn.headers:
            line.append(f"{words(turn.tokens('full'))} tokens, {turn.tokens('sent')} sent  ")
            line.append_text(stage_text(turn.stage)).append(f" ({percent(turn.usage)}), epoch {turn.epoch}  ")
            line.append(f"{turn.cached_tokens} cached")
            self._budget = bar(turn.usage, _MARKS).append(f"{percent(turn.usage):>4} of the budget")
        else:
            line.append(f"{turn.prompt_tokens} tokens sent")
        self._console.print(line.append(f"  {one_line(turn.answer, 48)}", style="dim"))

    def refused(self, refusal: Refusal) -> None:
        self._console.print(Text(f"turn {refusal.number}: refused. {refusal.message}", style="bold red"))

    def summary(self, text: str) -> None:
        """What stands in the view for what was cut, since this epoch."""
        self._console.print(Text(one_line(text, 600), style="cyan"))

    def remark(self, text: str) -> None:
        """What is going on."""
        if self._live:
            self._live.update(Group("", self._budget, Text(text, style="dim")))


def show_all(turns: int | None, *, as_json: bool) -> int:
    """Run the demo, of so many turns. Raises CommandError where the proxied conversation fails."""
    questions = QUESTIONS[: None if turns is None else max(turns, 1)]
    console, began = notes(), time.monotonic()
    picture = Picture(console, is_live=console.is_terminal and not as_json)
    with sigterm_interrupts(), TemporaryDirectory(prefix="unabridged-demo-") as name:
        directory = Path(name)
        with (
            running_model(directory, _WINDOW) as url,
            running_proxy(directory, url) as proxy,
            picture.shown(),
        ):
            picture.title(f"Without the proxy: base_url {url}, a model with a window of {_WINDOW:,} tokens")
            refusal = converse_directly(url, questions, picture)
            picture.title(f"The same conversation with it: base_url {proxy.base_url}, nothing else changed")
            seen, summaries = converse_through(proxy, questions, picture)
    seconds = time.monotonic() - began
    if as_json:
        outcome = {
            "window": _WINDOW,
            "refusal": asdict(refusal) if refusal else None,
            "tokens": seen[-1].tokens("full"),
            "turns": [asdict(turn) for turn in seen],
            "summaries": summaries,
            "seconds": round(seconds, 1),
        }
        print_json(outcome)
    else:
        show("", *conclusion(refusal, seen, len(summaries), seconds))
    return 0


def _talk(base_url: str, questions: Sequence[str], picture: Picture) -> Iterator[TurnSeen | Refusal]:
    def writing(question: str, answer: str) -> None:
        picture.remark(f"{one_line(question, 90)}\n→ {one_line(answer, 200)}")

    return converse(base_url, questions, writing)


def converse_directly(base_url: str, questions: Sequence[str], picture: Picture) -> Refusal | None:
    """Talk to the model itself until it refuses; None where the conversation ends before."""
    for seen in _talk(base_url, questions, picture):
        if isinstance(seen, Refusal):
            picture.refused(seen)
            return seen
        picture.answered(seen)
    return None


def converse_through(
    proxy: Proxy, questions: Sequence[str], picture: Picture, reading: float = _READING
) -> tuple[list[TurnSeen], list[str]]:
    """Talk through the proxy; gives the turns and the summaries that appeared. Raises CommandError.

    `reading` is how long an answer is read, at most, in seconds: the proxy has its summary written meanwhile.
    """
    turns: list[TurnSeen] = []
    summaries: list[str] = []
    settled = 0
    """Summaries written, or given up, when the newest epoch began."""
    for seen in _talk(proxy.base_url, questions, picture):
        if isinstance(seen, Refusal):
            picture.refused(seen)
            raise CommandError(f"turn {seen.number} was refused through the proxy: {seen.message}")
        if turns and seen.epoch != turns[-1].epoch:
            settled, summary = _settled(proxy), _summary(proxy)
            if summary and summary not in summaries:
                summaries.append(summary)
                picture.summary(summary)
        turns.append(seen)
        picture.answered(seen)
        if seen.stage == Stage.TRIM:
            picture.remark("reading the answer … meanwhile the model summarises what will be cut next")
            deadline = time.monotonic() + reading
            while _settled(proxy) == settled and time.monotonic() < deadline:
                time.sleep(_GLANCE)
    return turns, summaries


def _settled(proxy: Proxy) -> int:
    """How many summaries have been written, or given up."""
    headers = {"Authorization": f"Bearer {proxy.token}"}
    answered = httpx2.get(f"{proxy.server}/metrics", headers=headers, timeout=10, trust_env=False)
    counted = (line for line in answered.text.splitlines() if line.startswith("unabridged_summaries_total{"))
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


def _summary(proxy: Proxy) -> str:
    """What the view of the newest session has in place of messages; empty where there is no summary."""
    api = AdminApi(proxy.server, proxy.token)
    views = [api.session(session["id"], "view") for session in api.sessions(1)["sessions"]]
    texts = (str(message.get("content")) for view in views for message in view["messages"])
    return "\n".join(line for text in texts for line in text.splitlines() if line.startswith("Summary of"))


def conclusion(
    refusal: Refusal | None, turns: Sequence[TurnSeen], summaries: int, seconds: float
) -> list[str]:
    """What it came to."""
    sent, full = (sum(turn.tokens(kind) for turn in turns) for kind in ("sent", "full"))
    cached, prompt = (sum(turn.cached_tokens for turn in turns), sum(turn.prompt_tokens for turn in turns))
    refused = f"refused turn {refusal.number}" if refusal else "refused no turn"
    tokens = turns[-1].tokens("full")
    size = f"{tokens:,} tokens, {tokens / _WINDOW:.1f} times the window"
    answered = f"With it, all {len(turns)} turns were answered"
    epochs = f"in {turns[-1].epoch} epochs, with {summaries} {'summary' if summaries == 1 else 'summaries'}"
    return [
        f"Without the proxy the model {refused}. {answered}: {size}.",
        f"Sent were {percent(sent / max(full, 1))} of all tokens, {epochs}.",
        f"{percent(cached / max(prompt, 1))} of what was sent came from the model's cache.",
        f"{seconds:.0f} s, with a model of 135 million parameters: mind what is kept, not its prose.",
    ]
