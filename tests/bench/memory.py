"""What memory costs, and what it brings back: scores, retrieval, compression, talks across sessions.

    make bench-memory DATA="locomo.jsonl.gz realpersonachat.jsonl.gz aider.jsonl.gz"

Sessions with questions are talks in dated parts. Of these a model that writes by rule notes each line in its
own words, so that what is measured is how memory is read. Of any other sessions a small real model compresses
passages. Aims are those of the project's design; the process ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from proxy.adapters.search import SqliteSearch
from proxy.core.memory.lifecycle import rescored
from proxy.core.memory.records import Item
from proxy.engine.memory.scope_cache import CachedScope
from tests.bench.memory_compression import SAVED, by_real_model, is_model_here, put_away
from tests.bench.memory_talks import Outcome, Recorded, Talk, ask_across_sessions, has_questions, talk_of
from tests.bench.recall import sessions
from tests.support.memories import DAY, NOW, an_item
from tests.support.memory_world import Writer

AIM = 0.80
"""Of the evidence, how much is told at a session's start or by one search."""
WORDS = "harbour bridge crane ferry tower market garden library station museum mill orchard".split()


def items_of(count: int, length: int = 1) -> dict[str, Item]:
    """Items that differ, each as many sentences long."""
    texts = (
        " ".join(
            f"The {WORDS[number % 12]} of the {WORDS[number // 12 % 12]} has number {number + 7 * each}."
            for each in range(length)
        )
        for number in range(count)
    )
    return {item.id: item for item in (an_item(text) for text in texts)}


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The CPU time of a piece of work, the median of several times."""
    taken: list[float] = []
    for _ in range(times):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return statistics.median(taken)


def row(what: str, measured: float, aim: float, unit: str = "ms") -> bool:
    """Tell what was measured beside its aim; whether it is reached."""
    print(f"| {what} | {measured:,.2f} {unit} | {aim:,g} {unit} | {'yes' if measured <= aim else '**no**'} |")
    return measured <= aim


def scoring() -> bool:
    """Scores anew, of a thousand items and of one."""
    items = [*items_of(1_000).values()]
    many = seconds(lambda: [rescored(item, NOW + 9 * DAY, 0.3) for item in items])
    one = seconds(lambda: [rescored(items[0], NOW + 9 * DAY, 0.3) for _ in range(1_000)])
    return row("scores of 1,000 items", many * 1e3, 50.0) & row("score of one item", one, 0.1)


async def retrieval() -> bool:
    """The CPU time of a search of ten thousand items, the first and later ones."""
    copy, search, taken = CachedScope(items=items_of(10_000)), SqliteSearch(), list[float]()
    for number in range(21):
        before = time.process_time()
        await search.search("memory", copy.passages, f"number of the mill by the ferry {number * 411}", 100)
        taken.append(time.process_time() - before)
    await search.aclose()
    print(f"| the first search of 10,000 items in a process | {taken[0] * 1e3:,.0f} ms | | |")
    return row("a later search of 10,000 items", statistics.median(taken[1:]) * 1e3, 20.0)


async def compression() -> bool:
    """One item and a hundred, around a model that takes a second for each."""
    reached, writer = True, Writer(seconds=1.0)
    for count, most in ((1, 2.0), (100, 200.0)):
        records, taken = await put_away(writer, items_of(count, length=8))
        assert len(records) >= count
        reached &= row(f"{count} compressed by a model that takes 1 s", taken, most, "s")
    print(f"| compressed at a time | {writer.most_at_once} | 8 | |")
    return reached


async def real_compression(files: Mapping[str, Recorded]) -> bool:
    """Passages of recorded conversations, by the small real model."""
    if not is_model_here():
        print("\nThe small model is not installed (`make demo` installs it): nothing is compressed by it.")
        return False
    print("\n| passages of | items | by the model | otherwise | it saved | all saved | aim | reached | s |")
    print("|---" * 9 + "|")
    reached = True
    for name, recorded in files.items():
        compressed = await by_real_model(recorded)
        print(compressed.row(name), flush=True)
        reached &= compressed.saved > SAVED
    return reached


def told(outcome: Outcome, writer: Writer) -> bool:
    """Tell what talks came to; whether the aim is reached."""
    print("\n| found by | evidence | tokens | ms |\n|---|---|---|---|")
    print(outcome.plain.row("plain words over the messages"))
    print(outcome.plain_twice.row("the same, with twice the tokens"))
    print(outcome.injected.row("told at the session's start"))
    print(outcome.searched.row("one search, which leaves out what was told"))
    print(outcome.either.row("either"))
    asked, said = len(outcome.either.shares), outcome.said_tokens
    print(
        f"\n{asked} questions of {outcome.sessions} sessions, {said:,} tokens said, {outcome.items:,} items."
    )
    print(
        f"Written with {writer.calls} calls, {writer.prompt_tokens:,} tokens in, {writer.answer_tokens:,} out"
        f" ({writer.prompt_tokens / said:.1f} and {writer.answer_tokens / said:.1f} for each that was said),"
        f" {outcome.written_seconds / outcome.sessions * 1e3:.0f} ms of CPU a session beside the model."
    )
    return statistics.fmean(outcome.either.shares) >= AIM


async def measure(arguments: argparse.Namespace) -> bool:
    """Print the tables; whether every aim is reached."""
    print("| what | measured | aim | reached |\n|---|---|---|---|")
    reached = scoring() & await retrieval() & await compression()
    data, others = list[Talk](), dict[str, Recorded]()
    for path in arguments.data:
        recorded = [*sessions(path)][: arguments.sessions]
        if has_questions(recorded):
            data += map(talk_of, recorded)
        else:
            others[path.name.partition(".")[0]] = recorded
    if data:
        writer = Writer()
        reached &= told(await ask_across_sessions(data, writer), writer)
    if others:
        reached &= await real_compression(others)
    return reached


def main() -> None:
    """Ends with 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="*", type=Path, default=[], help="files of recorded sessions")
    parser.add_argument("--sessions", type=int, help="only the first so many of each")
    logging.disable(logging.CRITICAL)
    sys.exit(0 if asyncio.run(measure(parser.parse_args())) else 1)


if __name__ == "__main__":
    main()
