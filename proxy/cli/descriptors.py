"""Room for many streams: each takes two file descriptors, and systems begin with 256 or 1,024 a process."""

from __future__ import annotations

import sys
from contextlib import suppress

ENOUGH = 65_536
"""Descriptors beyond which one process has other limits."""


def raise_file_limit() -> None:
    """Raise this process's limit of open files, which its children inherit, as far as it may be raised."""
    if sys.platform == "win32":
        return  # there is none to raise
    import resource  # noqa: PLC0415 - not on every system

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(ValueError, OSError):  # macOS allows less than it says; the old limit then stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
