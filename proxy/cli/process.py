"""A serving process: its file limit, its memory, its end, and the app of one of several workers.

A worker imports this module alone, and the proxy itself when it is asked for its app: until it answers its
supervisor it must not take long to begin, or it is taken for one that hangs.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from proxy.adapters.files.settings import SettingsFile
from proxy.config import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_ENOUGH = 65_536
"""File descriptors beyond which other limits of a process matter more."""
_GARBAGE = (10_000, 5, 200)
"""New objects before the young ones are looked at; and how many such looks before the older ones are.

One look at 50,000 objects takes some 15 ms, in which nobody else runs.
"""
_MOST_HEAPS = -8
"""`M_ARENA_MAX` of `malloc.h`."""
_GIVE_BACK = 60.0
"""Seconds after which freed memory is given back to the system again."""
_TURN = 0.001
"""Seconds after which a thread that plans or counts gives way to the event loop.

A small chat comes back to the loop some ten times, and waits for its turn at each: with the five milliseconds
that Python gives a thread by itself, a long plan of somebody else's makes it 50 ms slower.
"""


def raise_file_limit() -> None:
    """Raise this process's limit of open files, which its children inherit, as far as it may be raised.

    A stream takes two descriptors, and systems begin with 256 or 1,024 a process.
    """
    if sys.platform == "win32":
        return  # there is none to raise
    import resource  # noqa: PLC0415 - not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(ValueError, OSError):  # macOS allows less than it says; the old limit then stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def share_one_heap() -> None:
    """Have all threads of this process allocate from one heap, before there are others.

    By itself glibc gives each thread a heap of its own, that keeps what the thread has freed: each of them
    grows to the largest piece of work that its thread ever had. As Python lets one thread run at a time they
    seldom wait for each other.
    """
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library, which has no such heaps
            ctypes.CDLL(None).mallopt(_MOST_HEAPS, 1)


def give_memory_back(every: float = _GIVE_BACK) -> None:
    """Have a thread give freed memory back to the system again and again, ``every`` so many seconds.

    By itself glibc only gives back what is free at the end of its heap. What is free between two values that
    are still cached stays with the process, so its resident memory would grow to the largest piece of work
    that it ever had. Looking through a heap of 300 MB takes some 16 ms.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return  # another C library, which gives it back by itself

    def give_back() -> None:
        while True:
            time.sleep(every)
            trim(0)

    Thread(target=give_back, name="memory", daemon=True).start()


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Within, SIGTERM raises KeyboardInterrupt (also where uvicorn raises again what it caught).

    So there is one way to be ended, and what was started is ended in its order.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def app_of_worker(settings: Settings, written: SettingsFile | None) -> ASGIApp:
    """Return the app of one worker, which ends when its supervisor ends, however that happens."""
    share_one_heap()

    def end_with_supervisor() -> None:
        supervisor = multiprocessing.parent_process()
        if supervisor is not None:
            supervisor.join()
            os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=end_with_supervisor, name="supervisor", daemon=True).start()
    return import_module("proxy.app").create_app(settings, settle, written)


def settle() -> None:
    """Keep what was built at the start out of every later look for garbage, and threads from long turns.

    Freed memory is given back from now on.

    Looking for garbage as often as Python does by itself costs a twentieth of all work and finds next to
    nothing: only a turn that begins an epoch leaves any.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    sys.setswitchinterval(_TURN)
    give_memory_back()
