"""The upstream over asyncio and httptools."""

from proxy.adapters.upstream.client import HttptoolsUpstream

__all__ = ["HttptoolsUpstream"]
