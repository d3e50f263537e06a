"""Describes failures of connections: in words that are safe to publish, and in the library's for the log."""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import Final, NamedTuple, cast

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]|^Error (\d+) connecting")
"""asyncio (for a name with several addresses) and redis-py give the errno only in the message's text."""
_CLOSED: Final = "connection closed"
_TLS: Final = "TLS handshake failed"
_WORDS: Final = {
    errno.EPIPE: _CLOSED,
    errno.ETIMEDOUT: "timed out",
    errno.ECONNRESET: "connection reset",
    errno.ECONNABORTED: "connection reset",
}


class Fault(NamedTuple):
    """Why a connection could not be made, or ended."""

    kind: str
    """Words that contain no address, path or other internal detail."""
    detail: str
    """Details for the operator."""


def fault_of(error: BaseException) -> Fault:
    """Return the fault of an exception, found in it or in the exceptions that caused it."""
    causes, at = list[BaseException](), error
    while at is not None:
        causes.append(at)
        within = cast("tuple[BaseException, ...]", getattr(at, "exceptions", ()))  # an ExceptionGroup
        at = within[0] if within else at.__cause__ or at.__context__
    for each in causes:
        if kind := _kind(each):
            return Fault(kind, str(each) or str(error))
    for each in causes:
        if found := _ERRNO.search(str(each)):
            return Fault(_word(int(found[1] or found[2])), str(each))
    return Fault(_CLOSED if "closed" in str(error) else "connection failed", str(error))


def _kind(error: BaseException) -> str | None:
    match error:
        case ssl.SSLCertVerificationError():
            return "certificate not trusted"
        case ssl.SSLZeroReturnError() | ssl.SSLEOFError() | EOFError():
            return _CLOSED
        case ssl.SSLError():
            return _TLS
        case ConnectionAbortedError() if "SSL handshake" in str(error):  # asyncio: it takes too long
            return _TLS
        case socket.gaierror() | UnicodeError():
            return "name not found"
        case TimeoutError():
            return "timed out"
        case ConnectionResetError() | OSError(errno=int()):  # asyncio's own reset has no number
            return _word(error.errno or errno.ECONNRESET)
        case _:
            return None


def _word(number: int) -> str:
    return _WORDS.get(number) or os.strerror(number).lower()
