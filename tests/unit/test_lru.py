"""Caches that share one memory forget what was not used for longest."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from proxy.cache import CacheMemory, Lru

ENTRY = 300
"""Bytes of an entry beside its value."""


def texts(memory: CacheMemory) -> Lru[str, str]:
    return Lru(memory, len)


def kept(entries: Lru[str, str], keys: str) -> str:
    return "".join(key for key in keys if entries.get(key) is not None)


def test_what_was_not_used_for_longest_goes_first() -> None:
    entries = texts(CacheMemory(9 * (ENTRY + 100)))
    for key in "abcdefghi":
        entries.put(key, "1" * 100)
    entries.get("a")
    entries.put("j", "5" * 100)
    assert kept(entries, "abcdefghij") == "acdefghij"


def test_caches_that_share_a_memory_are_bounded_together() -> None:
    memory = CacheMemory(9 * (ENTRY + 100))
    some, others = texts(memory), texts(memory)
    for key in "abcde":
        some.put(key, "1" * 100)
        others.put(key, "2" * 100)
    assert (kept(some, "abcde"), kept(others, "abcde")) == ("bcde", "abcde")
    assert memory.held == memory.most


def test_a_value_counts_as_what_it_weighed_when_it_was_put() -> None:
    memory = CacheMemory()
    lists: Lru[str, list[int]] = Lru(memory, len)
    value = [1]
    lists.put("a", value)
    value.append(2)
    lists.put("a", value)
    assert memory.held == ENTRY + 2
    value.append(3)
    lists.drop("a")
    assert memory.held == 0


def test_a_value_that_would_push_out_too_much_is_not_kept() -> None:
    memory = CacheMemory(8_000)
    entries = texts(memory)
    entries.put("a", "1")
    entries.put("b", "2" * 1_000)
    assert kept(entries, "ab") == "a"
    entries.put("a", "1" * 1_000)
    assert kept(entries, "ab") == "", "nor is what it was to replace"
    assert memory.held == 0


def test_what_is_dropped_makes_room() -> None:
    memory = CacheMemory()
    entries = texts(memory)
    for key in "abc":
        entries.put(key, key)
    entries.drop_where(lambda key, _: key == "a")
    assert kept(entries, "abc") == "bc"
    entries.drop("b")
    entries.drop("b")
    assert kept(entries, "abc") == "c"
    entries.clear()
    assert kept(entries, "abc") == ""
    assert memory.held == 0


def test_threads_may_use_caches_at_once() -> None:
    memory = CacheMemory(50 * (ENTRY + 1))
    caches = [texts(memory) for _ in range(4)]

    def use(number: int) -> None:
        for turn in range(60_000):
            entries = caches[(number + turn) % len(caches)]
            if number % 2:
                entries.get(f"{turn % 7}")
                continue
            entries.put(f"{turn % 40}", "x")
            if turn % 50 == 0:
                entries.drop(f"{turn % 11}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert 0 < memory.held <= memory.most
    for entries in caches:
        entries.clear()
    assert memory.held == 0
