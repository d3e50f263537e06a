"""The port of the bill store: bills by hour and model and by session, and evidence about cuts by hour."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from proxy.core.economics.bill import Amounts, Bill
from proxy.core.proof.evidence import Counts
from proxy.ports.session_store import SessionKey

HOUR: Final = 3_600
"""Seconds in an hour. Hours are numbered from 1970, UTC."""
KEPT_HOURS: Final = 90 * 24
"""How many hours an hour's bills are kept."""


class BatchId(NamedTuple):
    """Identifies the amounts that a writer adds in one call, so that a repeated call adds them only once.

    A writer repeats a call that got no answer.
    """

    writer: str
    """The writer's name, unique among all writers."""
    number: int
    """Increases with each group of a writer."""


class BillStore(Protocol):
    """Sums of bills, which are added as :data:`Amounts`.

    Methods raise :class:`proxy.errors.StoreUnavailable` as those of a session store do.
    """

    async def add_to_hour(self, hour: int, bills: Mapping[str, Amounts], group: BatchId) -> None:
        """Add ``bills``, keyed by model name, to the bills of the hour."""
        ...

    async def add_to_session(self, key: SessionKey, bill: Amounts, ttl: float, group: BatchId) -> None:
        """Add to a session's bill, which lives as long as the session. Ignored if the session is gone.

        May be called before the session's first turn is recorded; until then the bill lives ``ttl`` seconds.
        """
        ...

    async def hours(self, first: int, last: int) -> dict[int, dict[str, Bill]]:
        """Return the bills by model of the hours ``first`` to ``last`` inclusive, without empty hours."""
        ...

    async def add_evidence(self, hour: int, evidence: Mapping[str, Counts], group: BatchId) -> None:
        """Add counts to an hour's evidence; the keys of ``evidence`` are labels chosen by the caller."""
        ...

    async def evidence(self, first: int, last: int) -> dict[int, dict[str, Counts]]:
        """Return the evidence of the hours ``first`` to ``last`` inclusive, without empty hours."""
        ...

    async def of_sessions(self, keys: Sequence[SessionKey]) -> list[Bill]:
        """Return the bills of these sessions, in the order of ``keys``."""
        ...
