"""A serving process: its file limit, its memory, and the app of one of several workers.

A worker imports only this module at first, and the rest of the proxy when it builds its app: its supervisor
takes a worker that does not answer soon for one that hangs.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from proxy.adapters.files.watcher import LoadedPolicies
from proxy.config import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_ENOUGH = 65_536
"""File descriptors beyond which other limits of a process matter more."""
_GARBAGE = (10_000, 5, 200)
"""Thresholds of Python's garbage collector: new objects before a collection of the youngest generation, and
collections of it before one of the older generations.

A collection of 50,000 objects takes some 15 ms, in which nothing else runs.
"""
_MOST_HEAPS = -8
"""The option `M_ARENA_MAX` of glibc's `malloc.h`."""
_GIVE_BACK = 60.0
"""Seconds after which freed memory is given back to the system again."""
_TURN = 0.001
"""Seconds after which a thread that plans or counts gives way to the event loop (the switch interval).

A small request returns to the loop some ten times, and each time waits for the other thread: with Python's
default of five milliseconds, somebody else's long plan makes it 50 ms slower.
"""


def raise_file_limit() -> None:
    """Raise this process's limit of open files, which its children inherit, as far as allowed.

    A stream takes two descriptors, and the default limit of a process is 256 or 1,024.
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
    """Let all threads of this process allocate from one heap; call it before there are other threads.

    By default glibc gives each thread a heap of its own, which keeps freed memory: each grows to the largest
    piece of work that its thread ever had. Since Python runs one thread at a time, they seldom wait for each
    other.
    """
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MOST_HEAPS, 1)


def give_memory_back(every: float = _GIVE_BACK) -> None:
    """Start a thread that gives freed memory back to the system, ``every`` so many seconds.

    By default glibc only gives back what is free at the end of its heap. What is free between two values that
    are still cached stays with the process, so its resident memory would grow to the largest piece of work
    that it ever had. Looking through a heap of 300 MB takes some 16 ms.
    """
    if (trim := _of_glibc("malloc_trim")) is None:
        return

    def give_back() -> None:
        while True:
            time.sleep(every)
            trim(0)

    Thread(target=give_back, name="memory", daemon=True).start()


def _of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None where the C library is another one, whose heaps are not like that."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def app_of_worker(settings: Settings, policies: LoadedPolicies) -> ASGIApp:
    """Return the app of one worker, which ends when its supervisor ends, however that happens."""
    share_one_heap()

    def end_with_supervisor() -> None:
        supervisor = multiprocessing.parent_process()
        if supervisor is not None:
            supervisor.join()
            os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=end_with_supervisor, name="supervisor", daemon=True).start()
    return import_module("proxy.app").create_app(settings, settle, policies)


def settle() -> None:
    """Tune the process once its parts are built: garbage collection, thread switching, and freed memory.

    What was built so far is left out of all later collections. With Python's default thresholds collections
    would cost a twentieth of all work and find next to nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    sys.setswitchinterval(_TURN)
    give_memory_back()
