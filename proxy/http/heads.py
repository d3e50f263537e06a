"""The heads of managed requests, each read once: a client sends the same one again and again.

Only the length of the body is new each time, and it is read apart. What is kept is bounded in bytes; it holds
credentials, as the requests themselves do, and is neither shown nor logged.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Scope

from proxy.engine.envelope import Envelope, policy_name, read_envelope
from proxy.engine.naming import Headers, Naming
from proxy.errors import InvalidHeader
from proxy.http.asgi import require_json
from proxy.http.headers import Header, check_credentials, to_upstream, value
from proxy.http.paths import upstream_target
from proxy.lru import Lru, Memory

MODE_HEADER = b"x-unabridged-mode"
_MODES = frozenset({"full", "append", "off"})
_LENGTH = b"content-length"
_DECODED = (b"content-encoding", b"expect")
"""Headers that do not hold for a body that was read whole and decoded."""
_BESIDES, _HEADER = 2048, 128
"""Bytes of a head besides its text, and of each header, about."""

_Key = tuple[bytes, bytes, tuple[Header, ...]]


class Head:
    """A request's head, the length of its body aside."""

    def __init__(self, key: _Key) -> None:
        """Raises InvalidHeader for a mode that there is not."""
        self._path, self._query, self._headers = key
        named = self._named = _by_name(self._headers)
        self.policy_name = policy_name(named)
        self.mode = _mode(named)
        self.encoding = named.get(b"content-encoding")
        self._envelope: Envelope | None = None

    def envelope(self, naming: Naming) -> Envelope:
        """What a request asks for that is to be managed; raises the errors of what cannot be read."""
        if self._envelope is None:
            self._envelope = self._read(naming)
        return self._envelope

    def _read(self, naming: Naming) -> Envelope:
        check_credentials(self._headers)
        require_json(value(self._headers, b"content-type"))
        target = upstream_target(self._path, self._query)
        forwarded = to_upstream(self._headers, accept_encoding=b"identity", without=_DECODED)
        return read_envelope(naming, target, self._named, forwarded)

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        texts = [len(name) + len(value) + _HEADER for name, value in self._headers]
        return _BESIDES + 2 * (len(self._path) + len(self._query) + sum(texts))


class Heads:
    """Those that were read last."""

    def __init__(self, memory: Memory) -> None:
        self._kept: Lru[_Key, Head] = Lru(memory, _size)

    def of(self, scope: Scope) -> Head:
        """The head of a request. Raises InvalidHeader."""
        headers: Sequence[Header] = scope["headers"]
        lasting = tuple([header for header in headers if header[0] != _LENGTH])
        key = scope["raw_path"], scope["query_string"], lasting
        head = self._kept.get(key)
        if head is None:
            head = Head(key)
            self._kept.put(key, head)
        return head


def _size(head: Head) -> int:
    return head.size


def _by_name(headers: Sequence[Header]) -> Headers:
    """Headers by lower-case name; of a repeated one the values are joined by a comma."""
    named: dict[bytes, bytes] = {}
    for name, content in headers:
        lower = name.lower()
        named[lower] = named[lower] + b"," + content if lower in named else content
    return named


def _mode(headers: Headers) -> str:
    """`full`, `append` or `off`. Raises InvalidHeader."""
    mode = headers.get(MODE_HEADER, b"").strip().lower().decode("latin-1") or "full"
    if mode not in _MODES:
        raise InvalidHeader("X-Unabridged-Mode is full, append or off.")
    return mode
