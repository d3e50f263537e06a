"""Failures of a server: what they are called, and a circuit breaker for each server.

A server that failed is not called for a while, so that its failure costs requests time only once (law 7), and
it is logged once. One that answers, even with an error (full, read-only, a key of another type) or too slowly
for the length of its reply, is reachable: the next call goes to it at once.
"""

from __future__ import annotations

from typing import Final

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from proxy.adapters.faults import Fault, fault_of
from proxy.adapters.stores.redis.deadline import Slow
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, UnreadableRecord
from proxy.telemetry import log_warning

FOREIGN: Final = (
    RedisError,
    RedisClusterException,
    OSError,  # TimeoutError and TLS included
    EOFError,  # asyncio's IncompleteReadError
    RuntimeError,  # uvloop, on writing to a transport that has just closed
)
"""What redis-py raises for a failure of the server or of the connection to it."""

_AGAIN: Final = 3_600.0
"""Seconds after which the same kind of refusal, or that the store is slow, is logged again."""


class Breaker:
    """Circuit breaker: rejects calls for `rest` seconds after a failure, then lets one through as a trial.

    While the trial is under way, other calls are rejected for another `rest` seconds. A trial that never
    reports (because it was cancelled) therefore only delays the next trial.
    """

    def __init__(self, clock: Clock, rest: float) -> None:
        self.name = ""
        """The server's address in the log."""
        self._clock = clock
        self._rest = rest
        self._next_trial: float | None = None
        self._kind = ""
        """The kind of the failure that was logged last; empty while the store works."""
        self._logged: dict[str, float] = {}
        """When each kind of refusal was logged last, and that the store is slow."""

    @property
    def is_open(self) -> bool:
        """Whether the last call that reported has failed."""
        return self._next_trial is not None

    def another(self) -> Breaker:
        """Return a breaker for another server."""
        return Breaker(self._clock, self._rest)

    def admit(self) -> bool:
        """Let a call pass; return whether it is a trial. Raises Rejected if calls are rejected."""
        if self._next_trial is None:
            return False
        if self._clock.monotonic() < self._next_trial:
            raise Rejected(_unusable(self._kind))
        self._open()
        return True

    def failed(self, failure: Exception) -> StoreUnavailable:
        """Report that a call has failed, and return the error for the caller, which reveals nothing internal.

        Logs the first of several failures of one kind.
        """
        fault = _fault(failure)
        if isinstance(failure, ResponseError):
            self.succeeded()
            self._log("the store refuses", fault)
            is_alone = _WRONG_TYPE in _reply(failure)  # no other record has anything to do with that key
            return (UnreadableRecord if is_alone else StoreUnavailable)(f"The store refuses: {fault.kind}.")
        if isinstance(failure, Slow):
            self._log("the store is slow", fault)
            return StoreUnavailable(_unusable(fault.kind))
        if fault.kind != self._kind:
            self._kind = fault.kind
            log_warning("the store cannot be used", why=fault.kind, detail=f"{self.name}: {fault.detail}")
        self._open()
        return StoreUnavailable(_unusable(fault.kind))

    def _log(self, event: str, fault: Fault) -> None:
        now = self._clock.monotonic()
        if now - self._logged.get(fault.kind, -_AGAIN) >= _AGAIN:
            self._logged[fault.kind] = now
            log_warning(event, why=fault.kind, detail=fault.detail)

    def _open(self) -> None:
        self._next_trial = self._clock.monotonic() + self._rest

    def succeeded(self) -> None:
        if self.is_open:
            log_warning("the store is back", detail=self.name)
        self._next_trial, self._kind = None, ""


class Rejected(StoreUnavailable):
    """Raised for a call that was not made, because the server has failed a moment ago."""


def _unusable(kind: str) -> str | None:
    return f"The store cannot be used: {kind}." if kind else None


# --- failures in words ---

_WRONG_TYPE: Final = "WRONGTYPE"
"""In the reply, also in that of a script, where one of our names holds a key of another type."""

_REFUSALS: Final = {
    "NOPERM": "its user may not do that",
    "WRONGPASS": "wrong password",
    "NOAUTH": "it wants a password",
    "OOM": "its memory is full",
    "READONLY": "it is read-only",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "it misses replicas",
    "LOADING": "it is still loading",
    "CLUSTERDOWN": "the cluster is down",
    "MOVED": "it is part of a cluster, whose URL begins with redis+cluster://",
}
"""Descriptions of error replies, by the first word of the reply."""


_ANNOTATION: Final = " of pipeline caused error: ("
"""What redis-py writes before the reply to a command of a refused transaction, after the command itself."""

_QUOTES: Final = "'\"`"
"""With these a reply begins to quote the command."""


def _reply(failure: Exception) -> str:
    """Return what the server replied, without the command that redis-py may have put before it."""
    _, annotation, replied = str(failure).rpartition(_ANNOTATION)
    return replied.strip("(,)'\"") if annotation else replied


def _fault(failure: Exception) -> Fault:
    """Describe a failure. Of an unknown error reply the detail is what stands before it quotes a command."""
    said = _reply(failure)
    code = getattr(failure, "status_code", None) or said.partition(" ")[0]
    if "has no permissions" in said:  # also in the message of a script's error
        code = "NOPERM"
    if code in _REFUSALS:
        return Fault(f"{_REFUSALS[code]} ({code})", said if code == "NOPERM" else "")
    if "DB index is out of range" in said:
        return Fault("it has no database of that number", "")
    if isinstance(failure, ResponseError):
        kind = f"an error ({code})" if code.isupper() else "an error"
        for quote in _QUOTES:
            said, _, _ = said.partition(quote)
        return Fault(kind, said.removeprefix(f"{code} ").strip())
    return Fault(str(failure), "") if isinstance(failure, RedisClusterException) else fault_of(failure)
