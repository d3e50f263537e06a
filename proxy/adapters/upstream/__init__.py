"""The upstream: over connections of our own, or over httpx2 where more is asked for."""

from proxy.adapters.upstream.client import HttptoolsUpstream
from proxy.adapters.upstream.httpx import HttpxUpstream
from proxy.adapters.upstream.route import open_upstream, outbound_proxy, tls_of

__all__ = ["HttptoolsUpstream", "HttpxUpstream", "open_upstream", "outbound_proxy", "tls_of"]
