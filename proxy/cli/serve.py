"""`unabridged serve`: settings, the embedded store where no other is named, and uvicorn around the app.

The store begins first and ends last. With one worker the server runs in this process; with several, uvicorn's
supervisor keeps them, and each gets the settings, the store's socket included, through its environment.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import uvicorn
from pydantic import SecretStr
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.secrets import kept_secret
from proxy.adapters.plugins import load_plugins
from proxy.adapters.redis.embedded import EmbeddedValkey
from proxy.app import ADMIN_TOKEN_FILE, SECRET_FILE, create_app
from proxy.cli.descriptors import raise_file_limit
from proxy.cli.interruption import sigterm_interrupts
from proxy.cli.terminal import CommandError, add_json_option, facts, notes
from proxy.config import FLAGS, PREFIX, Settings
from proxy.errors import PolicyError, SettingsError
from proxy.http.server import BACKLOG, ServerConfig

if TYPE_CHECKING:
    from starlette.types import ASGIApp


_GARBAGE = (10_000, 20, 50)
"""New objects before the young ones are looked at; and how many such looks before the older ones are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag a setting (never a secret: a process list shows those); each has an environment variable."""
    parser.add_argument("--upstream", metavar="URL", help="stands for the /v1 of requests (OpenAI's API)")
    parser.add_argument(
        "--store", metavar="URL", help="redis://, redis+cluster://, unix://, memory:// (embedded)"
    )
    parser.add_argument("--policy", metavar="NAME|FILE", help="for requests that name none (default)")
    parser.add_argument("--policies", metavar="DIR", type=Path, help="a directory of policies")
    parser.add_argument("--host", metavar="ADDRESS", help="to listen on (127.0.0.1)")
    parser.add_argument("--port", metavar="PORT", help="to listen on; 0 is any free one (8080)")
    parser.add_argument("--workers", metavar="N", help="processes (1)")
    parser.add_argument(
        "--tenant-header", metavar="NAME", help="with which a trusted gateway names the tenant"
    )
    parser.add_argument(
        "--log-content", action="store_true", default=None, help="log contents too, at debug level"
    )
    parser.epilog = (
        f"Each flag has a variable, {PREFIX}UPSTREAM and so on. Secrets are variables alone, or files: "
        f"{PREFIX}SECRET, {PREFIX}ADMIN_TOKEN, {PREFIX}UPSTREAM_KEY, with _FILE for a file that holds it."
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. Raises OperatorError."""
    settings = Settings.load(**{name: getattr(args, name) for name in FLAGS})
    # The app reads it again; here a mistake is said once, before anything starts.
    load_plugins()
    try:
        PolicyLibrary.of(settings.policies).load(settings.policy)
    except PolicyError as error:
        raise SettingsError(str(error)) from error
    raise_file_limit()
    with sigterm_interrupts(), _listening(settings) as listener:
        try:
            with _store(settings) as url:
                complete = _complete(settings, url, listener.getsockname()[1])
                _greet(complete, is_embedded=settings.store is None, as_json=args.json)
                return _serve(complete, listener, is_embedded=settings.store is None)
        except KeyboardInterrupt:
            return 0  # how this command is meant to end


@contextmanager
def _listening(settings: Settings) -> Generator[socket.socket]:
    """The listening socket, bound before anything else so that a taken port costs nothing."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host.strip("[]"), settings.port))
        except OSError as error:
            raise CommandError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; name another --port"
            ) from error
        listener.set_inheritable(True)
        yield listener


@contextmanager
def _store(settings: Settings) -> Generator[str]:
    """The store's URL, and the embedded store for as long as it is that."""
    if settings.store is not None:
        yield settings.store
        return
    valkey = EmbeddedValkey(settings.data_dir / "valkey")
    try:
        valkey.start()
        yield valkey.url
    finally:
        valkey.stop()


def _complete(settings: Settings, store: str, port: int) -> Settings:
    """The settings with what the first start makes and every later one finds."""
    secret = settings.secret or SecretStr(kept_secret(settings.data_dir / SECRET_FILE))
    token = settings.admin_token or SecretStr(kept_secret(settings.data_dir / ADMIN_TOKEN_FILE))
    made = {"store": store, "secret": secret, "admin_token": token, "port": port}
    return settings.model_copy(update=made)


def _greet(settings: Settings, *, is_embedded: bool, as_json: bool) -> None:
    """Say where it serves: on stdout as one line of JSON where asked to, else on stderr for people.

    Neither the token nor a store's password is shown.
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{settings.port}"
    store = f"embedded, in {settings.data_dir / 'valkey'}" if is_embedded else _without_password(settings)
    told = {
        "base_url": f"{address}/v1",
        "upstream": settings.upstream,
        "policy": settings.policy,
        "store": store,
        "admin": f"{address}/unabridged/v1",
        "token": _token_hint(settings),
    }
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    else:
        notes().print(facts(told.items()))


def _without_password(settings: Settings) -> str:
    scheme, _, rest = (settings.store or "").partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _token_hint(settings: Settings) -> str:
    file = settings.data_dir / ADMIN_TOKEN_FILE
    kept = file.is_file() and file.read_text(encoding="ascii").strip()
    given = settings.admin_token.get_secret_value() if settings.admin_token else ""
    return f"in {file}" if kept == given else f"as {PREFIX}ADMIN_TOKEN has it"


# --- uvicorn ---


def _serve(settings: Settings, listener: socket.socket, *, is_embedded: bool) -> int:
    if settings.workers == 1:
        server = uvicorn.Server(_config(settings, create_app(settings, settle, owns_store=is_embedded)))
        server.run(sockets=[listener])
        return 0 if server.started else 1
    _export(settings, os.environ)
    config = _config(settings, f"{__name__}:app_from_environment", factory=True)
    listener.listen(BACKLOG)
    supervisor = Multiprocess(config, sockets=[listener])
    supervisor.run()
    return 1 if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes) else 0


def _config(settings: Settings, app: ASGIApp | str, *, factory: bool = False) -> ServerConfig:
    return ServerConfig(
        app, request_timeout=settings.request_timeout, workers=settings.workers, factory=factory
    )


def _export(settings: Settings, environment: MutableMapping[str, str]) -> None:
    """Hand the settings to workers: they inherit the environment, and read it as `Settings.load` does."""
    for name in Settings.model_fields:
        value = getattr(settings, name)
        environment.pop(f"{PREFIX}{name.upper()}", None)
        if value is None or name.endswith("_file"):
            continue
        is_secret = isinstance(value, SecretStr)
        environment[f"{PREFIX}{name.upper()}"] = value.get_secret_value() if is_secret else str(value)


def app_from_environment() -> ASGIApp:
    """The app of one worker. The worker ends with its supervisor, however that ends."""
    Thread(target=_end_with_supervisor, name="supervisor", daemon=True).start()
    return create_app(Settings.load(), settle)


def settle() -> None:
    """Keep what was built at the start, and stays, out of every later look for garbage.

    Looking for it as often as Python does by itself costs a twentieth of all work and finds next to nothing:
    only a turn that begins an epoch leaves any.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)
