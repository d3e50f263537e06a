"""Whether calls of our own hold up the upstream's answers to users: measured, never assumed.

A local model often serves one request at a time, and says so nowhere. So the time from a request to the head
of its answer is compared with what is usual for its kind while no call of ours is under way.
"""

from collections import deque
from enum import Enum
from statistics import median

from proxy.cache import Lru, Memory
from proxy.ports import Clock

_SAMPLES = 16
"""Answers of a kind from which is told what is usual."""
_LEAST_SAMPLES = 3
_LATEST = 8
"""Answers beside a call of ours that count."""
_SLOWED_TIMES, _SLOWED_BY = 1.5, 0.05
"""How many times the usual, and how many seconds more, an answer takes that was held up."""
_SLOWED = 5
"""Answers held up among the latest that show an upstream that serves one request at a time."""
_FREE = 4
"""Answers that show one that serves several, if at most a quarter was held up."""
_PATIENCE_TIMES, _PATIENCE = 3.0, 0.25
"""How long an answer may keep a user waiting while nothing is known: so many times the usual, and at least so
many seconds more than that."""
_REST, _LONGEST_REST = 60.0, 3_600.0
"""Seconds after which it is tried again, at first and at most: upstreams are exchanged behind their URL."""


class _Serves(Enum):
    """How many requests the upstream serves at a time."""

    UNKNOWN = 0
    ONE = 1
    SEVERAL = 2


class Contention:
    """What this process has measured of its upstream.

    An answer's kind is what its usual time depends on: the model, and whether it is streamed.
    """

    def __init__(self, clock: Clock, memory: Memory) -> None:
        self._clock = clock
        self._alone: Lru[str, deque[float]] = Lru(memory)
        """Seconds of the latest answers of a kind while no call of ours was under way."""
        self._beside: deque[bool] = deque(maxlen=_LATEST)
        """Which of the latest answers beside a call of ours were held up."""
        self._serves = _Serves.UNKNOWN
        self._usual: float | None = None
        """Of the kind that was answered last."""
        self._rest = _REST
        self._tried_again = 0.0
        """When it is, in monotonic seconds."""

    @property
    def yields(self) -> bool:
        """Whether a call of ours waits for a pause, and ends when a user comes.

        So it does, too, as long as nobody knows what is usual, and nothing could be measured.
        """
        if self._serves is _Serves.ONE and self._clock.monotonic() >= self._tried_again:
            self._serves = _Serves.UNKNOWN
            self._beside.clear()
        return self._serves is _Serves.ONE or self._usual is None

    def patience(self, kind: str) -> float | None:
        """Seconds for which a user may wait beside a call of ours; None where it is known to hold up nobody.

        Where one waits longer, :meth:`overran` says so, and the call ends: that bounds what learning costs.
        """
        usual = self._usual_of(kind) or self._usual
        if self._serves is not _Serves.UNKNOWN or usual is None:
            return None
        return max(_PATIENCE_TIMES * usual, usual + _PATIENCE)

    def overran(self) -> None:
        """A user has waited longer than that."""
        if self._serves is _Serves.UNKNOWN:
            self._found(_Serves.ONE)

    def answered_alone(self, kind: str, seconds: float) -> None:
        """An answer's head took so long while no call of ours was under way."""
        samples = self._alone.get(kind) or deque[float](maxlen=_SAMPLES)
        samples.append(seconds)
        self._alone.put(kind, samples)
        self._usual = self._usual_of(kind) or self._usual

    def answered_beside(self, kind: str, seconds: float) -> None:
        """An answer's head took so long, and a call of ours was under way when it was asked for."""
        usual = self._usual_of(kind)
        if usual is None or self._serves is _Serves.ONE:
            return
        self._beside.append(seconds >= max(_SLOWED_TIMES * usual, usual + _SLOWED_BY))
        slowed = sum(self._beside)
        if slowed >= _SLOWED:
            self._found(_Serves.ONE)
        elif len(self._beside) >= _FREE and 4 * slowed <= len(self._beside):
            self._found(_Serves.SEVERAL)

    def _usual_of(self, kind: str) -> float | None:
        samples = self._alone.get(kind)
        return median(samples) if samples is not None and len(samples) >= _LEAST_SAMPLES else None

    def _found(self, serves: _Serves) -> None:
        self._serves = serves
        if serves is _Serves.SEVERAL:
            self._rest = _REST
            return
        self._beside.clear()
        self._tried_again = self._clock.monotonic() + self._rest
        self._rest = min(2 * self._rest, _LONGEST_REST)
