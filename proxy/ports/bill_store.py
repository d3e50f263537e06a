"""Where bills are kept: by hour and model, and by session; and what was found out about cuts, by the hour."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from proxy.core.economics.bill import Bill
from proxy.core.proof.evidence import Counts
from proxy.ports.session_store import SessionKey

HOUR: Final = 3_600
"""Seconds; hours are numbered from 1970 on, UTC."""
KEPT: Final = 90 * 24
"""Hours for which bills of an hour are kept."""


class Group(NamedTuple):
    """What a writer adds in one go. Sent again, because no answer came, it is added once."""

    writer: str
    """A name that no other writer has."""
    number: int
    """Each group of a writer has a higher one."""


class BillStore(Protocol):
    """Bills, added up. Every method raises :class:`proxy.errors.StoreUnavailable` as a session store's do."""

    async def add_to_hour(self, hour: int, bills: Mapping[str, Bill], group: Group) -> None:
        """Add to an hour's bills, by the name of the model."""
        ...

    async def add_to_session(self, key: SessionKey, bill: Bill, ttl: float, group: Group) -> None:
        """Add to a session's bill, which lives as long as the session; of one that is gone nothing is kept.

        It may come before the first turn is recorded, and lives for ``ttl`` seconds until then.
        """
        ...

    async def hours(self, first: int, last: int) -> dict[int, dict[str, Bill]]:
        """The bills of the hours from the first to the last, by model; those without any are left out."""
        ...

    async def add_evidence(self, hour: int, evidence: Mapping[str, Counts], group: Group) -> None:
        """Add counts to an hour's evidence, by whatever it is of."""
        ...

    async def evidence(self, first: int, last: int) -> dict[int, dict[str, Counts]]:
        """The evidence of the hours from the first to the last; those without any are left out."""
        ...

    async def of_sessions(self, keys: Sequence[SessionKey]) -> list[Bill]:
        """The bills of these sessions, in their order."""
        ...
