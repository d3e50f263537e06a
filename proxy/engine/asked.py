"""What a request asks for, read from its bytes before anything is looked up."""

import hashlib
from collections.abc import Sequence

import msgspec

from proxy.core.injection import Injection
from proxy.core.policy import Policy
from proxy.engine.bodies import ReadBody
from proxy.engine.exchange import Appended
from proxy.engine.history import History
from proxy.engine.naming import CREDENTIALS, Caller, Headers
from proxy.errors import InvalidHeader, InvalidPolicy

POLICY_HEADER = b"x-unabridged-policy"
BUDGET_HEADER = b"x-unabridged-budget"
BOUNDARY_HEADER = b"x-unabridged-boundary"
_DIGITS = 12
_TAKEN_OVER = frozenset({*CREDENTIALS, b"openai-organization", b"openai-project"})
"""Headers of a request that background calls made for it carry."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, read."""

    arrived: float
    """Monotonic seconds."""
    policy: Policy
    read: ReadBody
    history: History
    lane: str
    """Requests of one lane share their plans: the same model under the same rules."""
    caller: Caller
    budget: int | None
    """Tokens that the client allows; None where it leaves them to the policy."""
    is_boundary: bool
    """Whether the client says that something new begins."""
    pins: Sequence[int]
    """Messages that the client pins, by their place before the end: 1 is the last."""
    inject: Injection | None
    """What it hands in for its session."""
    credentials: Sequence[tuple[bytes, bytes]]
    appended: Appended | None
    """Of a turn that was sent without its history."""

    @property
    def needs_store(self) -> bool:
        """Whether it is not answered while the store is away."""
        return self.appended is not None or self.policy.store.on_fault == "closed"

    @property
    def pinned(self) -> frozenset[bytes]:
        """Chain hashes of the messages that the client pins."""
        return frozenset(self.history.hashes[-place] for place in self.pins)


def lane_of(model: str, policy: Policy, budget: int | None) -> str:
    """The lane of a request that allows itself so many tokens."""
    said = f"{model}\0{policy.name}\0{budget or ''}"
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:16]


def policy_name(headers: Headers) -> str:
    """The policy that a request names; empty where it names none."""
    return headers.get(POLICY_HEADER, b"").decode("latin-1").strip()


def budget_in(headers: Headers) -> int | None:
    """The tokens that a request allows itself. Raises InvalidPolicy."""
    text = headers.get(BUDGET_HEADER, b"").decode("latin-1").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS or int(text) == 0:
        raise InvalidPolicy("X-Unabridged-Budget must be a positive number of tokens.")
    return int(text)


def boundary_in(headers: Headers) -> bool:
    """Whether the client says that something new begins. Raises InvalidHeader."""
    text = headers.get(BOUNDARY_HEADER, b"").strip().lower()
    if text not in (b"", b"new"):
        raise InvalidHeader("X-Unabridged-Boundary is new, or absent.")
    return text == b"new"


def credentials_in(headers: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """What background calls for a request need of its headers, to be made in its caller's name."""
    return [pair for pair in headers if pair[0].lower() in _TAKEN_OVER]
