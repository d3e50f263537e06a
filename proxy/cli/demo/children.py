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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from proxy.adapters.stores.redis import tether
from proxy.cli.terminal import CommandError
from proxy.environment import PREFIX

_START, _STOP, _GLANCE = 90.0, 15.0, 0.1
"""Seconds that a part may take to start, as a model does on a busy machine, and to end; and between looks."""
_INHERITED = "HOME LANG PATH PYTHONPATH TMPDIR COVERAGE_PROCESS_START COVERAGE_PROCESS_CONFIG".split()

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


class Proxy(NamedTuple):
    """A running proxy."""

    base_url: str
    token: str

    @property
    def server(self) -> str:
        return self.base_url.removesuffix("/v1")


@contextmanager
def running_model(directory: Path, window: int) -> Generator[str]:
    """The model's server with a window of so many tokens; gives its base URL. Raises CommandError."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    log = directory / "model.log"
    with _child(["proxy.cli.demo.model_server", str(port), str(window)], log, {}) as process:
        _wait(lambda: _answers(f"http://127.0.0.1:{port}/health"), process, log)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def running_proxy(directory: Path, upstream: str) -> Generator[Proxy]:
    """`unabridged serve` as anybody would start it, all that it keeps in `directory`. Raises CommandError."""
    policy, out, log = directory / "demo.toml", directory / "serve.json", directory / "serve.log"
    policy.write_text(POLICY, encoding="utf-8")
    flags = ["--upstream", upstream, "--policy", str(policy), "--port", "0", "--json"]
    variables = {f"{PREFIX}DATA_DIR": str(directory / "data")}
    with _child(["proxy", "serve", *flags], log, variables, out) as process:
        _wait(lambda: out.read_bytes().endswith(b"\n"), process, log)
        base_url = json.loads(out.read_bytes().splitlines()[0])["base_url"]
        token = (directory / "data" / "admin-token").read_text(encoding="ascii").strip()
        proxy = Proxy(base_url, token)
        _wait(lambda: _answers(f"{proxy.server}/readyz"), process, log)
        yield proxy


@contextmanager
def _child(
    module: Sequence[str], log: Path, variables: Mapping[str, str], out: Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A module in a process and a session of its own, with a plain environment; the demo ends it."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid())]
    with log.open("ab") as err, (out or log).open("ab") as stdout:
        process = subprocess.Popen(  # noqa: S603 - our own words
            [*tethered, sys.executable, "-m", *module],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=err,
            env={**environment, **variables},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2, trust_env=False).is_success
    except httpx2.HTTPError:
        return False


def _wait(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a part of the demo. Raises CommandError where there is nothing left to wait for."""
    deadline = time.monotonic() + _START
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise CommandError(f"a part of the demo does not start: {lines[-1] if lines else log.name}")
        time.sleep(_GLANCE)
