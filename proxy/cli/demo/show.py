"""The whole demo: one conversation in three columns, and what is left of its beginning at the end.

A row tells of each turn, and below the rows a terminal shows what is being said.
"""

from __future__ import annotations

import re
import time
import webbrowser
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proxy.cli.client import AdminApi
from proxy.cli.demo.children import SUMMARY_FROM, Proxy, running_model, running_proxy
from proxy.cli.demo.conversation import CODE, FORBIDDEN, QUESTIONS, TALK, Client, Refusal, says
from proxy.cli.terminal import CommandError, notes, print_json, show, stage_text, words
from proxy.core.text.cutting import one_line

WINDOW = 768
"""Tokens of the model's window."""
COLUMNS = ("Without the proxy", "Oldest messages dropped", "With Unabridged")
_READING = 15.0
"""Most seconds that a reader takes for an answer; meanwhile a summary can be written."""
_GLANCE = 0.1
_IDLE = 3.0
"""Seconds without work after which the model has no summary to write: the proxy may begin one after two."""


class Picture:
    """The output while the demo runs; on a terminal it also shows answers as they arrive."""

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, refresh_per_second=8) if is_live else None

    def shown(self) -> AbstractContextManager[object]:
        return self._live or nullcontext()

    def say(self, text: str) -> None:
        self._console.print(Text(text, style="bold"))

    def note(self, text: str) -> None:
        """Show a note: what replaces cut messages in the view."""
        self._console.print(Text("\n".join(one_line(line, 600) for line in text.splitlines()), style="cyan"))

    def row(self, *cells: Text) -> None:
        self._console.print(_columns(cells))

    def answering(self, cells: Sequence[Text], answer: str) -> None:
        """Show the answer that is arriving in the next column."""
        if self._live:
            newest = Text(one_line(answer, 60), style="dim")
            self._live.update(Group("", _columns([*cells, newest, *[Text()] * (2 - len(cells))])))


def _columns(cells: Sequence[Text]) -> Table:
    grid = Table.grid(padding=(0, 2), expand=True)
    for _ in COLUMNS:
        grid.add_column(ratio=1)
    grid.add_row(*cells)
    return grid


@dataclass
class DemoResult:
    """The result of the demo."""

    clients: Sequence[Client]
    notes: list[str] = field(default_factory=list[str])
    """The notes in the view, epoch by epoch."""
    digests: int = 0
    """Number of the model's summaries that were rejected, so that extracts made by code replaced them."""
    view: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The messages that the model got in the last turn, through the proxy."""
    session: str = ""


def show_all(turns: int | None, *, as_json: bool, opens: bool) -> int:
    """Run the demo with so many `turns` before the questions. Raises CommandError if it fails."""
    talk = TALK[: None if turns is None else max(turns, 2)]
    console, began = notes(), time.monotonic()
    picture = Picture(console, is_live=console.is_terminal and not as_json)
    with TemporaryDirectory(prefix="unabridged-demo-") as name, ExitStack() as parts:
        url = parts.enter_context(running_model(Path(name), WINDOW))
        proxy = parts.enter_context(running_proxy(Path(name), url))
        with picture.shown():
            picture.say(
                f"A model with a window of {WINDOW:,} tokens, and three clients that ask it the same."
            )
            result = converse(url, proxy, [*talk, *QUESTIONS], picture)
        seconds = time.monotonic() - began
        if as_json:
            names = ("direct", "oldest_first", "unabridged")
            columns = {
                name: {"turns": [*map(asdict, each.turns)], "refusal": each.refusal and asdict(each.refusal)}
                for name, each in zip(names, result.clients, strict=True)
            }
            print_json(
                {
                    "window": WINDOW,
                    "columns": columns,
                    "notes": result.notes,
                    "digests": result.digests,
                    "view": result.view,
                    "session": result.session,
                    "seconds": round(seconds, 1),
                }
            )
            return 0
        show("", *conclusion(result, seconds))
        if opens or console.is_terminal:
            page = f"{proxy.server}/unabridged/sessions/{result.session}?token={proxy.token}"
            show("", f"The session's page, until Ctrl+C ends all of it: {page}", wraps=False)
            if opens:
                webbrowser.open(page)
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)
    return 0


def converse(
    url: str, proxy: Proxy, questions: Sequence[str], picture: Picture, reading: float = _READING
) -> DemoResult:
    """Hold the conversation three times, turn by turn. Raises CommandError where the proxied one is refused.

    `reading` is how long an answer is read, at most, in seconds: a summary is written meanwhile.
    """
    with ExitStack() as opened:
        addresses = ((url, False), (url, True), (proxy.base_url, False))
        clients = [opened.enter_context(closing(Client(base, forgets=each))) for base, each in addresses]
        result, api = DemoResult(clients), AdminApi(proxy.server, proxy.token)
        picture.row(*(Text(name, style="bold") for name in COLUMNS))
        epoch = "0"
        for number, question in enumerate(questions, 1):
            picture.say(f"\n{number}. {question}")
            cells: list[Text] = []
            for client in clients:
                cells.append(_turn(client, question, picture, cells))
            picture.row(*cells)
            if (refusal := clients[-1].refusal) is not None:
                raise CommandError(f"turn {number} was refused through the proxy: {refusal.message}")
            turn = clients[-1].turns[-1]
            if turn.epoch != epoch:
                epoch = turn.epoch
                _see(result, api, proxy, picture)
            if turn.usage >= SUMMARY_FROM:
                _read(url, reading)
        _see(result, api, proxy, None)
    return result


def _read(url: str, seconds: float) -> None:
    """Take so many seconds at most for an answer: a summary may be on its way, until the model is idle."""
    idle_since = began = time.monotonic()
    while (now := time.monotonic()) < min(began + seconds, idle_since + _IDLE):
        time.sleep(_GLANCE)
        slots = httpx2.get(url.removesuffix("/v1") + "/slots", timeout=10, trust_env=False).json()
        if any(slot["is_processing"] for slot in slots):
            idle_since = now


def _turn(client: Client, question: str, picture: Picture, before: Sequence[Text]) -> Text:
    if client.refusal is not None:
        return Text("refused", style="red")
    turn = client.ask(question, lambda answer: picture.answering(before, answer))
    if isinstance(turn, Refusal):
        return Text(f"refused: {turn.message}", style="bold red")
    cell = Text(f"{turn.prompt_tokens} tokens, {turn.cached_tokens} cached")
    if turn.forgotten:
        cell.append(f", {turn.forgotten} messages dropped", style="yellow")
    if turn.headers:
        cell.append(" ").append_text(stage_text(turn.stage))
        cell.append(f" {turn.usage:.0%}" + (f", epoch {turn.epoch}" if turn.epoch != "0" else ""))
    return cell.append(f"\n{one_line(turn.answer, 120)}", style="dim")


def _see(result: DemoResult, api: AdminApi, proxy: Proxy, picture: Picture | None) -> None:
    """Read the view as it is now, and show its new notes."""
    result.session = str(api.sessions(1)["sessions"][0]["id"])
    result.view = api.session(result.session, "view")["messages"]
    # The metrics count the summaries that extracts have replaced.
    headers = {"Authorization": f"Bearer {proxy.token}"}
    answered = httpx2.get(f"{proxy.server}/metrics", headers=headers, timeout=10, trust_env=False)
    found = re.search(r'^unabridged_summaries_total\{result="digest"\} (\d+)', answered.text, re.MULTILINE)
    result.digests = int(found[1]) if found else 0
    result.notes += [
        text
        for each in result.view
        if (text := str(each.get("content"))).startswith("<note ") and text not in result.notes
    ]
    if picture is not None and result.notes:
        picture.note(result.notes[-1])


# --- what it came to ---


def conclusion(result: DemoResult, seconds: float) -> list[Text]:
    """Return the conclusion: what each column still has of the beginning, and the cost of that."""
    direct, forgetful, ours = result.clients
    at_end = (
        f"refused turn {direct.refusal.number}, and all after it" if direct.refusal else "refused no turn"
    )
    lines = [Text(f"{COLUMNS[0]} the model {at_end}.")]
    for name, client, got in (
        (COLUMNS[1], forgetful, [dict(each) for each in forgetful.messages]),
        (COLUMNS[2], ours, result.view),
    ):
        lines.append(Text(f"{name}:"))
        for what, turn in zip((CODE, FORBIDDEN), client.turns[-len(QUESTIONS) :], strict=True):
            kept = (
                Text("  kept      ", style="green") if says(got, what) else Text("  forgotten ", style="red")
            )
            lines.append(
                kept.append(f"“{what}”; the model answered: {one_line(turn.answer, 90)}", style="default")
            )
    sent, full = (sum(turn.tokens(kind) for turn in ours.turns) for kind in ("sent", "full"))
    summaries = sum("\nSummary of " in note for note in result.notes)
    by_code = f", {result.digests} by code, as the model's was not true" if result.digests else ""
    last = ours.turns[-1]
    tokens = f"{len(ours.turns)} turns, {words(last.tokens('full'))} tokens, in {last.epoch} epochs"
    share = f"sent were {sent / max(full, 1):.0%} of all tokens"
    lines += [
        Text(f"{tokens} with {summaries} summaries{by_code}; {share}."),
        Text(f"{seconds:.0f} s, with a model of 135 million parameters: mind what is kept, not its prose."),
    ]
    return lines
