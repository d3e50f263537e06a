"""`unabridged doctor`: checks whether `serve` would work here with these settings, and gives advice.

It looks at what it finds and changes nothing, but for two things that no look can tell: where the embedded
store rests it is started for a moment, and a shared store is given a key that it drops within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Awaitable, Mapping

from proxy.adapters.files.settings import load_settings
from proxy.adapters.files.toml_file import FileError
from proxy.cli import FAILED, serve
from proxy.cli.doctor.findings import Finding, fail, shown
from proxy.cli.doctor.server import of_policies, of_port, of_settings
from proxy.cli.doctor.store import of_store
from proxy.cli.doctor.upstream import of_certificates, of_upstream
from proxy.cli.terminal import tell
from proxy.config import FLAGS
from proxy.errors import SettingsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `serve`, whose settings are checked, and one for a model that may be asked."""
    serve.add_arguments(parser)
    parser.add_argument(
        "--ask", metavar="MODEL", help="have this model count to forty, to see whether answers stream"
    )


def run(args: argparse.Namespace) -> int:
    """Check everything and print the findings; return 1 if something failed, else 0."""
    logging.disable()  # what the parts would log, the findings say
    try:
        findings = asyncio.run(_findings(args))
    finally:
        logging.disable(logging.NOTSET)
    is_well = all(each.state != "fail" for each in findings)
    report = {"ok": is_well, "checks": [each._asdict() for each in findings]}
    tell(args, report, shown(findings), wraps=False)
    return 0 if is_well else FAILED


async def _findings(args: argparse.Namespace) -> list[Finding]:
    """Return all findings, in the order in which they are printed; the checks run at the same time."""
    try:
        settings, written = load_settings(**{name: getattr(args, name) for name in FLAGS})
    except (SettingsError, FileError) as error:
        return [fail("settings", str(error), "until this is mended nothing else can be looked at")]
    checks: Mapping[str, Awaitable[list[Finding]]] = {
        "upstream": of_upstream(settings, args.ask or ""),
        "certificate": of_certificates(settings),
        "store": of_store(settings),
        "port": of_port(settings),
    }
    found = [*of_settings(settings, written), *of_policies(settings, written)]
    results = await asyncio.gather(*checks.values(), return_exceptions=True)
    for check, result in zip(checks, results, strict=True):
        if isinstance(result, list):
            found += result
        else:  # the text of an error may hold anything
            what = f"could not be looked at: {type(result).__name__}"
            found.append(fail(check, what, "this is a fault of ours; please report it"))
    return found
