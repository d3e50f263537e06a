"""What is looked at of certificates: the upstream's, by a connection of its own, and ours, in its file."""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from cryptography import x509

from proxy.adapters.upstream import outbound_proxy, tls_of
from proxy.cli.doctor.findings import Finding, fail, ok, warn
from proxy.config import Settings
from proxy.errors import SettingsError

_DAY = 86_400.0
_SOON = 14 * _DAY
"""Seconds before its end in which a certificate should be renewed."""


async def of_certificates(settings: Settings) -> list[Finding]:
    """Whether the upstream's is trusted, and how long it and ours are valid."""
    findings = list[Finding]()
    try:
        if urlsplit(settings.upstream).scheme == "https":
            findings += filter(None, [await _of_upstream(settings)])
        if settings.upstream_cert is not None:
            findings.append(_of_file(settings.upstream_cert))
    except SettingsError:
        return []  # the upstream's line has it
    return findings


async def _of_upstream(settings: Settings) -> Finding | None:
    check, parts = "upstream certificate", urlsplit(settings.upstream)
    if outbound_proxy(settings.upstream) is not None:
        return ok(check, "not looked at: the way to it is by the outbound proxy")
    try:
        async with asyncio.timeout(settings.upstream_connect_timeout):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 443, ssl=tls_of(settings))
    except ssl.SSLCertVerificationError as error:
        advice = "--upstream-ca names a file of issuers to trust; a name or a date only the upstream can mend"
        return fail(check, f"not trusted: {error.verify_message}", advice)
    except (OSError, TimeoutError):
        return None  # the upstream's line has it
    told = cast("dict[str, Any]", writer.get_extra_info("peercert"))
    writer.close()
    return _by_its_end(check, ssl.cert_time_to_seconds(told["notAfter"]), "the upstream's operator renews it")


def _of_file(file: Path) -> Finding:
    """Of our own, the first that ends counts; what signed it may stand in the same file."""
    check = "our certificate"
    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError) as error:
        return fail(check, f"{file} cannot be read: {error}", "name another with --upstream-cert")
    end = min(each.not_valid_after_utc for each in certificates).timestamp()
    return _by_its_end(check, end, f"renew {file}, and restart the server")


def _by_its_end(check: str, end: float, advice: str) -> Finding:
    left, day = end - time.time(), datetime.fromtimestamp(end, UTC).date()
    if left <= 0:
        return fail(check, f"expired on {day}", advice)
    return warn(check, f"expires on {day}", advice) if left < _SOON else ok(check, f"valid until {day}")
