"""Our own calls to an upstream, which nobody bills."""

from proxy.cache import CacheMemory
from proxy.core.dialects.answers import Usage
from proxy.core.dialects.registry import CHAT
from proxy.engine.models.asking import CallOptions, ModelClient
from proxy.ports import Upstream


class Unbilled:
    """Ignores the outcomes of calls."""

    def called(self, caller: CallOptions, usage: Usage | None) -> None:
        """Nothing."""

    def failed(self, caller: CallOptions, reason: str) -> None:
        """Nothing."""


def asking(upstream: Upstream) -> ModelClient:
    """Return what asks this upstream, with nothing learned yet."""
    return ModelClient(CHAT, upstream, CacheMemory(), Unbilled())
