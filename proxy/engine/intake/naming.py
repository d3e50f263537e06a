"""Names: whose request it is, which session it belongs to, and under which key that is kept.

Keeps law 6 (isolated): every name is an HMAC of the caller's credential, so two callers can never meet in one
key, and an id that we issued works only for the caller to whom we gave it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.memory.records import Scope, ScopeKind
from proxy.errors import InvalidHeader, InvalidPolicy, InvalidSessionId
from proxy.ports import NAMED, SessionKey

Headers = Mapping[bytes, bytes]
"""Request headers by lower-case name; of a repeated one the values are joined by a comma."""

SESSION_HEADER = b"x-unabridged-session"
POLICY_HEADER = b"x-unabridged-policy"
BUDGET_HEADER = b"x-unabridged-budget"
BOUNDARY_HEADER = b"x-unabridged-boundary"
CHANNEL_HEADER = b"x-unabridged-channel"
WORKSPACE_HEADER = b"x-unabridged-workspace"

CREDENTIALS = (b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key")
"""Headers by which upstreams know their callers."""
_DIGITS = 40
"""Digits that a budget may be written with; what has more is no number of tokens."""
_MOST = 10**12
"""Tokens, more than any policy or window allows: what asks for more asks for these, which can be stored."""
_TAKEN_OVER = frozenset({*CREDENTIALS, b"openai-organization", b"openai-project"})
"""Headers of a request that background calls made for it carry."""
_BEARER = re.compile(rb"bearer[ \t]+", re.IGNORECASE)
_DUMMIES = frozenset(
    b" none null dummy empty no-key nokey not-needed sk-no-key-required unused x ollama lm-studio".split(b" ")
)
_AGENT_HEADERS = (
    b"x-session-id",
    b"x-litellm-session-id",
    b"x-openwebui-chat-id",
    b"helicone-session-id",
    b"x-sm-conversation-id",
    b"x-claude-code-session-id",
    b"x-conversation-id",
    b"session-id",
    b"session_id",
    b"thread-id",
)
_VENDOR_HEADER = re.compile(rb"x-[a-z0-9]+(?:-[a-z0-9]+)*-session-id")
_UNPRINTABLE = re.compile(rb"[\x00-\x1f\x7f]")
_PLAUSIBLE = re.compile(rb"[\x21-\x7e]{1,256}")
_LONGEST = 256
_ISSUED = re.compile(r"ub-([0-9a-f]{24})-([0-9a-f]{16})-([0-9a-f]{12})")


def session_header(headers: Headers) -> str | None:
    """The name that a header gives the session: ours first, then those that agents send by themselves.

    Raises InvalidSessionId for a name in our own header that is too long or not printable; foreign headers
    that look like no id are passed over.
    """
    own = headers.get(SESSION_HEADER, b"").strip()
    if own:
        if not is_name(own):
            raise InvalidSessionId("A session id has 1 to 256 printable characters.")
        return own.decode("latin-1")
    names = chain(_AGENT_HEADERS, filter(_VENDOR_HEADER.fullmatch, headers))
    found = (headers.get(name, b"").strip() for name in names)
    return next((value.decode() for value in found if _PLAUSIBLE.fullmatch(value)), None)


def is_name(value: bytes) -> bool:
    """Whether a header's value has 1 to 256 printable characters."""
    return 0 < len(value) <= _LONGEST and not _UNPRINTABLE.search(value)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request, and the session that a header of it names."""

    tenant: str
    name: str | None
    """As the header has it; None where no header names a session."""
    key: SessionKey | None
    former: Caller | None = None
    """The same caller as the old secret names it, while secrets are being rotated."""


class Naming:
    """Derives names from a secret (any string); the same secret gives the same names on every machine."""

    def __init__(
        self, secret: str, memory: Memory, tenant_header: str | None = None, *, former: str | None = None
    ) -> None:
        self._former = Naming(former, memory, tenant_header) if former is not None else None
        self._key = hmac.digest(secret.encode(), b"unabridged naming 1", "sha256")
        self.tenant_header = tenant_header.encode() if tenant_header else None
        self._callers: Lru[bytes, Caller] = Lru(memory)
        """By a digest of what names them: no credential is kept."""

    def tenant(self, headers: Headers) -> str:
        """Whose request this is (hex); callers without a credential, or with a dummy, are one: anonymous."""
        if self.tenant_header:
            gateway = headers.get(self.tenant_header, b"")
            return self._mac(b"gateway", gateway, 32) if gateway else self._mac(b"anonymous", b"", 32)
        credentials = [(name, headers[name]) for name in CREDENTIALS if name in headers]
        if credentials and (scheme := _BEARER.match(headers.get(b"authorization", b""))):
            # However the scheme is spelled (RFC 9110 clause 11.1).
            credentials[0] = b"authorization", b"Bearer " + headers[b"authorization"][scheme.end() :]
        words = (value.strip().lower().removeprefix(b"bearer").strip() for _, value in credentials)
        if all(word in _DUMMIES for word in words):
            return self._mac(b"anonymous", b"", 32)
        return self._mac(b"tenant", b"\0".join(part for pair in credentials for part in pair), 32)

    def caller(self, headers: Headers) -> Caller:
        """Who sends a request with these headers. Raises InvalidSessionId."""
        name = session_header(headers)
        by = (self.tenant_header,) if self.tenant_header else CREDENTIALS
        digest = hashlib.sha256(repr((name, *map(headers.get, by))).encode()).digest()
        caller = self._callers.get(digest)
        if caller is None:
            tenant = self.tenant(headers)
            former = self._former.caller(headers) if self._former else None
            key = None if name is None else self.named(tenant, name)
            if former and former.key and former.key.sid != NAMED:
                # An id of ours is good for as long as the secret that it was made by.
                key, former = former.key, None
            caller = Caller(tenant, name, key, former)
            self._callers.put(digest, caller)
        return caller

    def former_tag(self, former: Caller, first_user: bytes) -> str:
        """The tag of a caller's session by the old secret's names."""
        if former.key:
            return former.key.tag
        return self._former.bucket(former.tenant, first_user) if self._former else ""

    def named(self, tenant: str, name: str) -> SessionKey:
        """The session that a header names: by an id of ours, or by a name of the client's."""
        found = _ISSUED.fullmatch(name)
        if found and hmac.compare_digest(found[3], self._seal(tenant, found[1], found[2])):
            return SessionKey(found[1], found[2])
        return SessionKey(self._mac(b"named", f"{tenant}\0{name}".encode(), 24), NAMED)

    def bucket(self, tenant: str, first_user: bytes) -> str:
        """The tag of sessions without a header: by the identity of their first user message."""
        return self._mac(b"bucket", tenant.encode() + first_user, 24)

    def issue(self, tenant: str, key: SessionKey) -> str:
        """The id under which a session without a header is shown, and by which it can be named."""
        return f"ub-{key.tag}-{key.sid}-{self._seal(tenant, key.tag, key.sid)}"

    def scope(self, kind: ScopeKind, tenant: str, *names: str) -> Scope:
        """What is remembered under such names, of which the last alone may hold any character."""
        data = "\0".join((kind, tenant, *names)).encode(errors="surrogatepass")
        return Scope(kind, self._mac(b"memory", data, 24))

    def former_scope(self, kind: ScopeKind, headers: Headers, *names: str) -> Scope | None:
        """The same by the old secret's names, the tenant's of these headers among them."""
        return self._former.scope(kind, self._former.tenant(headers), *names) if self._former else None

    def cache_key(self, key: SessionKey) -> str:
        """What names a session to the provider's prompt cache, the same on every worker; it tells nothing."""
        return self._mac(b"prompt-cache", f"{key.tag}\0{key.sid}".encode(), 32)

    def address(self, tenant: str, *parts: bytes) -> str:
        """A content address within a tenant."""
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        return self._mac(b"address", tenant.encode() + digest, 40)

    def _seal(self, tenant: str, tag: str, sid: str) -> str:
        return self._mac(b"issued", f"{tenant}\0{tag}\0{sid}".encode(), 12)

    def _mac(self, purpose: bytes, data: bytes, digits: int) -> str:
        return hmac.digest(self._key, purpose + b"\0" + data, "sha256").hex()[:digits]


# --- the head of a request ---


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request, read."""

    target: str
    """Path and query after ``/v1``."""
    headers: Headers
    forwarded: Sequence[tuple[bytes, bytes]]
    """The headers that go to the upstream."""
    caller: Caller
    budget: int | None
    """Tokens that the client allows; None where it leaves them to the policy."""
    is_boundary: bool
    """Whether the client says that something new begins."""
    credentials: Sequence[tuple[bytes, bytes]]
    """What background calls need of its headers, to be made in its caller's name."""
    channel: str = ""
    """Where its session belongs to, and the next is what that belongs to; empty where no header says so."""
    workspace: str = ""

    @classmethod
    def read(
        cls, naming: Naming, target: str, headers: Headers, forwarded: Sequence[tuple[bytes, bytes]]
    ) -> Self:
        """Read the head of a request. Raises InvalidSessionId, InvalidPolicy and InvalidHeader."""
        caller = naming.caller(headers)
        text, budget = headers.get(BUDGET_HEADER, b"").decode("latin-1").strip(), None
        if text:
            if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS or int(text) == 0:
                raise InvalidPolicy("X-Unabridged-Budget must be a positive number of tokens.")
            budget = min(int(text), _MOST)
        boundary = headers.get(BOUNDARY_HEADER, b"").strip().lower()
        if boundary not in (b"", b"new"):
            raise InvalidHeader("X-Unabridged-Boundary is new, or absent.")
        return cls(
            target=target,
            headers=headers,
            forwarded=forwarded,
            caller=caller,
            budget=budget,
            is_boundary=boundary == b"new",
            credentials=[pair for pair in forwarded if pair[0].lower() in _TAKEN_OVER],
            channel=_scope_name(headers, CHANNEL_HEADER, "X-Unabridged-Channel"),
            workspace=_scope_name(headers, WORKSPACE_HEADER, "X-Unabridged-Workspace"),
        )


def _scope_name(headers: Headers, header: bytes, shown: str) -> str:
    """What a header names; empty where it is absent. Raises InvalidHeader."""
    name = headers.get(header, b"").strip()
    if name and not is_name(name):
        raise InvalidHeader(f"{shown} has 1 to 256 printable characters.")
    return name.decode("latin-1")
