"""`unabridged serve`: reads the settings, starts the embedded store if no other is named, runs the server.

The store begins first and ends last. With one worker the server runs in this process; with several, uvicorn's
supervisor keeps them, and hands each the settings, the store's socket included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from urllib.parse import quote, urlsplit

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import load_settings, with_secrets
from proxy.adapters.files.toml_file import FileError
from proxy.adapters.files.watcher import LoadedPolicies
from proxy.adapters.plugins import load_plugins
from proxy.adapters.stores import open_store
from proxy.adapters.stores.redis.embedded import EmbeddedValkey
from proxy.adapters.upstream import open_upstream
from proxy.app import SystemClock, begin_log, create_app
from proxy.cli.process import app_of_worker, raise_file_limit, settle, share_one_heap
from proxy.cli.terminal import CommandError, add_json_option, notes, path
from proxy.config import FLAGS, Settings
from proxy.environment import (
    ADMIN_TOKEN_FILE,
    ADMIN_TOKEN_SETTINGS,
    PREFIX,
    unknown_variables,
    variable,
    variables,
)
from proxy.errors import SettingsError, StoreUnavailable
from proxy.http.server import BACKLOG, server_config
from proxy.telemetry import log_fault, log_warning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting that is not a secret (a process list shows flags)."""
    for name, flag in FLAGS.items():
        word = f"--{name.replace('_', '-')}"
        if flag.metavar is None:
            parser.add_argument(word, action="store_true", default=None, help=flag.help)
        else:
            action = "append" if Settings.model_fields[name].default == () else "store"
            kind = path if flag.metavar in ("FILE", "DIR") else str
            parser.add_argument(word, metavar=flag.metavar, action=action, type=kind, help=flag.help)
    parser.epilog = (
        f"Each flag has a variable, {PREFIX}UPSTREAM and so on. Secrets are variables alone, or files: "
        f"{PREFIX}SECRET, {PREFIX}ADMIN_TOKEN, {PREFIX}UPSTREAM_KEY, with _FILE for a file that holds it."
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM, which raise KeyboardInterrupt. Raises OperatorError."""
    load_plugins()
    try:
        settings, written = load_settings(**{name: getattr(args, name) for name in FLAGS})
        policies = LoadedPolicies.load(PolicyLibrary(settings.policies), settings.policy, written)
        proxy = open_upstream(settings).proxy
    except FileError as error:
        raise SettingsError(str(error)) from error
    begin_log(settings)
    for name, meant in unknown_variables(Settings.model_fields):
        log_warning("there is no such setting", variable=name, nearest=meant)
    raise_file_limit()
    share_one_heap()
    with listening(settings) as listener, _store(settings) as url:
        fault = _fault_of(settings)
        listener.listen(BACKLOG)  # whoever is told where it serves may come at once
        here = {"store": url, "port": listener.getsockname()[1]}
        complete = with_secrets(settings).model_copy(update=here)
        _greet(complete, settings, fault, proxy, as_json=args.json)
        if settings.workers > 1:
            return _Supervisor(complete, policies, listener).status()
        app = create_app(complete, settle, policies, owns_store=settings.store is None)
        server = uvicorn.Server(server_config(app, request_timeout=settings.request_timeout))
        server.run(sockets=[listener])
        return 0 if server.started else 1


@contextmanager
def listening(settings: Settings) -> Generator[socket.socket]:
    """Open the listening socket, before anything else is started, so that a taken port is noticed at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host.strip("[]"), settings.port))
        except (OSError, TypeError) as error:  # TypeError: not a valid host name
            reason = error.strerror if isinstance(error, OSError) else "this is not the name of a host"
            said = f"cannot listen on {settings.host}:{settings.port}: {reason}"
            raise CommandError(f"{said}; name another --host or --port") from error
        listener.set_inheritable(True)
        yield listener


@contextmanager
def _store(settings: Settings) -> Generator[str]:
    """Yield the store's URL, and run the embedded store meanwhile if that is the one."""
    if settings.store is not None:
        yield settings.store
        return
    valkey = EmbeddedValkey(settings.data_dir / "valkey")
    try:
        valkey.start()
        yield valkey.url
    finally:
        valkey.stop()


def _fault_of(settings: Settings) -> str:
    """Return why the named store cannot be used, else empty; with the same timeouts as a worker."""
    if settings.store is None:
        return ""

    async def meet(url: str) -> None:
        async with aclosing(
            open_store(url, SystemClock(), settings.store_timeout, settings.store_breaker)
        ) as store:
            await store.meet()

    logging.disable(logging.WARNING)  # each worker will log it for itself
    try:
        asyncio.run(meet(settings.store))
    except StoreUnavailable as error:
        return error.message
    finally:
        logging.disable(logging.NOTSET)
    return ""


def store_address(url: str) -> str:
    """Return the URL of a store without its user and its parameters, which may hold a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _greet(settings: Settings, given: Settings, fault: str, proxy: str | None, *, as_json: bool) -> None:
    """Print where it serves: on stdout as one line of JSON if requested, else on stderr for people.

    A store that cannot be used has its ``fault`` told beside it, in the words of the log and of ``/readyz``.
    The page's address opens it where no token was ``given``; one that was is not shown, and neither is a
    password, the store's or the outbound proxy's.
    """
    host = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{settings.port}"
    made = settings.admin_token if given.admin_token is None else None
    has_it = next((variable(name) for name in ADMIN_TOKEN_SETTINGS if name in variables()), given.config)
    facts_for_scripts = {
        "base_url": f"{address}/v1",
        "upstream": settings.upstream,
        **({"upstream_proxy": proxy} if proxy else {}),
        "policy": settings.policy,
        **({"mode": "shadow: no request is changed"} if settings.shadow else {}),
        "store": store_address(given.store) if given.store else f"embedded, in {given.data_dir / 'valkey'}",
        **({"store_fault": fault} if fault else {}),
        "page": f"{address}/unabridged/" + (f"?token={quote(made.get_secret_value())}" if made else ""),
        "admin": f"{address}/unabridged/v1",
        "token": f"in {given.data_dir / ADMIN_TOKEN_FILE}" if made else f"as {has_it} has it",
    }
    if as_json:
        sys.stdout.write(json.dumps(facts_for_scripts) + "\n")
        sys.stdout.flush()
        return
    for name, value in facts_for_scripts.items():  # no table: an address that wraps cannot be opened
        notes().print(f"{name:<14} {value}", soft_wrap=True)


# --- several workers ---


class _Supervisor(Multiprocess):
    """Keeps workers alive, and logs when one had to be replaced.

    It follows the files of policies as its workers do, so that a new worker begins with what is in force.
    """

    def __init__(self, settings: Settings, policies: LoadedPolicies, listener: socket.socket) -> None:
        self._settings, self._policies = settings, policies
        config = partial(server_config, request_timeout=settings.request_timeout, workers=settings.workers)
        super().__init__(config(self._app, factory=True), sockets=[listener])

    @property
    def _app(self) -> Callable[[], ASGIApp]:
        return partial(app_of_worker, self._settings, self._policies)

    def status(self) -> int:
        """Serve until a signal ends it, and return the exit code."""
        self.run()
        return 1 if any(process.exitcode == STARTUP_FAILURE for process in self.processes) else 0

    def keep_subprocess_alive(self) -> None:
        try:
            self._policies = self._policies.reloaded()
        except Exception as error:  # noqa: BLE001 - policies stay as they are; the next look may succeed
            log_fault("policy files could not be looked at", error)
        self.config.app = self._app
        before = [*self.processes]
        super().keep_subprocess_alive()
        for ended, running in zip(before, self.processes, strict=True):
            if ended is not running:
                code = ended.exitcode or 0
                by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                log_warning("a worker ended, and another takes its place", by=by, pid=ended.pid)
