"""Names: the tenant of a request, its session, and the key under which that is stored.

Keeps law 6 (isolated): every name is an HMAC of the caller's credential, so two callers can never share a
key, and an id that we issued works only for the caller who got it.
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

from proxy.cache import CacheMemory, Lru
from proxy.core.memory.records import Scope, ScopeKind
from proxy.errors import InvalidHeader, InvalidPolicy, InvalidSessionId
from proxy.ports import NAMED, Header, SessionKey

Headers = Mapping[bytes, bytes]
"""Request headers by lower-case name; the values of a repeated header are joined by a comma."""

SESSION_HEADER = b"x-unabridged-session"
POLICY_HEADER = b"x-unabridged-policy"
BUDGET_HEADER = b"x-unabridged-budget"
BOUNDARY_HEADER = b"x-unabridged-boundary"
CHANNEL_HEADER = b"x-unabridged-channel"
WORKSPACE_HEADER = b"x-unabridged-workspace"

CREDENTIALS = (
    *(b"authorization", b"api-key", b"x-api-key", b"x-goog-api-key"),
    *(b"x-litellm-api-key", b"x-portkey-api-key", b"cf-aig-authorization"),
    *(b"helicone-auth", b"ocp-apim-subscription-key", b"apikey"),
)
"""Headers by which upstreams identify their callers: providers, then gateways, some beside a provider's key.

The gateways are LiteLLM, Portkey, Cloudflare, Helicone, Azure API Management, Kong and APISIX. Those that a
request has name its tenant, in this order: a new one goes to the end.
"""
_DIGITS = 40
"""Most digits of a budget; a longer number is not a number of tokens."""
BODY_DIGESTS = frozenset({b"content-md5", b"content-digest", b"digest", b"repr-digest"})
"""Headers with a digest of the body as the client sent it (RFC 9530); they fit no other body."""
_MOST = 10**12
"""Largest budget in tokens, more than any policy or window allows; larger requests get this one, which can be
stored."""
_TAKEN_OVER = frozenset({*CREDENTIALS, b"openai-organization", b"openai-project", b"x-portkey-virtual-key"})
"""Headers of a request that its background calls carry too."""
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
    """Return the session's name in a header: ours first, then those that agents send by themselves.

    Raises InvalidSessionId for a name in our own header that is too long or not printable. Headers of others
    whose value does not look like an id are ignored.
    """
    own = headers.get(SESSION_HEADER, b"").strip()
    if own:
        if not is_name(own):
            raise InvalidSessionId
        return own.decode("latin-1")
    names = chain(_AGENT_HEADERS, filter(_VENDOR_HEADER.fullmatch, headers))
    found = (headers.get(name, b"").strip() for name in names)
    return next((value.decode() for value in found if _PLAUSIBLE.fullmatch(value)), None)


def is_name(value: bytes) -> bool:
    """Whether a header's value has 1 to 256 printable characters."""
    return 0 < len(value) <= _LONGEST and not _UNPRINTABLE.search(value)


def readable(name: str) -> str:
    """Return a name from a header for people: headers are decoded as Latin-1, but mostly contain UTF-8."""
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and the session that one of its headers names."""

    tenant: str
    name: str | None
    """The session's name as in the header; None where no header names a session."""
    key: SessionKey | None
    former: Caller | None = None
    """The same caller as the old secret names it, while secrets are being rotated."""


class Naming:
    """Derives names from a secret (any string); the same secret gives the same names on every machine."""

    def __init__(
        self, secret: str, memory: CacheMemory, tenant_header: str | None = None, *, former: str | None = None
    ) -> None:
        self._former = Naming(former, memory, tenant_header) if former is not None else None
        self._key = hmac.digest(secret.encode(), b"unabridged naming 1", "sha256")
        self.tenant_header = tenant_header.encode() if tenant_header else None
        self._callers: Lru[bytes, Caller] = Lru(memory)
        """By a digest of the headers that identify callers: no credential is kept."""

    def tenant(self, headers: Headers) -> str:
        """Return the tenant of a request (hex); without a credential, or with a dummy, it is anonymous."""
        if self.tenant_header:
            gateway = headers.get(self.tenant_header, b"")
            return self._mac(b"gateway", gateway, 32) if gateway else self._mac(b"anonymous", b"", 32)
        credentials = [(name, headers[name]) for name in CREDENTIALS if name in headers]
        if credentials and (scheme := _BEARER.match(headers.get(b"authorization", b""))):
            # Normalise the spelling of the scheme (RFC 9110 clause 11.1).
            credentials[0] = b"authorization", b"Bearer " + headers[b"authorization"][scheme.end() :]
        words = (value.strip().lower().removeprefix(b"bearer").strip() for _, value in credentials)
        if all(word in _DUMMIES for word in words):
            return self._mac(b"anonymous", b"", 32)
        return self._mac(b"tenant", b"\0".join(part for pair in credentials for part in pair), 32)

    def caller(self, headers: Headers) -> Caller:
        """Return the caller with these headers. Raises InvalidSessionId."""
        name = session_header(headers)
        by = (self.tenant_header,) if self.tenant_header else CREDENTIALS
        digest = hashlib.sha256(repr((name, *map(headers.get, by))).encode()).digest()
        caller = self._callers.get(digest)
        if caller is None:
            tenant = self.tenant(headers)
            former = self._former.caller(headers) if self._former else None
            key = None if name is None else self.named(tenant, name)
            if former and former.key and former.key.sid != NAMED:
                # An id that we issued is valid for as long as the secret by which it was made.
                key, former = former.key, None
            caller = Caller(tenant, name, key, former)
            self._callers.put(digest, caller)
        return caller

    def former_tag(self, former: Caller, first_user: bytes) -> str:
        """Return the tag of a caller's session under the old secret."""
        if former.key:
            return former.key.tag
        return self._former.tag(former.tenant, first_user) if self._former else ""

    def named(self, tenant: str, name: str) -> SessionKey:
        """Return the session that a header names, by an id that we issued or by the client's own name."""
        found = _ISSUED.fullmatch(name)
        if found and hmac.compare_digest(found[3], self._seal(tenant, found[1], found[2])):
            return SessionKey(found[1], found[2])
        return SessionKey(self._mac(b"named", f"{tenant}\0{name}".encode(), 24), NAMED)

    def tag(self, tenant: str, first_user: bytes) -> str:
        """Return the tag of sessions without a header, from the identity of their first user message."""
        return self._mac(b"bucket", tenant.encode() + first_user, 24)

    def issue(self, tenant: str, key: SessionKey) -> str:
        """Return the id of a session without a header: clients see it, and may name the session by it."""
        return f"ub-{key.tag}-{key.sid}-{self._seal(tenant, key.tag, key.sid)}"

    def scope(self, kind: ScopeKind, tenant: str, *names: str) -> Scope:
        """Return the memory scope with such names; only the last of them may hold any character."""
        data = "\0".join((kind, tenant, *names)).encode(errors="surrogatepass")
        return Scope(kind, self._mac(b"memory", data, 24))

    def former_scope(self, kind: ScopeKind, headers: Headers, *names: str) -> Scope | None:
        """Return the scope under the old secret, for these headers' tenant; None without one."""
        return self._former.scope(kind, self._former.tenant(headers), *names) if self._former else None

    def cache_key(self, key: SessionKey) -> str:
        """Return the session's prompt cache key, the same on every worker; it reveals nothing."""
        return self._mac(b"prompt-cache", f"{key.tag}\0{key.sid}".encode(), 32)

    def address(self, tenant: str, *parts: bytes) -> str:
        """Return a content address within a tenant."""
        digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        return self._mac(b"address", tenant.encode() + digest, 40)

    def _seal(self, tenant: str, tag: str, sid: str) -> str:
        return self._mac(b"issued", f"{tenant}\0{tag}\0{sid}".encode(), 12)

    def _mac(self, purpose: bytes, data: bytes, digits: int) -> str:
        return hmac.digest(self._key, purpose + b"\0" + data, "sha256").hex()[:digits]


# --- the head of a request ---


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a request, parsed."""

    target: str
    """Path and query after ``/v1``."""
    headers: Headers
    forwarded: Sequence[Header]
    """The headers to send upstream."""
    caller: Caller
    budget: int | None
    """Most tokens that the client allows; None where it leaves them to the policy."""
    is_boundary: bool
    """Whether the client says that something new begins."""
    credentials: Sequence[Header]
    """The headers that background calls need to be made in the caller's name."""
    channel: str = ""
    """The channel of the session, empty where no header names one; ``workspace`` is the channel's
    workspace."""
    workspace: str = ""

    @property
    def api_version(self) -> str:
        """The parameter ``api-version`` of the query, with its name: Azure answers no request without it."""
        query = self.target.partition("?")[2]
        return next((each for each in query.split("&") if each.startswith("api-version=")), "")

    @classmethod
    def read(cls, naming: Naming, target: str, headers: Headers, forwarded: Sequence[Header]) -> Self:
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
    """Return the name in a header; empty where it is absent. Raises InvalidHeader."""
    name = headers.get(header, b"").strip()
    if name and not is_name(name):
        raise InvalidHeader(f"{shown} has 1 to 256 printable characters.")
    return name.decode("latin-1")
