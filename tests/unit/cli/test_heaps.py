"""What a process that serves does with memory that it has freed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HEAPS = """
import ctypes, sys, tempfile, threading
from proxy.cli.process import share_one_heap
if sys.argv[1] == "one":
    share_one_heap()
barrier = threading.Barrier(4)
def work():
    barrier.wait()
    pieces = [bytes(2_000) for _ in range(1_000)]
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    opened = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, opened)
    libc.fclose(opened)
    print(file.read().count(b"<heap nr"))
"""
_HOLES = """
import time
from proxy.cli.process import give_memory_back, share_one_heap

def resident():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1])

share_one_heap()
held = [bytes(6_000) for _ in range(20_000)]
most = resident()
held = held[::3]
print(resident() > 0.8 * most)
give_memory_back(every=0.05)
deadline = time.monotonic() + 20
while resident() > 0.7 * most and time.monotonic() < deadline:
    time.sleep(0.05)
print(resident() <= 0.7 * most)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other heaps")
def test_all_threads_allocate_from_one_heap() -> None:
    assert heaps("one") == 1 < heaps("many")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other heaps")
def test_what_is_freed_between_values_that_are_held_goes_back_to_the_system_only_when_asked_for() -> None:
    run = subprocess.run([sys.executable, "-c", _HOLES], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["True", "True"]


def heaps(how: str) -> int:
    """How many heaps a process has with four threads that have allocated at the same time."""
    run = subprocess.run([sys.executable, "-c", _HEAPS, how], check=True, capture_output=True, text=True)
    return int(run.stdout)
