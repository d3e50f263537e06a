"""Runs a command that ends when its owner process ends, however that happens: `tether.py OWNER COMMAND…`.

It is a process of its own, because it acts between fork and exec, where a program with threads must not run
Python. On Linux it asks the kernel for a SIGTERM when the thread that started it dies (prctl(2),
PR_SET_PDEATHSIG) and then executes the command. On other systems it stays, and watches its standard input, of
which the owner holds the other end. It uses only the standard library, as it runs as a file, without the
package.
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
_GLANCE = 0.2  # seconds between two checks whether the command has ended by itself


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
    """Run a command during the block, at most as long as the thread that entered the block lives.

    It runs in a process session of its own, so that Ctrl-C reaches only this process, which then ends it.
    After SIGTERM it has ``patience`` seconds before it is killed. The other arguments are those of Popen.
    Raises OSError.
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


# --- in the process that becomes the command ---


def become(owner: int, command: list[str]) -> None:
    """Execute the command, with a SIGTERM from the kernel when the owner dies; return if that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        return
    if os.getppid() != owner:  # the owner died before the prctl call
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
