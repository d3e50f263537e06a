"""The demo's real parts, as processes of their own: the model's server, and the proxy with its store.

Whatever ends the demo ends them too: each is tethered to this process, as the embedded store is to its owner.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from proxy.adapters.redis import tether
from proxy.cli.terminal import CommandError
from proxy.config import PREFIX

START = 90.0
"""Seconds that the model may take to load on a busy machine."""
_STOP = 15.0
_GLANCE = 0.1
_OK = 200
_INHERITED = (
    "HOME",
    "LANG",
    "PATH",
    "PYTHONPATH",
    "TMPDIR",
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
)

POLICY = '''\
# The demo's policy: the default one, for a window of a thousand tokens.
extends = "default"

[importance]
low = 0.0          # at trim nothing is cut yet: it only has the summary written that compact will use

[summary]
max_tokens = 80
temperature = 0.7  # so small a model repeats itself below
prompt = """Summarise the conversation in two sentences. Name the people, places, dates and prices that the \
user mentions."""
'''


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    base_url: str
    server: str
    token: str


@contextmanager
def running_model(directory: Path, window: int) -> Generator[str]:
    """The model's server with a window of so many tokens; gives its base URL. Raises CommandError."""
    port = _free_port()
    words = [sys.executable, "-m", "proxy.cli.demo.model_server", str(port), str(window)]
    with _child(words, directory / "model.log", {}) as process:
        _wait_for(f"http://127.0.0.1:{port}/health", process, directory / "model.log")
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def running_proxy(directory: Path, upstream: str) -> Generator[Proxy]:
    """`unabridged serve` as anybody would start it, all that it keeps in `directory`. Raises CommandError."""
    policy, out, log = directory / "demo.toml", directory / "serve.json", directory / "serve.log"
    policy.write_text(POLICY, encoding="utf-8")
    flags = ["--upstream", upstream, "--policy", str(policy), "--port", "0", "--json"]
    variables = {f"{PREFIX}DATA_DIR": str(directory / "data")}
    with _child([sys.executable, "-m", "proxy", "serve", *flags], log, variables, out) as process:
        told = json.loads(_first_line(out, process, log))
        server = told["base_url"].removesuffix("/v1")
        _wait_for(f"{server}/readyz", process, log)
        token = (directory / "data" / "admin-token").read_text(encoding="ascii").strip()
        yield Proxy(told["base_url"], server, token)


@contextmanager
def _child(
    command: Sequence[str], log: Path, variables: Mapping[str, str], out: Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A process in a session of its own (Ctrl-C is for the demo, which ends it), with a plain environment."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    with log.open("ab") as err, (out or log).open("ab") as stdout:
        process = subprocess.Popen(  # noqa: S603 - our own words
            tethered,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=err,
            env={**environment, **variables},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when `url` answers 200."""
    deadline = time.monotonic() + START
    while not _is_ok(url):
        _check(process, log, deadline)


def _is_ok(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2).status_code == _OK
    except httpx2.HTTPError:
        return False


def _first_line(path: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START
    while not (text := path.read_text(encoding="utf-8")).endswith("\n"):
        _check(process, log, deadline)
    return text.splitlines()[0]


def _check(process: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Wait a moment. Raises CommandError where there is nothing left to wait for."""
    if process.poll() is not None or time.monotonic() > deadline:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise CommandError(f"a part of the demo does not start: {lines[-1] if lines else log.name}")
    time.sleep(_GLANCE)
