"""Checks of the upstream: whether it answers and accepts the key, its models, streaming, certificates."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from cryptography import x509

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.upstream import open_upstream, outbound_proxy, tls_of
from proxy.app import SystemClock
from proxy.cache import CacheMemory
from proxy.cli.doctor.findings import Finding, fail, of_clock, ok, seconds_of, warn
from proxy.config import Settings
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty
from proxy.core.formats.sse import Decoder
from proxy.core.policy.policy import Policy
from proxy.engine.models.models import Models
from proxy.engine.models.stated_windows import StatedWindows
from proxy.environment import variable
from proxy.errors import OperatorError, SettingsError, UnabridgedError, UpstreamError
from proxy.ports import Header, Upstream, header_of, is_stream

Headers = Sequence[Header]

_LISTING_BYTES = 8 * 2**20
_SECONDS = 20.0
"""Seconds that the list of models may take."""
_MOST_MODELS = 30
"""Most models whose windows are asked for one by one, if the list does not state them."""
_SDKS_KEY = "OPENAI_API_KEY"


class _Listed(NamedTuple):
    status: int
    date: str
    received: float
    """When it was received, in seconds since 1970."""
    models: list[str]


async def of_upstream(settings: Settings, model: str) -> list[Finding]:
    """Check the route, the upstream, the key and the models; with a ``model`` also streaming."""
    try:
        upstream = open_upstream(settings)
    except SettingsError as error:
        return [fail("upstream", str(error), "mend the setting; the server would not start")]
    way = f"by {upstream.proxy}" if upstream.proxy else "none is asked: connections are made directly"
    findings = [ok("outbound proxy", way)]
    key = settings.upstream_key.get_secret_value() if settings.upstream_key else os.environ.get(_SDKS_KEY, "")
    credentials = [(b"authorization", f"Bearer {key}".encode())] if key else []
    async with aclosing(upstream):
        try:
            async with asyncio.timeout(_SECONDS):
                listed = await _listed(upstream, credentials)
                is_open = bool(key) and (await _listed(upstream, ())).status == HTTPStatus.OK
        except (UnabridgedError, TimeoutError) as error:
            detail = f" ({error.detail})" if isinstance(error, UpstreamError) and error.detail else ""
            what = error.message if isinstance(error, UnabridgedError) else "It does not answer."
            advice = "see --upstream, and “When a server cannot be used” in docs/operations.md"
            return [*findings, fail("upstream", f"{settings.upstream}: {what}{detail}", advice)]
        findings.append(ok("upstream", f"{settings.upstream} answers"))
        if (sent := seconds_of(listed.date)) is not None:
            findings.append(of_clock("upstream clock", sent - listed.received))
        findings.append(_of_key(listed.status, key, is_open=is_open))
        if listed.models:
            findings.append(await _of_models(upstream, credentials, listed.models, settings))
        if model:
            findings.append(await _of_streaming(upstream, credentials, model))
    return findings


async def _listed(upstream: Upstream, credentials: Headers) -> _Listed:
    """Ask for the list of models. Raises UnabridgedError."""
    headers = [*credentials, (b"accept-encoding", b"identity")]
    response = await upstream.send("GET", "/models", headers, None)
    received, content = time.time(), bytearray()
    async with aclosing(response):
        async for chunk in response.chunks():
            content += chunk
            if len(content) > _LISTING_BYTES:
                break
    date = header_of(response.headers, b"date") or b""
    try:
        data = as_mapping(loads(bytes(content))).get("data")
    except ValueError:
        data = None
    entries: list[object] = data if isinstance(data, list) else []  # pyright: ignore[reportUnknownVariableType]
    models = [text_or_empty(as_mapping(each).get("id")) for each in entries]
    return _Listed(response.status, date.decode("latin-1"), received, sorted(filter(None, models)))


def _of_key(status: int, key: str, *, is_open: bool) -> Finding:
    """Check the key by the status of the list of models; ``is_open``: the list needs no key."""
    names = f"{variable('upstream_key')} or {_SDKS_KEY}"
    match status:
        case 200 if is_open:
            return ok("key", "the list of models wants none; whether chats take it, --ask MODEL tells")
        case 200 if key:
            return ok("key", "accepted")
        case 200:
            return ok("key", "none is set, and the list of models wants none")
        case 401 | 403 if key:
            return fail("key", f"refused ({status})", f"see {names}, and what the key may be used for")
        case 401 | 403:
            advice = f"set {names} to have a key looked at; clients send their own"
            return warn("key", f"the upstream wants one ({status}), and none is set here", advice)
        case 404:
            advice = "if chats fail with 404 too, the URL may lack its /v1"
            return warn("key", "not looked at: there is no list of models (404)", advice)
        case _:
            return warn("key", f"not looked at: the list of models gives {status}", "try again later")


async def _of_models(
    upstream: Upstream, credentials: Headers, names: Sequence[str], settings: Settings
) -> Finding:
    """Check the models: their windows under the server's policy, each with its source."""
    clock, memory = SystemClock(), CacheMemory()
    stated = StatedWindows(upstream, clock, memory)
    models = Models(stated, prices.context_window, prices.prices_of, clock, memory)
    try:
        policy = PolicyLibrary(settings.policies).load(settings.policy)
    except OperatorError:
        policy = Policy()  # what is wrong with it, its own line says
    details = list[dict[str, object]]()
    for place, name in enumerate(names):
        model = models.of("", name)
        if place < _MOST_MODELS:
            await stated.ask(model.stated, credentials)
        window = models.window(model, policy)
        details.append({"model": name, "window": window.tokens, "window_from": window.source.value})
    known = sum(each["window"] is not None for each in details)
    stands = f"{len(details)}; the windows of {known} are known"
    if known:
        return ok("models", stands, details)
    advice = "nothing is cut until the upstream refuses a request; `budget.windows` of a policy can say it"
    return warn("models", stands, advice, details)


# --- whether answers stream ---

_QUESTION = "Count from 1 to 40, separated by commas. Write nothing else."
_ANSWERED = 120.0
"""Seconds that the whole answer may take."""
_PAUSE = 0.001
"""Seconds between two parts from which on they count as sent separately; below, one part may have been read
in two. Fast models write a token every two milliseconds."""
_LEAST_EVENTS = 10
"""Number of events below which nothing can be concluded."""
_PIECES = 3
"""Most parts in which an answer arrives that was collected on the way and sent as a whole."""


async def _of_streaming(upstream: Upstream, credentials: Headers, model: str) -> Finding:
    """Let a model count, and check when the parts of its answer arrive."""
    body = dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": _QUESTION}]})
    headers = [*credentials, (b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
    decoder, events, pieces, last = Decoder(), 0, 0, 0.0
    try:
        async with asyncio.timeout(_ANSWERED):
            response = await upstream.send("POST", CHAT.path, headers, body)
            async with aclosing(response):
                async for chunk in response.chunks():
                    now = asyncio.get_running_loop().time()
                    pieces += now - last > _PAUSE
                    last = now
                    events += len(decoder.feed(chunk))
    except (UnabridgedError, TimeoutError) as error:
        why = error.message if isinstance(error, UnabridgedError) else "no answer in time"
        return fail("streaming", f"{model} did not answer: {why}", "see the upstream's line")
    if response.status != HTTPStatus.OK:
        advice = "name a chat model that the key may use; see the key's line"
        return fail("streaming", f"{model} refused to answer ({response.status})", advice)
    if not is_stream(response):
        return warn("streaming", "the answer was no stream", "this upstream does not stream: clients wait")
    counted = f"{events} events in {pieces} piece{'' if pieces == 1 else 's'}"
    if events < _LEAST_EVENTS:
        return warn("streaming", f"{counted}: too few to tell", "name a model that writes more")
    if pieces <= _PIECES:
        advice = "turn off what buffers or scans answers before the upstream (nginx: `proxy_buffering off`)"
        return warn("streaming", f"{counted}: something on the way collects answers", advice)
    return ok("streaming", counted)


# --- certificates ---

_DAY = 86_400.0
_SOON = 14 * _DAY
"""Seconds before its expiry from which on a certificate should be renewed."""


async def of_certificates(settings: Settings) -> list[Finding]:
    """Check whether the upstream's certificate is trusted, and how long it and our own are valid."""
    findings = list[Finding]()
    try:
        if urlsplit(settings.upstream).scheme == "https":
            findings += filter(None, [await _upstreams(settings)])
    except SettingsError:
        return []  # the upstream's line has it
    if (file := settings.upstream_cert) is not None:
        check = "our certificate"
        try:
            certificates = x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            what = f"{file} cannot be read: {error}"
            findings.append(fail(check, what, "name another with --upstream-cert"))
        else:  # of a file with several, the first to expire counts
            end = min(each.not_valid_after_utc for each in certificates).timestamp()
            findings.append(_by_its_end(check, end, f"renew {file}, and restart the server"))
    return findings


async def _upstreams(settings: Settings) -> Finding | None:
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
    certificate = cast("dict[str, Any]", writer.get_extra_info("peercert"))
    writer.transport.abort()  # nothing was said that a farewell would have to wait for
    return _by_its_end(
        check, ssl.cert_time_to_seconds(certificate["notAfter"]), "the upstream's operator renews it"
    )


def _by_its_end(check: str, end: float, advice: str) -> Finding:
    left, day = end - time.time(), datetime.fromtimestamp(end, UTC).date()
    if left <= 0:
        return fail(check, f"expired on {day}", advice)
    return warn(check, f"expires on {day}", advice) if left < _SOON else ok(check, f"valid until {day}")
