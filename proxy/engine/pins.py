"""Pins that clients set: read with the session, written before the request that sets them is forwarded.

Keeps law 6 (isolated): a pin is a chain hash in its own session, so it holds for the chains through that
message and for no other. And law 7: pins that cannot be written hold in this process, and the answer says so.
"""

from collections.abc import Set as AbstractSet

from proxy.core.extension import MEMBER
from proxy.engine.recognition import Recognised
from proxy.errors import InvalidValue, StoreUnavailable
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey, SessionStore

MOST = 1_000
"""Pins of one session: each of its requests reads them all."""
_NONE: frozenset[bytes] = frozenset()
_PIN_BYTES = 128
"""What a pin is reckoned at."""


class Pins:
    """The pins of all sessions of this process."""

    def __init__(self, store: SessionStore, memory: Memory) -> None:
        self._store = store
        self._held: Lru[SessionKey, frozenset[bytes]] = Lru(memory, _weight)
        """Pins that were set here and have not been read back yet."""

    async def settle(
        self, recognised: Recognised, asked: AbstractSet[bytes], ttl: float
    ) -> tuple[frozenset[bytes], tuple[str, ...]]:
        """All pins of a session, those that a request asks for among them; and what is degraded.

        Nobody waits for anything where none are new. Raises InvalidValue where there are too many.
        """
        found, key = recognised.found, recognised.key
        stored = frozenset(found.session.pins) if found.session and found.session.pins else _NONE
        held = _NONE if found.was_here else self._held.get(key) or _NONE
        missing = (held | asked) - stored
        if not missing:
            self._held.drop(key)
            return stored, ()
        pins = stored | missing
        if len(pins) > MOST:
            raise InvalidValue(f"A session has at most {MOST} pins.", param=f"{MEMBER}.pin")
        self._held.put(key, missing)
        try:
            await self._store.pin(key, sorted(missing), ttl)
        except StoreUnavailable:
            return pins, ("pins-not-saved",)
        return pins, ()

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._held.drop(key)


def _weight(pins: AbstractSet[bytes]) -> int:
    return _PIN_BYTES * len(pins)
