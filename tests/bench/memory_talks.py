"""Talks whose dated parts are sessions of one person, and questions about them asked in new sessions.

What is told at a new session's start, and what one search brings back, is held against the messages that a
question's evidence is in: of each, a line that was told must have most of the words. Beside it stand plain
words: the messages of the talk themselves, ranked by words and as many as the same tokens hold.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxy.adapters.search import SqliteSearch
from proxy.core.text.words import share, words_of
from proxy.ports import Passage
from tests.support.memory_world import MemoryWorld, Writer, memory_world
from tests.support.upstreams import COUNTER, Message

SEARCHED = 1_000
"""Tokens that one search may bring back."""
_MOST_WORDS = 0.6
"""Of the words of a message, how many a line has in which it stands."""
KEPT = '[store]\nttl = "400d"'
"""By default a session lives for thirty days after its last turn; these talks go on for months."""
_PERSON = re.compile(r"The user is (\w+)")
_PART = re.compile(r"^\[Session \d+, (.+?)\]")


@dataclass
class Talk:
    """A recorded conversation in its dated parts."""

    person: str
    messages: Sequence[Message]
    parts: Sequence[Sequence[Message]]
    questions: Sequence[Mapping[str, Any]]


Recorded = Sequence[Mapping[str, Any]]
"""The sessions of a file."""


def has_questions(recorded: Recorded) -> bool:
    """Whether people have written questions about them."""
    return any(probe["type"] == "qa" for session in recorded for probe in session["probes"])


def talk_of(session: Mapping[str, Any]) -> Talk:
    """A recorded session in its parts, each of which begins with its date."""
    parts: list[list[Message]] = []
    for message in session["messages"]:
        if message["role"] == "system":
            continue
        if _PART.match(message["content"]):
            parts.append([])
        parts[-1].append(message)
    person = _PERSON.search(session["messages"][0]["content"])
    return Talk(person[1] if person else "user", session["messages"], parts, session["probes"])


def began(part: Sequence[Message]) -> float:
    """When a part of a talk began, in seconds since 1970."""
    match = _PART.match(part[0]["content"])
    assert match is not None
    return datetime.strptime(match[1], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp()


@dataclass
class Found:
    """What was found by one way of asking."""

    shares: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])

    def add(self, told: str, evidence: Sequence[str], seconds: float = 0.0) -> None:
        """Count what was told for a question."""
        self.shares.append(statistics.fmean(stands_in(told, each) for each in evidence))
        self.tokens.append(COUNTER.count(told))
        self.seconds.append(seconds)

    def row(self, name: str) -> str:
        milliseconds = statistics.median(self.seconds) * 1e3
        return (
            f"| {name} | {statistics.fmean(self.shares):.3f} | {statistics.fmean(self.tokens):,.0f} |"
            f" {milliseconds:.1f} |"
        )


def stands_in(told: str, message: str) -> bool:
    """Whether a line of what was told has most of a message's words."""
    words = words_of(message)
    if not words:
        return message in told
    return any(share(words, words_of(line)) >= _MOST_WORDS for line in told.splitlines())


@dataclass
class Outcome:
    """What talks came to."""

    plain: Found = field(default_factory=Found)
    plain_twice: Found = field(default_factory=Found)
    injected: Found = field(default_factory=Found)
    searched: Found = field(default_factory=Found)
    either: Found = field(default_factory=Found)
    sessions: int = 0
    said_tokens: int = 0
    written_seconds: float = 0.0
    items: int = 0


async def ask_across_sessions(data: Sequence[Talk], writer: Writer, rules: str = KEPT) -> Outcome:
    """Have each talk remembered part by part, then ask its questions."""
    outcome = Outcome()
    for talk in data:
        with tempfile.TemporaryDirectory() as directory:
            async with memory_world(writer, Path(directory), rules) as world:
                await _remember(world, talk, outcome)
                await _ask(world, talk, outcome)
    return outcome


async def _remember(world: MemoryWorld, talk: Talk, outcome: Outcome) -> None:
    for number, part in enumerate(talk.parts):
        world.clock.time = began(part)
        before = time.process_time()
        await world.converse(f"part {number}", talk.person, part)
        outcome.written_seconds += time.process_time() - before
        outcome.sessions += 1
        outcome.said_tokens += sum(COUNTER.count(message["content"]) for message in part)
    world.clock.time += 86_400.0


async def _ask(world: MemoryWorld, talk: Talk, outcome: Outcome) -> None:
    search = SqliteSearch()
    said = [message["content"] for message in talk.messages]
    passages = [Passage(str(place).encode(), lambda text=text: text) for place, text in enumerate(said)]
    for number, probe in enumerate(talk.questions):
        question, evidence = probe["question"], [said[each] for each in probe["evidence_message_indexes"]]
        ranked = [said[place] for place in await search.search("plain", passages, question, 200)]
        outcome.plain.add(_fitting(ranked, SEARCHED), evidence)
        outcome.plain_twice.add(_fitting(ranked, 2 * SEARCHED), evidence)
        asked: list[Message] = [{"role": "user", "content": question}]
        before = time.perf_counter()
        request = await world.request(f"question {number}", talk.person, asked)
        between = time.perf_counter()
        injected = world.told(request)
        outcome.injected.add(injected, evidence, between - before)
        recalled = await world.recalled(request, question, SEARCHED)
        outcome.searched.add(recalled, evidence, time.perf_counter() - between)
        outcome.either.add(f"{injected}\n{recalled}", evidence)
        await world.settled()
    request = await world.request("the last", talk.person, [{"role": "user", "content": "Hello"}])
    outcome.items += len((await world.scope(request)).items)
    await search.aclose()


def _fitting(lines: Sequence[str], room: int) -> str:
    kept: list[str] = []
    for line in lines:
        room -= 1 + COUNTER.count(line)
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)
