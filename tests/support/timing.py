"""How the work of a function grows with what it is given: a ratio, since machines differ."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIES = 4
"""How often each is timed; the least counts."""
TOO_SHORT = 0.0005
"""Seconds of CPU under which a work counts as so long: a clock and a scheduler say nothing about less."""

Work = Callable[[], object]


def growth(prepared: Callable[[int], Work], few: int, many: int) -> float:
    """How many times the CPU of the work with `few` the work with `many` takes.

    `prepared` makes the work, untimed. The tries alternate, so that a slow moment of the machine meets
    both; the garbage collector rests, or the longer one would pay for what other tests left.
    """
    short: list[float] = []
    long: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(TRIES):
            short.append(max(TOO_SHORT, _cpu(prepared(few))))
            long.append(_cpu(prepared(many)))
    finally:
        gc.enable()
    return min(long) / min(short)


def _cpu(work: Work) -> float:
    """Seconds of CPU of this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
