"""What went wrong with a connection, in words that anybody may read."""

import errno

import pytest

from proxy.adapters.faults import fault_of


def wrapped(error: BaseException) -> BaseException:
    """As redis-py raises it: under a text of its own."""
    outer = Exception(f"Error UNKNOWN while writing to socket. {error}.")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionResetError("Connection lost"), "connection reset"),  # asyncio's, without a number
        (OSError(errno.EPIPE, "Broken pipe"), "connection closed"),
        (ExceptionGroup("both", [OSError("[Errno 111] Connect call failed")]), "connection refused"),
        (TimeoutError(), "timed out"),
    ],
)
def test_a_fault_is_told_by_its_kind_however_it_was_raised(error: BaseException, kind: str) -> None:
    assert fault_of(error).kind == fault_of(wrapped(error)).kind == kind
