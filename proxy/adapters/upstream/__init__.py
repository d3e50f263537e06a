"""Clients of the upstream: over the proxy's own connections, or over httpx2 where more is needed."""

from proxy.adapters.upstream.client import HttptoolsUpstream
from proxy.adapters.upstream.httpx import HttpxUpstream
from proxy.adapters.upstream.route import open_upstream, outbound_proxy, tls_of

__all__ = ["HttptoolsUpstream", "HttpxUpstream", "open_upstream", "outbound_proxy", "tls_of"]
