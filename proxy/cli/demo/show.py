"""The demo from beginning to end: the conversation without the proxy and with it, and what it came to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openai import APIError

from proxy.cli.demo.children import Proxy, running_model, running_proxy
from proxy.cli.demo.conversation import Conversation, Onlooker, Refusal, TurnSeen
from proxy.cli.demo.picture import Lines, Picture, Screen
from proxy.cli.demo.script import QUESTIONS
from proxy.cli.interruption import sigterm_interrupts
from proxy.cli.terminal import CommandError, notes, percent, print_json
from proxy.cli.terminal import show as print_for_people
from proxy.core.budget import Stage

WINDOW = 1024
"""Tokens of the model's window."""
READING = 20.0
"""Seconds that a reader takes for an answer, at most: time in which a summary can be written."""
_GLANCE = 0.1


@dataclass(frozen=True)
class Outcome:
    """What there was to see."""

    window: int
    refusal: Refusal | None
    """Without the proxy; None where the conversation ended before the window did."""
    turns: Sequence[TurnSeen]
    """Through the proxy."""
    summaries: Sequence[str]
    seconds: float

    @property
    def tokens(self) -> int:
        """Of the whole conversation, at its last turn."""
        return self.turns[-1].tokens("full") if self.turns else 0


def show_all(turns: int | None, *, as_json: bool) -> int:
    """Run the demo, of so many turns. Raises CommandError where the proxied conversation fails."""
    questions = QUESTIONS[: None if turns is None else max(turns, 1)]
    console = notes()
    with sigterm_interrupts(), TemporaryDirectory(prefix="unabridged-demo-") as directory:
        picture = Screen(console) if console.is_terminal and not as_json else Lines(console)
        outcome = _play(questions, Path(directory), picture)
    if as_json:
        print_json(_as_json(outcome))
    else:
        print_for_people("", *_conclusion(outcome))
    return 0


def _play(questions: Sequence[str], directory: Path, picture: Picture) -> Outcome:
    began = time.monotonic()
    with running_model(directory, WINDOW) as upstream, running_proxy(directory, upstream) as proxy, picture:
        picture.title(f"Without the proxy: base_url {upstream}, a model with a window of {WINDOW:,} tokens")
        refusal = converse_directly(upstream, questions, picture)
        picture.title(f"The same conversation with it: base_url {proxy.base_url}, nothing else changed")
        turns, summaries = converse(proxy, questions, picture)
    return Outcome(WINDOW, refusal, turns, summaries, time.monotonic() - began)


def converse_directly(base_url: str, questions: Sequence[str], picture: Picture) -> Refusal | None:
    """Talk to the model itself until it refuses."""
    with closing(Conversation(base_url)) as conversation:
        for question in questions:
            seen = _ask(conversation, question, picture)
            if isinstance(seen, Refusal):
                picture.refused(seen)
                return seen
            picture.answered(seen)
    return None


def converse(
    proxy: Proxy, questions: Sequence[str], picture: Picture, reading: float = READING
) -> tuple[list[TurnSeen], list[str]]:
    """Talk through the proxy; gives the turns and the summaries that appeared. Raises CommandError.

    `reading` is how long an answer is read, at most, in seconds.
    """
    turns: list[TurnSeen] = []
    summaries: list[str] = []
    settled = 0
    """Summaries written, or given up, when the newest epoch began."""
    with ExitStack() as stack:
        conversation = stack.enter_context(closing(Conversation(proxy.base_url)))
        onlooker = stack.enter_context(closing(Onlooker(proxy)))
        for question in questions:
            seen = _ask(conversation, question, picture)
            if isinstance(seen, Refusal):
                picture.refused(seen)
                raise CommandError(f"turn {seen.number} was refused through the proxy: {seen.message}")
            if turns and seen.epoch != turns[-1].epoch:
                settled = onlooker.summaries()
                _show_summary(onlooker, picture, summaries)
            turns.append(seen)
            picture.answered(seen)
            if seen.stage == Stage.TRIM:
                _read_answer(onlooker, picture, settled, reading)
    return turns, summaries


def _ask(conversation: Conversation, question: str, picture: Picture) -> TurnSeen | Refusal:
    try:
        return conversation.ask(question, lambda answer: picture.writing(question, answer))
    except APIError as error:
        raise CommandError(f"turn {conversation.turns} failed: {error}") from error


def _show_summary(onlooker: Onlooker, picture: Picture, shown: list[str]) -> None:
    summary = onlooker.summary()
    if summary in shown:
        return
    if summary:
        shown.append(summary)
    picture.summary(summary)


def _read_answer(onlooker: Onlooker, picture: Picture, settled: int, reading: float) -> None:
    """Take a moment, as a reader does before the next message: the proxy has its summary written then."""
    picture.remark("reading the answer … meanwhile the model summarises what will be cut next")
    deadline = time.monotonic() + reading
    while onlooker.summaries() == settled and time.monotonic() < deadline:
        time.sleep(_GLANCE)


def _conclusion(outcome: Outcome) -> list[str]:
    turns = outcome.turns
    sent, full = (sum(turn.tokens(kind) for turn in turns) for kind in ("sent", "full"))
    cached, prompt = (sum(turn.cached_tokens for turn in turns), sum(turn.prompt_tokens for turn in turns))
    refused = f"refused turn {outcome.refusal.number}" if outcome.refusal else "refused no turn"
    answered = f"With it, all {len(turns)} turns were answered"
    size = f"{outcome.tokens:,} tokens, {outcome.tokens / outcome.window:.1f} times the window"
    count = len(outcome.summaries)
    epochs = f"in {turns[-1].epoch} epochs, with {count} {'summary' if count == 1 else 'summaries'}"
    return [
        f"Without the proxy the model {refused}. {answered}: {size}.",
        f"Sent were {percent(sent / max(full, 1))} of all tokens, {epochs}.",
        f"{percent(cached / max(prompt, 1))} of what was sent came from the model's cache.",
        f"{outcome.seconds:.0f} s, with a model of 135 million parameters: mind what is kept, not its prose.",
    ]


def _as_json(outcome: Outcome) -> dict[str, Any]:
    direct = asdict(outcome.refusal) if outcome.refusal else None
    return {
        "window": outcome.window,
        "refusal": direct,
        "tokens": outcome.tokens,
        "turns": [asdict(turn) for turn in outcome.turns],
        "summaries": list(outcome.summaries),
        "seconds": round(outcome.seconds, 1),
    }
