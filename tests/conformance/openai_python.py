"""openai-python's own suite as conformance: as many of its tests must pass through the proxy as without it.

    make conformance OPENAI_PYTHON=path/to/a/checkout

The checkout brings the SDK, the tests and the specification of the API. The upstream is steady, a mock server
that holds every request against that specification. Nothing of the checkout is copied or changed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import httpx2

from tests.clients.programs import PYTHON, node
from tests.clients.serving import START, serving

STEADY = Path(__file__).parent / "node_modules" / "@stdy" / "cli" / "steady.js"
SPECIFICATION = Path("api_reference", "openapi.transformed.yml")
SUITE = (
    "tests/api_resources/chat",
    "tests/api_resources/test_models.py",
    "tests/api_resources/test_embeddings.py",
    "tests/api_resources/test_completions.py",
)
SERIALISATION = [
    f"--validator-{place}-format=brackets"
    for place in ("query-array", "query-object", "form-array", "form-object")
]
"""How this SDK writes arrays and objects into queries and forms."""
PATIENCE = 600.0
"""Seconds for one run of the suite."""

Outcomes = dict[str, str]
"""Of each test: passed, failure, error or skipped."""


@asynccontextmanager
async def steady(specification: Path) -> AsyncGenerator[str]:
    """The mock server; yields its URL, which has no `/v1`."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    words = [str(STEADY), "--host", "127.0.0.1", "--port", str(port), "--quiet", *SERIALISATION]
    process = await asyncio.create_subprocess_exec(
        node(), *words, str(specification), stdout=asyncio.subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await _healthy(f"{url}/_x-steady/health", process)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _healthy(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(START), httpx2.AsyncClient() as client:
        while True:
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx2.TransportError:
                if process.returncode is not None:
                    raise
            await asyncio.sleep(0.1)


async def outcomes(checkout: Path, base_url: str) -> Outcomes:
    """Run the suite against a server, in the clients' environment with the SDK of the checkout."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        words = ["-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts="]
        variables = {
            **os.environ,
            "DEFER_PYDANTIC_BUILD": "false",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(checkout / "src"),
            "TEST_API_BASE_URL": base_url,
        }
        process = await asyncio.create_subprocess_exec(
            PYTHON, *words, f"--junitxml={report}", *SUITE, cwd=checkout, env=variables
        )
        async with asyncio.timeout(PATIENCE):
            await process.wait()
        return _read(report)


def _read(report: Path) -> Outcomes:
    if not report.exists():
        sys.exit("The suite did not run.")
    cases = ET.parse(report).iter("testcase")
    return {
        f"{case.get('classname')}.{case.get('name')}": next(
            (each.tag for each in case if each.tag in {"failure", "error", "skipped"}), "passed"
        )
        for case in cases
    }


async def relayed(url: str) -> int:
    """How many requests the proxy answered under `/v1`."""
    async with httpx2.AsyncClient() as client:
        told = (await client.get(f"{url}/metrics")).text
    counted = re.findall(r'^unabridged_requests_total\{route="(?:chat|relay)".*\} (\S+)$', told, re.MULTILINE)
    return sum(int(float(each)) for each in counted)


def told(name: str, found: Outcomes) -> str:
    """One line of the result."""
    tally = Counter(found.values())
    others = "".join(f", {count} {outcome}" for outcome, count in tally.items() if outcome != "passed")
    return f"{name:<18} {tally['passed']} of {len(found)} passed{others}"


async def compare(checkout: Path) -> bool:
    """Run the suite both ways; whether the proxy made no difference to any test."""
    with tempfile.TemporaryDirectory() as data:
        async with steady(checkout / SPECIFICATION) as upstream, serving(upstream, Path(data)) as proxy:
            direct = await outcomes(checkout, upstream)
            through = await outcomes(checkout, f"{proxy}/v1")
            requests = await relayed(proxy)
    different = sorted(test for test in {*direct, *through} if direct.get(test) != through.get(test))
    lines = [told("direct", direct), f"{told('through the proxy', through)} ({requests} requests)"]
    lines += [f"{test}: {direct.get(test)} direct, {through.get(test)} through" for test in different]
    sys.stdout.write("\n".join(lines) + "\n")
    return not different and "passed" in direct.values() and requests > 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        usage="make conformance OPENAI_PYTHON=CHECKOUT", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("checkout", type=Path, help="a checkout of openai-python")
    checkout: Path = parser.parse_args(arguments).checkout.resolve()
    if not (checkout / SPECIFICATION).is_file():
        parser.error(f"{checkout} is no checkout of openai-python: it has no {SPECIFICATION}")
    return 0 if asyncio.run(compare(checkout)) else 1


if __name__ == "__main__":
    sys.exit(main())
