"""File descriptors for tests that open very many sockets."""

from __future__ import annotations

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def file_limit(wanted: int) -> Generator[None]:
    """So many files may be open within, in this process and in those that it starts.

    Raises ValueError where the system does not allow it.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def may_open(wanted: int) -> bool:
    """Whether this process may open so many files."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard == resource.RLIM_INFINITY or hard >= wanted
