"""What is computed when it is first read, and what is remembered of texts."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from threading import Event, Thread

import pytest

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.extraction.facts import facts_of
from proxy.core.extraction.kinds import kind_of
from proxy.core.extraction.observations import Observation
from proxy.core.extraction.reading import strength_of
from proxy.core.lazy import cached_for_short_texts, lazy
from proxy.core.text.words import words_of

PATIENCE = 30.0


class Slow:
    """Has an attribute that takes until it is told to end."""

    def __init__(self, *, waits: bool) -> None:
        self.waits = waits
        self.computed = 0
        self.begun, self.may_end = Event(), Event()

    @lazy
    def value(self) -> int:
        """A number."""
        self.computed += 1
        self.begun.set()
        if self.waits:
            self.may_end.wait(PATIENCE)
        return 7


def test_it_is_computed_once() -> None:
    slow = Slow(waits=False)
    assert slow.value + slow.value == 14
    assert slow.computed == 1


def test_one_that_is_being_computed_in_a_thread_holds_up_no_other() -> None:
    slow, other = Slow(waits=True), Slow(waits=False)
    thread, reading = Thread(target=lambda: slow.value), Thread(target=lambda: other.value)
    thread.start()
    assert slow.begun.wait(PATIENCE)
    reading.start()
    assert other.begun.wait(PATIENCE / 10)
    slow.may_end.set()
    thread.join()
    reading.join()


def test_it_can_be_read_at_its_class() -> None:
    assert Slow.value.__doc__ == "A number."


def test_what_was_found_in_a_short_text_is_remembered_and_in_a_long_one_found_again() -> None:
    seen = list[str]()

    @cached_for_short_texts(8, longest=10)
    def length_of(text: str) -> int:
        seen.append(text)
        return len(text)

    for text in ("short", "much longer") * 2:
        assert length_of(text) == len(text)
    assert seen == ["short", "much longer", "much longer"]


def observed(text: str) -> None:
    message = json.dumps({"role": "user", "content": text}).encode()
    Observation(CHAT.read(message)).texts()


def leaf(text: str) -> None:
    facts_of(json.dumps({text: text}), text)


@pytest.mark.parametrize("read", [observed, kind_of, strength_of, words_of, leaf])
def test_no_long_text_is_held_after_it_was_read(read: Callable[[str], object]) -> None:
    """Caches that count their entries alone would hold as many long texts, beside the cache's ceiling."""
    read("word" * 50_000)  # loads whatever is loaded once
    tracemalloc.start()
    try:
        for number in range(8):
            read(f"{number}" + "word" * 50_000)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000
