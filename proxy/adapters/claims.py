"""Leases on writing summaries, for the store in memory."""

from proxy.ports import Clock, SessionKey

Place = tuple[SessionKey, str]
"""A session, and the address of a summary."""


class Claims:
    """Who writes which summary, and until when by ``clock``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[Place, tuple[str, float]] = {}

    def take(self, place: Place, token: str, lease: float) -> bool:
        """Take or renew a lease (seconds); whether ``token`` has it."""
        now = self._clock.monotonic()
        self._held = {each: held for each, held in self._held.items() if held[1] > now}
        if self.holder(place) not in ("", token):
            return False
        self._held[place] = (token, now + lease)
        return True

    def holder(self, place: Place) -> str:
        """The token that has the lease; empty where none has."""
        token, ends = self._held.get(place, ("", 0.0))
        return token if ends > self._clock.monotonic() else ""

    def give_up(self, place: Place, token: str) -> None:
        """End a lease, if ``token`` has it."""
        if token and self.holder(place) == token:
            del self._held[place]
