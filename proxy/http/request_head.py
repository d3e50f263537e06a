"""The heads of requests: which paths are refused; and those of managed ones, each read once.

A path that two parsers could read in two ways might pass for `/v1/…` here and name something else behind us.
Such a path is refused, never normalised; percent-encoding is left as it is.

A client sends the same head again and again. Only the length of the body is new each time, and it is read
apart. What is kept is bounded in bytes; it holds credentials, as the requests themselves do, and is neither
shown nor logged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from operator import attrgetter

from starlette.types import Scope

from proxy.cache import Lru, Memory
from proxy.core.policy.policy import PolicySet, Way
from proxy.engine.intake.envelope import (
    BOUNDARY_HEADER,
    BUDGET_HEADER,
    POLICY_HEADER,
    Envelope,
    policy_name,
    read_envelope,
)
from proxy.engine.intake.naming import SESSION_HEADER, Naming
from proxy.errors import InvalidHeader, InvalidPath, NotFound
from proxy.http.asgi import require_json
from proxy.http.headers import OURS, Header, check_credentials, to_upstream, value

# --- paths: what one may look like, and what it is called at the upstream and in the log ---


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
_WORDS = frozenset(
    """
    assistants audio batches cancel chat checkpoints completions containers content conversations count_tokens
    edits embeddings events files fine_tuning generations images input_tokens items jobs messages models
    moderations parts realtime rerank responses runs search sessions speech steps threads transcriptions
    translations uploads variations vector_stores videos
    """.split()
)
"""Of the paths of OpenAI's API and its like; what else stands in one is an id."""
_DEEPEST = 8
_VERSIONS = re.compile(r"(?:/v1)*(?=/|$)")


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


def route_of(path: str) -> str:
    """A path below `/v1` without ids, such as `/v1/files/{id}/content`: one of not too many."""
    _, version, *segments = path.split("/", _DEEPEST)
    return "/".join(["", version, *(each if each in _WORDS else "{id}" for each in segments)])


def nothing_at(path: str) -> NotFound:
    """What to say of a path that nothing is at. Mostly a client's base URL has no `/v1`, or two."""
    route = route_of("/v1" + _VERSIONS.sub("", path, count=1))
    if route == "/v1" or route.startswith("/v1/{id}"):
        return NotFound()
    return NotFound(f"There is nothing here: use {route} (a base_url that ends in /v1, once).")


# --- heads of managed requests ---


MODE_HEADER = b"x-unabridged-mode"
_MODES = frozenset({"full", "append", "off"})
_KNOWN = (SESSION_HEADER, POLICY_HEADER, BUDGET_HEADER, BOUNDARY_HEADER, MODE_HEADER)
"""Those of our headers that requests may have."""
_MOST_UNKNOWN, _LONGEST = 5, 60
"""How many that there are not are told of, and how many characters of each."""
_ODD = re.compile(r"[^0-9A-Za-z_-]")
_LENGTH = b"content-length"
_DECODED = (b"content-encoding", b"expect")
"""Headers that do not hold for a body that was read whole and decoded."""
_BESIDES, _HEADER = 2048, 128
"""Bytes of a head besides its text, and of each header, about."""

_Key = tuple[bytes, bytes, tuple[Header, ...]]


class Head:
    """A request's head, the length of its body aside."""

    def __init__(self, key: _Key, warning: bytes) -> None:
        self._path, self._query, self._headers = key
        self._named: dict[bytes, bytes] = {}
        """By lower-case name; of a repeated one the values are joined by a comma."""
        for name, content in self._headers:
            lower = name.lower()
            found = self._named.get(lower)
            self._named[lower] = content if found is None else found + b"," + content
        self.encoding = self._named.get(b"content-encoding")
        self.warning = warning
        """What every answer says of headers that look like ours; mostly nothing."""
        self._envelope: Envelope | None = None
        self._policies: PolicySet | None = None
        self._ways: tuple[Way, ...] = ()

    def ways(self, policies: PolicySet) -> tuple[Way, ...]:
        """What may choose the policy of its requests, of those in force. Raises InvalidPolicy."""
        if policies is not self._policies:
            self._ways, self._policies = policies.ways(policy_name(self._named), self._named), policies
        return self._ways

    @cached_property
    def mode(self) -> str:
        """`full`, `append` or `off`. Raises InvalidHeader."""
        mode = self._named.get(MODE_HEADER, b"").strip().lower().decode("latin-1") or "full"
        if mode not in _MODES:
            raise InvalidHeader("X-Unabridged-Mode is full, append or off.")
        return mode

    def envelope(self, naming: Naming) -> Envelope:
        """What a request asks for that is to be managed; raises the errors of what cannot be read."""
        if self._envelope is None:
            check_credentials(self._headers)
            require_json(value(self._headers, b"content-type"))
            target = upstream_target(self._path, self._query)
            forwarded = to_upstream(self._headers, accept_encoding=b"identity", without=_DECODED)
            self._envelope = read_envelope(naming, target, self._named, forwarded)
        return self._envelope

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        texts = [len(name) + len(value) + _HEADER for name, value in self._headers]
        return _BESIDES + 2 * (len(self._path) + len(self._query) + sum(texts))


class Heads:
    """Those that were read last."""

    def __init__(self, memory: Memory, tenant_header: bytes | None = None) -> None:
        self._kept: Lru[_Key, Head] = Lru(memory, attrgetter("size"))
        self._known = {*_KNOWN, tenant_header}

    def of(self, scope: Scope) -> Head:
        """The head of a request."""
        headers: Sequence[Header] = scope["headers"]
        lasting = tuple([header for header in headers if header[0] != _LENGTH])
        key = scope["raw_path"], scope["query_string"], lasting
        head = self._kept.get(key)
        if head is None:
            head = Head(key, self.warning(lasting))
            self._kept.put(key, head)
        return head

    def warning(self, headers: Sequence[Header]) -> bytes:
        """What an answer says of a request's headers that look like ours, and that there are not.

        Only what may stand in a name is quoted of them.
        """
        names = [lower for name, _ in headers if (lower := name.lower()).startswith(OURS)]
        unknown = list(dict.fromkeys(name for name in names if name not in self._known))
        warnings: list[str] = []
        for name in map(_written, unknown[:_MOST_UNKNOWN]):
            nearest = get_close_matches(name, map(_written, _KNOWN), n=1, cutoff=0)[0]
            warnings.append(f"unknown header {name}; did you mean {nearest}?")
        return ", ".join(warnings).encode()


def _written(name: bytes) -> str:
    """A header's name as people write it."""
    return _ODD.sub("?", name[:_LONGEST].decode("latin-1")).title()
