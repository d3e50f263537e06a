"""Chooses how requests go upstream: over the proxy's own connections, or over the general client.

The general client is used for an outbound proxy (named by the environment), a client certificate, or HTTP/2.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from urllib.request import getproxies_environment

import httpx2

from proxy.adapters.upstream.client import HttptoolsUpstream, PooledUpstream
from proxy.adapters.upstream.httpx import HttpxUpstream
from proxy.config import PORTS, Settings, is_loopback, split_url
from proxy.environment import variable
from proxy.errors import SettingsError
from proxy.ports import Header


def open_upstream(settings: Settings, credentials: Sequence[Header] = ()) -> PooledUpstream:
    """Make the upstream from the settings and the environment, without connecting. Raises SettingsError.

    `credentials` are the operator's.
    """
    if settings.upstream_http2 and find_spec("h2") is None:
        raise SettingsError(f"{variable('upstream_http2')} needs a package: pip install 'unabridged[http2]'")
    proxy = outbound_proxy(settings.upstream)
    options: dict[str, Any] = {
        "connect_timeout": settings.upstream_connect_timeout,
        "read_timeout": settings.upstream_read_timeout,
        "credentials": credentials,
        "tls": tls_of(settings),
    }
    wants_more = proxy is not None or settings.upstream_cert is not None or settings.upstream_http2
    if wants_more or settings.http_client == "httpx":
        return HttpxUpstream(settings.upstream, proxy=proxy, http2=settings.upstream_http2, **options)
    return HttptoolsUpstream(settings.upstream, **options)


# --- outbound proxies ---


def outbound_proxy(upstream: str) -> httpx2.Proxy | None:
    """The outbound proxy for an upstream's URL by `HTTPS_PROXY` and the like; None if `NO_PROXY` excludes it.

    Also None for an upstream on loopback. Raises SettingsError if either has no valid URL.
    """
    try:
        url, proxies = httpx2.URL(upstream), getproxies_environment()
    except httpx2.InvalidURL as error:
        raise SettingsError(f"{variable('upstream')} is not a valid URL: {error}") from error
    name = next((name for name in (url.scheme, "all") if name in proxies), None)
    if name is None or is_loopback(url.host) or _is_excepted(url, proxies.get("no", "")):
        return None
    address = proxies[name] if "://" in proxies[name] else f"http://{proxies[name]}"
    try:
        proxy = httpx2.URL(address) if split_url(address) else None
    except httpx2.InvalidURL:
        proxy = None
    if proxy is None or proxy.scheme not in PORTS or not proxy.host:
        raise SettingsError(f"{name.upper()}_PROXY must be a URL such as http://proxy.example.com:3128")
    return httpx2.Proxy(proxy)


def _is_excepted(url: httpx2.URL, excepted: str) -> bool:
    """Whether `NO_PROXY` excludes a URL.

    Entries are domains with their subdomains, addresses, or networks, each with or without a port, or `*`.
    """
    host, port = url.host.lower().strip("[]").rstrip("."), str(url.port or PORTS[url.scheme])
    for entry in re.split(r"[\s,]+", excepted.lower()):
        with suppress(ValueError):  # host or entry is not an address
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False):
                return True
        named = re.fullmatch(r"(\*|\*?\.?(?P<name>[^:*]+?)\.?|\[(?P<address>.+)\])(:(?P<port>\d+))?", entry)
        if named is None or named["port"] not in {None, port}:
            continue
        name = named["name"] or named["address"]
        if name is None or f".{host}".endswith(f".{name}"):
            return True
    return False


# --- TLS ---


def tls_of(settings: Settings) -> ssl.SSLContext:
    """The TLS context: certificates to trust, client certificate. Raises SettingsError for unusable files."""
    ca, cert, key = settings.upstream_ca, settings.upstream_cert, settings.upstream_cert_key
    at, unfit = "upstream_ca", "it is not PEM that can be used"
    try:
        context = httpx2.create_ssl_context() if ca is None else ssl.create_default_context(cafile=ca)
        if cert is not None:
            at = "upstream_cert"
            ssl.create_default_context(cafile=cert)  # is it a certificate? What fails below is its key.
            at = "upstream_cert" if key is None else "upstream_cert_key"
            unfit = "it has no key of the certificate that can be used without a password"
            # Without a password the library would ask for one on the terminal.
            context.load_cert_chain(cert, key, password=b"")
    except OSError as error:  # ssl.SSLError is one
        why = unfit if isinstance(error, ssl.SSLError) else error.strerror
        file = getattr(settings, at)
        named = f"{variable(at)}: {file}" if file else f"SSL_CERT_FILE: {os.environ.get('SSL_CERT_FILE')}"
        raise SettingsError(f"{named} cannot be used: {why}") from error
    return context
