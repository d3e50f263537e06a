"""What was decided on a request."""

import msgspec

from proxy.core.budget import Stage
from proxy.core.plan import Epoch, Plan


class Verdict(msgspec.Struct, frozen=True):
    """What a request is forwarded with."""

    plan: Plan
    stage: Stage
    """Of the view before this request's edits."""
    view: int
    """Counted tokens of the view, without the head."""
    epochs: tuple[Epoch, ...] | None
    """The lane's epochs; None where they are not known."""
    saved: int = 0
    """How many of them the store holds."""
    epoch: Epoch | None = None
    """The one in force."""
    number: int = 0
    """Epochs in force, 0 where there is none."""
    summary: str = "none"
    degraded: tuple[str, ...] = ()
