"""Threads of a process that serves share one heap: what one of them frees the others may have."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other heaps")
def test_all_threads_allocate_from_one_heap() -> None:
    assert heaps("one") == 1 < heaps("many")


def heaps(how: str) -> int:
    """How many heaps a process has with four threads that have allocated at the same time."""
    run = subprocess.run([sys.executable, "-c", _HEAPS, how], check=True, capture_output=True, text=True)
    return int(run.stdout)
