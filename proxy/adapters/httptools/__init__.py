"""The upstream over asyncio and httptools."""

from proxy.adapters.httptools.upstream import HttptoolsUpstream

__all__ = ["HttptoolsUpstream"]
