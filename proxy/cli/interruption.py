"""One way to be ended: SIGTERM interrupts as Ctrl-C does, and what was started is ended in its order."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Within, SIGTERM raises KeyboardInterrupt (also where uvicorn raises again what it caught)."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
