"""Checks of this machine: settings, policies, the port."""

from __future__ import annotations

import os

import httpx2

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import KEPT_SECRETS, SettingsFile, kept_secret
from proxy.adapters.files.toml_file import FileError
from proxy.adapters.plugins import load_plugins
from proxy.cli.check import remarks_on
from proxy.cli.doctor.findings import Finding, fail, ok, warn
from proxy.cli.serve import listening
from proxy.cli.terminal import CommandError
from proxy.config import Settings
from proxy.core.formats.json import as_mapping
from proxy.environment import unknown_variables, variable
from proxy.errors import OperatorError, SettingsError

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is only compared
_UNREADY = ("degraded", "starting or draining")
_KEY = "set UNABRIDGED_UPSTREAM_KEY, or take proof.share away"
_SECONDS = 5.0
"""Seconds within which the program that has the port must answer."""


def of_settings(settings: Settings, written: SettingsFile | None) -> list[Finding]:
    """Check where the settings come from, and whether secrets that are not set can be read or kept.

    Also look for variables that resemble settings but are none.
    """
    findings = list[Finding]()
    for name, meant in unknown_variables(Settings.model_fields):
        advice = f"did you mean {meant}?" if meant else "take it away"
        findings.append(warn("settings", f"{name} is no setting", advice))
    for name, kept in KEPT_SECRETS.items():
        path, fault = settings.data_dir / kept, ""
        if getattr(settings, name) is not None:
            continue
        if os.access(path, os.F_OK):
            try:
                kept_secret(path)
            except SettingsError as error:
                fault = str(error)
        else:
            above = next(each for each in path.absolute().parents if os.access(each, os.F_OK))
            if not os.access(above, os.W_OK | os.X_OK):
                fault = f"{path} cannot be kept: nothing can be written to {above}"
        if fault:
            findings.append(fail("settings", fault, f"or set {variable(name)}"))
    file = f"and {written.file.path}" if written is not None else "alone; there is no settings file"
    mode = "; in shadow, no request is changed" if settings.shadow else ""
    return [ok("settings", f"from flags and variables {file}{mode}"), *findings]


def of_policies(settings: Settings, written: SettingsFile | None) -> list[Finding]:
    """Check whether the policies that requests may get can be loaded, with the warnings of `check`."""
    try:
        load_plugins()
        library = PolicyLibrary(settings.policies)
        if written is not None:
            written.check(library)
        rules = written.rules if written is not None else ()
        read = [
            library.read(name) for name in dict.fromkeys([settings.policy, *(rule.policy for rule in rules)])
        ]
    except OperatorError as error:
        return [fail("policy", str(error), "mend it; `unabridged check FILE` tells all that is wrong")]
    findings = [
        warn("policy", str(remark), "`unabridged check` tells what follows from a policy")
        for policy, file in read
        for remark in remarks_on(policy, file)
    ]
    findings += [
        warn(
            "policy",
            f"{policy.name} has proof.share, and nothing is compared without the operator's key",
            _KEY,
        )
        for policy, _ in read
        if policy.proof.share and not settings.upstream_key
    ]
    for name in library.names():
        try:
            library.named(name)
        except FileError as error:
            findings.append(warn("policy", str(error), "requests that name it get 400 invalid_policy"))
    (first, _), *_ = read
    return [
        ok("policy", f"{first.name} ({first.digest}); {len(library.names())} policies have names"),
        *findings,
    ]


async def of_port(settings: Settings) -> list[Finding]:
    """Check whether the port is free, or already served by this program."""
    address = f"{settings.host}:{settings.port}"
    try:
        with listening(settings):
            return [ok("port", f"{address} is free" if settings.port else "any that is free")]
    except CommandError as error:
        reason = str(error)
    host = settings.host.strip("[]")
    host = _ANY_ADDRESS.get(host, host)
    host = f"[{host}]" if ":" in host else host
    try:
        async with httpx2.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            response = await client.get(f"http://{host}:{settings.port}/readyz")
        health = as_mapping(response.json())
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError):
        health = as_mapping(None)  # the program is not ours
    status = str(health.get("status") or "")
    served = f"{address} is served by this program already"
    if status == "ready":
        return [ok("port", f"{served}, and ready")]
    if status in _UNREADY:
        fault = str(health.get("store") or status)
        return [warn("port", f"{served}: {fault}", "see the store's line, and the server's log")]
    return [fail("port", reason, "end the program that has it, or name another --host or --port")]
