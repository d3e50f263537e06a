"""The path guard: what a path may look like, and what it is called at the upstream.

A path that two parsers could read in two ways might pass for `/v1/…` here and name something else behind us
(FAULTS, malformed 17). Such a path is refused, never normalised; percent-encoding is left as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from proxy.errors import InvalidPath, NotFound

PREFIX = b"/v1"

_AMBIGUOUS = re.compile(
    rb"""
    //                                  # an empty segment
    | \\ | %2f | %5c                    # a separator in disguise
    | %00                               # the end of the string, to some
    | (?:^|/) (?:\.|%2e){1,2} (?:/|$)   # a dot segment, spelled either way
    | [^\x21-\x7e]                      # nothing that belongs in a request line
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNPRINTABLE = re.compile(rb"[^\x21-\x7e]")


@lru_cache(maxsize=64)
def check_path(raw_path: bytes) -> None:
    """Refuse a path that is not plainly one path (raises InvalidPath)."""
    if not raw_path.startswith(b"/") or _AMBIGUOUS.search(raw_path):
        raise InvalidPath


def upstream_target(raw_path: bytes, query: bytes = b"") -> str:
    """What follows the client's `/v1`, query included: `/chat/completions?x=1`.

    Raises InvalidPath, and NotFound for a path that is not below `/v1`.
    """
    check_path(raw_path)
    if not (raw_path == PREFIX or raw_path.startswith(PREFIX + b"/")):
        raise NotFound
    if _UNPRINTABLE.search(query):
        raise InvalidPath("The query is not valid.")
    target = raw_path.removeprefix(PREFIX)
    return (target + b"?" + query if query else target).decode("ascii")
