"""Attributes that are computed when they are first read."""

from __future__ import annotations

from threading import Event, Thread

from proxy.core.lazy import lazy

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
