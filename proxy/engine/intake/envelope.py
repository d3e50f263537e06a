"""What the head of a request asks for, its body aside.

Clients send the same head with one request after the other, so whoever reads it may keep what it says.
"""

from collections.abc import Sequence

import msgspec

from proxy.engine.intake.naming import CREDENTIALS, Caller, Headers, Naming
from proxy.errors import InvalidHeader, InvalidPolicy

POLICY_HEADER = b"x-unabridged-policy"
BUDGET_HEADER = b"x-unabridged-budget"
BOUNDARY_HEADER = b"x-unabridged-boundary"
_DIGITS = 40
"""Digits that a budget may be written with; what has more is no number of tokens."""
_MOST = 10**12
"""Tokens, more than any policy or window allows: what asks for more asks for these, which can be stored."""
_TAKEN_OVER = frozenset({*CREDENTIALS, b"openai-organization", b"openai-project"})
"""Headers of a request that background calls made for it carry."""


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


def read_envelope(
    naming: Naming, target: str, headers: Headers, forwarded: Sequence[tuple[bytes, bytes]]
) -> Envelope:
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
    return Envelope(
        target=target,
        headers=headers,
        forwarded=forwarded,
        caller=caller,
        budget=budget,
        is_boundary=boundary == b"new",
        credentials=[pair for pair in forwarded if pair[0].lower() in _TAKEN_OVER],
    )


def policy_name(headers: Headers) -> str:
    """The policy that a request names; empty where it names none."""
    return headers.get(POLICY_HEADER, b"").decode("latin-1").strip()
