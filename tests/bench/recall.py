"""Ask recorded conversations the questions that were written for them, and print what recall brings back.

    make bench-recall DATA=locomo.jsonl.gz ARGS="--search NAME"

A line of the data is a session: `messages`, and `probes` of type `qa`, each with its `question` and the
indexes of the messages that hold its evidence (`evidence_message_indexes`). Everything but the last message
is cut, as if no epoch had kept anything. Recall@5 is the share of the evidence that is in the five passages
of a search.
"""

import argparse
import asyncio
import gzip
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.adapters.plugins import load_plugins
from proxy.adapters.search import SqliteSearch
from proxy.adapters.tokens import TiktokenCounter
from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.conversation.messages import chain_hashes, head_length, read_message, root_hash
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.formats.json import dumps
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Gap, Plan
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Recall as RecallSection
from proxy.core.recall.passages import WINGS, widened
from proxy.core.recall.tool import Wanted
from proxy.engine.answers.recall import Recall, Recaller
from proxy.engine.sessions.session_cache import CachedLane, SessionState
from proxy.ports import SessionKey
from proxy.telemetry import Metrics
from tests.support.requests import a_request

AIM = 0.80
PATIENCE = 3600.0
"""Seconds that a plug-in's search may take: what is measured is whether it helps."""


@dataclass
class Score:
    """What searches of one kind brought back."""

    found: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    seconds: list[float] = field(default_factory=list[float])
    first_seconds: list[float] = field(default_factory=list[float])
    """Of the first search of each session, which makes the index."""

    @property
    def recall(self) -> float:
        return statistics.fmean(self.found)

    def row(self, name: str) -> str:
        later, first = statistics.median(self.seconds) * 1e3, statistics.median(self.first_seconds) * 1e3
        tokens = statistics.fmean(self.tokens)
        return f"| {name} | {self.recall:.3f} | {tokens:,.0f} | {later:.1f} | {first:.0f} |"


def sessions(path: Path) -> Iterator[dict[str, Any]]:
    """The recorded sessions of a file, one a line."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            yield json.loads(line)


def recaller(recall: Recall, session: dict[str, Any], search: str) -> tuple[Recaller, int]:
    """An answerer for a session of which all but the last message is cut, and the length of its head."""
    raws = [dumps(message) for message in session["messages"]]
    read = [read_message(Content.of(raw)) for raw in raws]
    head = head_length([message.role for message in read])
    chain = Chain(
        messages=read[head:],
        raws=raws[head:],
        tokens=Sizes.of([0] * (len(raws) - head)),
        hashes=chain_hashes((message.identity for message in read[head:]), root_hash()),
        dialect=CHAT,
    )
    policy, state = (
        Policy(recall=RecallSection(enabled=True, search=search)),
        SessionState("bench", SessionKey("bench", session["id"]), lane=CachedLane(search)),
    )
    request = a_request(chain, Budget(8000, 1.0, 0), policy=policy, session=state)
    return recall.of(request, Plan(gaps=(Gap(0, len(chain) - 1),))), head


async def ask_all(
    recall: Recall, data: Sequence[dict[str, Any]], search: str, wings: Sequence[int]
) -> dict[int, Score]:
    """Ask every session its questions; a score for each number of neighbours shown."""
    scores = {each: Score() for each in wings}
    for session in data:
        found, head = recaller(recall, session, search)
        probes = [probe for probe in session["probes"] if probe["type"] == "qa"]
        for number, probe in enumerate(probes):
            began = time.perf_counter()
            hits, by = await found.find(Wanted(probe["question"]))
            took = time.perf_counter() - began
            if by != search:
                sys.exit(f"the search {search} did not answer")
            evidence = [index - head for index in probe["evidence_message_indexes"]]
            for each, score in scores.items():
                shown = {piece for hit in hits for piece in widened(found.reach.pieces, hit, each)}
                _add(score, found, shown, evidence, recall)
                (score.seconds if number else score.first_seconds).append(took)
    return scores


def _add(score: Score, found: Recaller, shown: set[int], evidence: list[int], recall: Recall) -> None:
    pieces = [found.reach.pieces[piece] for piece in sorted(shown)]
    places = {piece.position for piece in pieces}
    texts = [found.reach.original(each.position).text[each.start : each.end] for each in pieces]
    score.found.append(sum(place in places for place in evidence) / len(evidence))
    score.tokens.append(sum(map(recall.counter.count, texts)))


async def play(arguments: argparse.Namespace) -> bool:
    """Print the table; whether the aim is reached."""
    data = list(sessions(arguments.data))[: arguments.sessions]
    async with aclosing(SqliteSearch()) as search:
        recall = Recall(search, TiktokenCounter(), Metrics(), CacheMemory(), PATIENCE)
        print("| found by, messages a passage | recall@5 | tokens | ms a search | ms the first |")
        print("|---|---|---|---|---|")
        scores = await ask_all(recall, data, "words", range(WINGS + 1))
        for wings, score in scores.items():
            print(score.row(f"words, {3 + 2 * wings}"))
        best = scores[WINGS].recall
        if arguments.search:
            scores = await ask_all(recall, data, arguments.search, [WINGS])
            print(scores[WINGS].row(f"{arguments.search}, {3 + 2 * WINGS}"))
    print(f"{len(scores[WINGS].found)} questions of {len(data)} sessions")
    return best >= AIM


def main() -> None:
    """Ends with 1 where recall@5 by words is below the aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a .jsonl or .jsonl.gz file")
    parser.add_argument("--sessions", type=int, help="only the first so many")
    parser.add_argument("--search", help="name of a plug-in's search, to ask it too")
    load_plugins()
    sys.exit(0 if asyncio.run(play(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
