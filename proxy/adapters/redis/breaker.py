"""Leaves a failed store alone for a while, so that its failure costs requests time once (law 7, FAULTS 1)."""

from __future__ import annotations

from proxy.errors import StoreUnavailable
from proxy.ports import Clock
from proxy.telemetry import log_warning


class Breaker:
    """Refuses calls for `rest` seconds after a failure, then lets one through to try.

    While that one is under way the others are refused for another `rest`: a trial that never reports (it was
    cancelled) delays the next one, and blocks nothing.
    """

    def __init__(self, clock: Clock, rest: float) -> None:
        self._clock = clock
        self._rest = rest
        self._next_trial: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last call that reported had failed."""
        return self._next_trial is not None

    def admit(self) -> None:
        """Let a call pass. Raises StoreUnavailable while the store is left alone."""
        if self._next_trial is None:
            return
        if self._clock.monotonic() < self._next_trial:
            raise StoreUnavailable
        self.failed()

    def failed(self, why: BaseException | None = None) -> None:
        """A call found no store; the first of a row is told to the operator."""
        if why is not None and not self.is_open:
            log_warning("the store cannot be used", error=type(why).__name__)
        self._next_trial = self._clock.monotonic() + self._rest

    def succeeded(self) -> None:
        """A call was answered, if only with a refusal."""
        if self.is_open:
            log_warning("the store is back")
        self._next_trial = None
