"""Writing epochs to their lanes, by compare-and-set: of two workers' epochs one counts, for both (law 3)."""

from msgspec.structs import replace

from proxy.core.plan import Epoch
from proxy.engine.case import Case
from proxy.errors import StoreUnavailable
from proxy.ports import SessionStore


class Lanes:
    """The epochs of all lanes, as the store holds them."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def catch_up(self, case: Case) -> Case:
        """Write epochs that could not be written when they began."""
        try:
            stored = await self.append(case, case.epochs or ())
        except StoreUnavailable:
            return case
        return replace(case, epochs=stored, saved=len(stored))

    async def append(self, case: Case, epochs: tuple[Epoch, ...]) -> tuple[Epoch, ...]:
        """Append to the lane what the store does not hold yet; answers what the lane then holds.

        Where others have written in the meantime their epochs count, and ours are not written. Raises
        StoreUnavailable.
        """
        place = case.saved
        while place < len(epochs):
            ttl = case.policy.store.ttl
            written = await self._store.begin_epoch(case.key, epochs[place], place, ttl)
            if not written and place:
                place = 0  # the store holds less than it did: it lost its data, and gets it back
            elif written and written[0].id != epochs[place].id:
                return (*epochs[:place], *written)
            else:
                place += 1
        return epochs
