"""What retention classes do to the order in which an epoch cuts: some units first, some only together.

Disposable units go before all others, whatever they score. Batch-compressible units that stand side by side
are one thing: a strategy has reached them when it has reached all of them, and then all of them go.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from proxy.core.policy_sections import RetentionClass
from proxy.core.situation import FREE, Situation

NOTICE_TOKENS = 60
"""Counted tokens of a notice, about."""


def cut_order(situation: Situation, order: Sequence[int]) -> Iterator[Sequence[int]]:
    """A strategy's order of units as batches that go together."""
    together = batches(situation)
    awaited = {batch: set(batch) for batch in together.values()}
    for index in order:
        batch = together.get(index)
        if batch is None:
            yield (index,)
            continue
        awaited[batch].discard(index)
        if not awaited[batch]:
            yield batch


def batches(situation: Situation) -> dict[int, tuple[int, ...]]:
    """By unit the runs of unprotected batch-compressible units that stand side by side."""
    runs = map(tuple, _runs(_free_of(situation, "batch_compressible")))
    return {index: run for run in runs for index in run}


def disposable(situation: Situation) -> list[int]:
    """Disposable units that may go, oldest first, but for runs that are no larger than a note about them."""
    runs = _runs(_free_of(situation, "disposable"))
    return [index for run in runs if _is_worth_a_note(situation, run) for index in run]


def _is_worth_a_note(situation: Situation, run: Sequence[int]) -> bool:
    before, after = situation.units[run[0]].start - 1, situation.units[run[-1]].end
    has_note = situation.plan.covers(before) or situation.plan.covers(after)
    return has_note or sum(map(situation.size, run)) > NOTICE_TOKENS


def _free_of(situation: Situation, wanted: RetentionClass) -> Iterator[int]:
    """Standing units of a class that nothing protects."""
    free = (index for index in situation.standing if situation.protection[index] == FREE)
    return (index for index in free if situation.classes.of(index) == wanted)


def _runs(indexes: Iterable[int]) -> Iterator[list[int]]:
    """Units in ascending order, split into those that stand side by side."""
    numbered = enumerate(indexes)
    for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0]):
        yield [index for _, index in run]
