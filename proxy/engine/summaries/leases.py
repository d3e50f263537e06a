"""Leases on summaries: of many workers one writes, and the others wait for its text."""

import asyncio
import contextlib
import secrets
from types import TracebackType
from typing import Self

from proxy.engine.background import keep_renewing
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey, SummaryStore

LEASE = 15.0
"""Seconds."""


class Lease:
    """The right to write one summary; given up at the end of its context, or when the summary is kept."""

    def __init__(self, store: SummaryStore, key: SessionKey, address: str, token: str) -> None:
        self._store = store
        self._key = key
        self._address = address
        self._token = token
        self._renewing: asyncio.Task[None] | None = None
        if token:
            renewing = keep_renewing(lambda: store.claim(key, address, token, LEASE), LEASE)
            self._renewing = asyncio.create_task(renewing, name="lease")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.give_up()

    async def give_up(self) -> None:
        """Let another worker write it."""
        if self._end():
            with contextlib.suppress(StoreUnavailable):  # then it runs out
                await self._store.release(self._key, self._address, self._token)

    def _end(self) -> bool:
        """Renew it no more; whether it was renewed until now."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
        return renewing is not None

    async def keep(self, text: str, ttl: float) -> bool:
        """Keep what was written, as long as nobody else has taken over; False where somebody has."""
        self._end()
        try:
            return await self._store.keep_summary(self._key, self._address, text, ttl, self._token)
        except StoreUnavailable:
            return True  # this process has it, and the note once an epoch begins


async def take(store: SummaryStore, key: SessionKey, address: str) -> Lease | None:
    """The lease on the summary at ``address``; None while another worker has it."""
    token = secrets.token_hex(8)
    try:
        if not await store.claim(key, address, token, LEASE):
            return None
    except StoreUnavailable:
        token = ""
    return Lease(store, key, address, token)
