"""Policies with a limit of concurrent requests, for tests of that limit."""

from __future__ import annotations

from proxy.core.policy.policy import Policy, PolicySet
from proxy.http.limits import Admission


class OnePolicy:
    """A server with only the default policy, whose limit of requests is the next of a list, or its last."""

    def __init__(self, *streams: int) -> None:
        self._streams = list(streams)

    @property
    def in_force(self) -> PolicySet:
        streams = self._streams.pop(0) if len(self._streams) > 1 else self._streams[0]
        return PolicySet(Policy.model_validate({"limits": {"streams": streams}}))

    def stale(self) -> list[str]:
        return []


def admission(*streams: int, ceiling: int = 2**20) -> Admission:
    return Admission(OnePolicy(*streams or (1000,)), ceiling)
