"""What an epoch is chosen by beside chain, plan and budget: the clock, and what the client asked for.

Law 3: these may decide when an epoch begins and what it cuts, never how a request is rewritten by it.
"""

import msgspec

from proxy.core.prices import Prices


class Conditions(msgspec.Struct, frozen=True):
    """The circumstances of one request."""

    idle: float | None = None
    """Seconds since the lane was last answered; None where nobody knows of an answer."""
    boundary: bool = False
    """Whether the client says that something new begins with its newest message."""
    prices: Prices | None = None
    """What tokens cost, and how the provider keeps prefixes; None where money has no say."""
    is_new_head: bool = False
    """Whether the head is another than the last one: nothing that the provider has kept is of use."""
    since: int = 0
    """Messages of the chain when its last epoch began; 0 where none is in force."""


UNKNOWN = Conditions()
