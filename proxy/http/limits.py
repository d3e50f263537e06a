"""Limits on requests: how many at a time, how large their bodies are, and how slow they may be.

A request for which there is no room is refused at once, before its body is read. It is never queued: a queue
costs memory and time that another worker or machine may have. A body is held from its first byte until its
request is over, because the turn is recorded from it.
"""

from __future__ import annotations

from typing import Self

import msgspec

from proxy.errors import Overloaded, RequestTooLarge
from proxy.ports import Policies


class Admission:
    """Counts what all requests take together, managed and relayed alike.

    The default policy's limit holds for all of them. The bodies of managed requests may have `ceiling` bytes
    in total.
    """

    def __init__(self, policies: Policies, ceiling: int) -> None:
        self.policies = policies
        self.ceiling = ceiling
        self.in_flight = 0
        self.held = 0
        """Bytes of all bodies held."""


class Permit(msgspec.Struct, eq=False):
    """A request's share of the limits; a context manager that gives it back.

    To enter it raises Overloaded if there is no room; a policy's own `limit` can only be stricter.
    """

    _admission: Admission
    limit: int | None = None
    _requests: int = 1
    _held: int = 0

    def __enter__(self) -> Self:
        allowed = self._admission.policies.in_force.default.limits.streams
        if self._admission.in_flight >= (allowed if self.limit is None else min(self.limit, allowed)):
            raise Overloaded("The proxy answers as many requests as it may; try again.")
        self._admission.in_flight += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.in_flight -= self._requests
        self._admission.held -= self._held

    def release_slot(self) -> None:
        """Give back everything but the body's bytes: whoever continues the request has its own permit."""
        self._admission.in_flight -= self._requests
        self._requests = 0

    def expect(self, size: int) -> None:
        """Raise Overloaded if `size` more bytes do not fit, RequestTooLarge if they never will."""
        if self._held + size > self._admission.ceiling:
            raise RequestTooLarge
        if self._admission.held + size > self._admission.ceiling:
            raise Overloaded("The proxy holds as many request bodies as it may; try again.")

    def take(self, size: int) -> None:
        """Take room for `size` more bytes of the body (raises as `expect` does)."""
        self.expect(size)
        self._admission.held += size
        self._held += size


# --- how long an incomplete request may take ---


SLOWEST = 100
"""Bytes a second of a body, below which its sender is taken to hold the connection without uploading."""


class Pace:
    """Tells when the sender of one head or body counts as gone. All times are in seconds.

    A head has `timeout` from its first byte to its end. A body may take as long as it likes while it makes
    progress: no silence of `timeout`, and `SLOWEST` bytes a second in each span of that length. Time in which
    the proxy itself does not read does not count.
    """

    def __init__(self, timeout: float, *, body: bool) -> None:
        self._timeout = timeout
        self._is_body = body
        self._since = 0.0
        """When this head, or the observed span of a body, began; 0 before its first byte."""
        self._heard = 0.0
        self._came = 0
        """Bytes that arrived in the span."""
        self._was_held_back = False
        """Whether the proxy paused reading at some time in the span."""

    def heard(self, now: float, size: int, *, held_back: bool) -> None:
        """Note that bytes have arrived; `held_back` says that no more will be read for now."""
        self._since = self._since or now
        self._heard = now
        self._came += size
        self._was_held_back = self._was_held_back or held_back

    def is_late(self, now: float, *, held_back: bool) -> bool:
        """Whether time is up; asked at `due`. If it is not, the next span begins."""
        if held_back or self._was_held_back:
            self._since = self._heard = now
            self._came, self._was_held_back = 0, held_back
            return False
        if not self._is_body:
            return now - self._since >= self._timeout
        if now - self._since >= self._timeout:
            if self._came < SLOWEST * self._timeout:
                return True
            self._since, self._came = now, 0
        return now - self._heard >= self._timeout

    @property
    def due(self) -> float:
        """When to ask next."""
        return (min(self._since, self._heard) if self._is_body else self._since) + self._timeout
