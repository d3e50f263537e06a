"""Commands that end when their owner does, however the owner ends: `tether.py OWNER COMMAND…`.

A process of its own, because what it does must happen between fork and exec, where a program with threads
must not run Python. On Linux it asks the kernel for a SIGTERM at the death of the thread that started it
(prctl(2), PR_SET_PDEATHSIG) and becomes the command. Elsewhere it stays, and watches its standard input, of
which the owner holds the other end. Standard library alone: it runs as a file, without the package.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_GLANCE = 0.2  # seconds between two looks at whether the command has ended by itself


@contextmanager
def tethered(
    command: Sequence[str],
    patience: float,
    *,
    out: int | IO[bytes],
    err: int | IO[bytes],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Generator[subprocess.Popen[bytes]]:
    """A command that runs while the block does, and while the thread lives that has entered it.

    It has a session of its own: Ctrl-C is for us, and we end it after us. Once told to end it has
    ``patience`` (seconds) before it is killed. The rest is as in Popen. Raises OSError.
    """
    process = subprocess.Popen(  # noqa: S603 - the owner's own words
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=err,
        cwd=cwd,
        env=env,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()


# --- in the process of the command ---


def become(owner: int, command: list[str]) -> None:
    """Turn into the command, with the kernel's promise of a SIGTERM. Returns where that cannot be had."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        return
    if os.getppid() != owner:  # it died before we asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - the owner's own words


def watch(command: list[str]) -> int:
    """Run the command until it ends, or until the owner's end of the pipe closes."""
    process = subprocess.Popen(command, close_fds=False, stdin=subprocess.DEVNULL)  # noqa: S603
    while process.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _GLANCE)
        if readable:
            process.terminate()
            return process.wait()
    return process.returncode


if __name__ == "__main__":
    if sys.platform == "linux":
        become(int(sys.argv[1]), sys.argv[2:])
    sys.exit(watch(sys.argv[2:]))
