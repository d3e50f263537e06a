"""What is looked at of the upstream: that it answers, takes the key, and what it says of its models."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.upstream import open_upstream
from proxy.app import SystemClock
from proxy.cache import Memory
from proxy.cli.doctor.findings import Finding, fail, of_clock, ok, seconds_of, warn
from proxy.cli.doctor.streaming import of_streaming
from proxy.config import Settings
from proxy.core.formats.json import as_mapping, loads, text_or_empty
from proxy.core.policy.policy import Policy
from proxy.engine.models.models import Models
from proxy.engine.models.stated_windows import StatedWindows
from proxy.environment import variable
from proxy.errors import OperatorError, SettingsError, UnabridgedError, UpstreamError
from proxy.ports import Upstream

Headers = Sequence[tuple[bytes, bytes]]

_LISTING_BYTES = 8 * 2**20
_SECONDS = 20.0
"""Seconds that the list of models may take."""
_ASKED = 30
"""Models whose windows are asked for one by one, where the list tells none."""
_OK = 200
_NOT_FOUND = 404
_REFUSED = (401, 403)
_SDKS_KEY = "OPENAI_API_KEY"


class _Listed(NamedTuple):
    """What the list of models came to."""

    status: int
    date: str
    received: float
    """Seconds since 1970."""
    models: list[str]


async def of_upstream(settings: Settings, model: str) -> list[Finding]:
    """The way there, the upstream itself, the key, the models; with a ``model``, whether answers stream."""
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
                is_open = bool(key) and (await _listed(upstream, ())).status == _OK
        except (UnabridgedError, TimeoutError) as error:
            return [*findings, _unreachable(settings, error)]
        findings.append(ok("upstream", f"{settings.upstream} answers"))
        if (sent := seconds_of(listed.date)) is not None:
            findings.append(of_clock("upstream clock", sent - listed.received))
        findings.append(_of_key(listed.status, key, is_open=is_open))
        if listed.models:
            findings.append(await _of_models(upstream, credentials, listed.models, settings))
        if model:
            findings.append(await of_streaming(upstream, credentials, model))
    return findings


def _unreachable(settings: Settings, error: Exception) -> Finding:
    detail = f" ({error.detail})" if isinstance(error, UpstreamError) and error.detail else ""
    what = error.message if isinstance(error, UnabridgedError) else "It does not answer."
    advice = "see --upstream, and “When a server cannot be used” in docs/operations.md"
    return fail("upstream", f"{settings.upstream}: {what}{detail}", advice)


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
    date = next((value for name, value in response.headers if name.lower() == b"date"), b"")
    try:
        data = as_mapping(loads(bytes(content))).get("data")
    except ValueError:
        data = None
    entries: list[object] = data if isinstance(data, list) else []  # pyright: ignore[reportUnknownVariableType]
    models = [text_or_empty(as_mapping(each).get("id")) for each in entries]
    return _Listed(response.status, date.decode("latin-1"), received, sorted(filter(None, models)))


def _of_key(status: int, key: str, *, is_open: bool) -> Finding:
    """What the status of the list of models says of the key; nothing where it ``is_open`` to everybody."""
    names = f"{variable('upstream_key')} or {_SDKS_KEY}"
    match status:
        case status if status == _OK and is_open:
            return ok("key", "the list of models wants none; whether chats take it, --ask MODEL tells")
        case status if status == _OK and key:
            return ok("key", "accepted")
        case status if status == _OK:
            return ok("key", "none is set, and the list of models wants none")
        case status if status in _REFUSED and key:
            return fail("key", f"refused ({status})", f"see {names}, and what the key may be used for")
        case status if status in _REFUSED:
            advice = f"set {names} to have a key looked at; clients send their own"
            return warn("key", f"the upstream wants one ({status}), and none is set here", advice)
        case status if status == _NOT_FOUND:
            advice = "if chats fail with 404 too, the URL may lack its /v1"
            return warn("key", "not looked at: there is no list of models (404)", advice)
        case _:
            return warn("key", f"not looked at: the list of models gives {status}", "try again later")


async def _of_models(
    upstream: Upstream, credentials: Headers, names: Sequence[str], settings: Settings
) -> Finding:
    """The models and their windows, each with who says so, under the server's policy."""
    clock, memory = SystemClock(), Memory()
    stated = StatedWindows(upstream, clock, memory)
    models = Models(stated, prices.context_window, prices.prices_of, clock, memory)
    try:
        policy = PolicyLibrary.of(settings.policies).load(settings.policy)
    except OperatorError:
        policy = Policy()  # what is wrong with it, its own line says
    details = list[dict[str, object]]()
    for place, name in enumerate(names):
        model = models.of("", name)
        if place < _ASKED:
            await stated.ask(model.stated, credentials)
        window = models.window(model, policy)
        details.append({"model": name, "window": window.tokens, "window_from": window.source.value})
    known = sum(each["window"] is not None for each in details)
    stands = f"{len(details)}; the windows of {known} are known"
    if known:
        return ok("models", stands, details)
    advice = "nothing is cut until the upstream refuses a request; `budget.windows` of a policy can say it"
    return warn("models", stands, advice, details)
