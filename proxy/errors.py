"""All errors of our own, in one tree, ordered by whose fault they are.

`UnabridgedError` is for clients: `status` and `code` are documented (docs/api.md), `code` is also a metric's
label, and `body()` has the form of OpenAI's errors. `OperatorError` is for the person who starts the server:
it has no status, and the command line prints it. The classes form a table; the module imports only the
standard library.
"""

# ruff: noqa: D101, N818 - in a table, the name of a class is its code, and its message says what it is for

from __future__ import annotations

import re
from typing import Any, ClassVar

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+")


class UnabridgedError(Exception):
    """An error that is reported to a client. Only subclasses are raised.

    A subclass states what differs from its base. One with a `message` also has a code of its own: the stated
    one, else its name in snake case. `param` names the member of the request that is at fault, `retry_after`
    is in seconds. Clients see the message, so it must not contain keys, content or internal URLs.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    default_message: ClassVar[str] = "Something went wrong inside the proxy."
    retry_after: ClassVar[int | None] = None

    def __init_subclass__(
        cls, *, message: str = "", code: str = "", status: int | None = None, retry_after: int | None = None
    ) -> None:
        cls.status = status or cls.status
        cls.type = "server_error" if cls.status >= 500 else "invalid_request_error"
        cls.code = code or ("_".join(_WORD.findall(cls.__name__)).lower() if message else cls.code)
        cls.default_message = message or cls.default_message
        cls.retry_after = retry_after or cls.retry_after

    def __init__(self, message: str | None = None, *, param: str | None = None) -> None:
        self.message: str = self.default_message if message is None else message
        self.param: str | None = param
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """Return the response body, in the form of OpenAI's errors."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


# --- the request is at fault ---


class RequestError(UnabridgedError, status=400, code="invalid_request", message="The request is not valid."):
    """The request is at fault; the client can correct it."""


class InvalidJSON(RequestError, code="invalid_json"):
    """`offset` is the offset in bytes at which the body is no longer valid JSON."""

    def __init__(self, message: str | None = None, *, offset: int) -> None:
        self.offset: int = offset
        super().__init__(message or f"The body is not valid JSON (byte {offset}).")


class InvalidType(RequestError, message="A value has the wrong type."): ...


class InvalidValue(RequestError, message="A value is not valid."): ...


class UnknownParameter(RequestError, message="There is no such parameter."): ...


class MissingParameter(
    RequestError, code="missing_required_parameter", message="A required parameter is missing."
): ...


class EmptyArray(RequestError, message="An array is empty that must not be."): ...


class InvalidEncoding(RequestError, message="The body is not valid UTF-8."): ...


class JSONTooDeep(RequestError, message="The request body is nested too deeply."): ...


class InvalidSessionId(RequestError, message="A session id has 1 to 256 printable characters."): ...


class SessionRequired(
    RequestError,
    message="Append mode needs a header that names the session, such as X-Unabridged-Session.",
): ...


class UnsupportedValue(RequestError, message="A value is not supported here."): ...


class InvalidHeader(RequestError, message="A header is not valid."): ...


class InvalidPath(RequestError, message="The path is not valid."): ...


class InvalidPolicy(RequestError, message="There is no policy of that name."): ...


class ContextLengthExceeded(RequestError, code="context_length_exceeded"):
    """What is left after all cuts does not fit. `needed`, `kept` and `limit` are tokens."""

    def __init__(self, *, needed: int, kept: int, limit: int) -> None:
        self.needed: int = needed
        self.kept: int = kept
        self.limit: int = limit
        super().__init__(
            f"This conversation needs {needed} tokens, and {kept} with its cuts; the limit is {limit}.",
            param="messages",
        )


class Unauthorized(RequestError, status=401, message="The admin token is missing or wrong."): ...


class Forbidden(RequestError, status=403, message="This credential may not do that."): ...


class OriginForbidden(
    Forbidden,
    message="Web pages of another origin may not ask here, "
    "but for those that the server's --cors-origin names.",
): ...


class HostForbidden(
    Forbidden, message="The Host is no name of this server: its --allowed-host names those that are."
): ...


class NotFound(RequestError, status=404, message="There is nothing here."): ...


class MethodNotAllowed(RequestError, status=405, message="This path does not answer that method."): ...


class RequestTimeout(RequestError, status=408, message="The request did not arrive in time."): ...


class SessionExists(RequestError, status=409, message="There is a session of that name already."): ...


class NothingToChange(RequestError, status=409, message="There is nothing to change."): ...


class SessionExpired(
    RequestError,
    status=410,
    message="This session has expired or was deleted: send the whole history, or name another.",
): ...


class RequestTooLarge(RequestError, status=413, message="The body is too large."): ...


class TooManyMessages(RequestError, status=413, message="There are too many messages."): ...


class URITooLong(RequestError, status=414, message="The URI is too long."): ...


class UnsupportedMediaType(RequestError, status=415, message="The body must be application/json."): ...


class IdempotencyKeyReused(
    RequestError,
    status=422,
    message="This Idempotency-Key belongs to a turn with other messages: a new turn needs a new key.",
): ...


class SessionBusy(
    RequestError,
    status=429,
    message="Too many turns of this session are waiting, or one has waited for too long.",
    retry_after=1,
): ...


class HeadersTooLarge(RequestError, status=431, message="The headers are too large or too many."): ...


# --- the upstream is at fault ---


class UpstreamError(UnabridgedError, status=502, message="The upstream failed."):
    """The upstream did not answer as it should.

    `why` is a word or two for the client; `detail` may contain an address, and goes only into the log.
    """

    def __init__(self, why: str = "", detail: str = "") -> None:
        self.detail: str = detail
        super().__init__(f"{self.default_message[:-1]}: {why}." if why else None)


class UpstreamUnreachable(UpstreamError, message="The upstream cannot be reached."): ...


class UpstreamInvalidResponse(UpstreamError, message="The upstream's answer is not valid."): ...


class UpstreamTruncated(
    UpstreamError, message="The upstream closed the stream before the answer was complete."
): ...


class UpstreamTimeout(UpstreamError, status=504, message="The request to the upstream timed out."): ...


# --- the server is at fault ---


class NotBuilt(
    UnabridgedError, status=501, code="not_implemented", message="The proxy does not do that."
): ...


class Unavailable(UnabridgedError, status=503, message="The proxy cannot answer now.", retry_after=1):
    """A temporary fault: the client may try again a moment later."""


class StoreUnavailable(Unavailable, message="The store cannot be reached."):
    """Internal: the engine answers without the store, except where a policy says `on_fault = "closed"`."""


class HistoryUnavailable(Unavailable, message="The history of this session cannot be read now."): ...


class HistoryNotSaved(
    Unavailable, message="The turn was answered, but could not be saved: send it again."
): ...


class Overloaded(Unavailable, message="The proxy has more to do than it can."): ...


class SearchUnavailable(Exception):
    """The search over cut messages failed. The model, not the client, is told: it can read by number."""


# --- whoever starts the server is at fault ---


class OperatorError(Exception):
    """An error for the person who starts the server, of one or more lines; never sent to a client."""

    exit_code: ClassVar[int] = 1

    def body(self) -> dict[str, Any]:
        """Return the error as JSON output of a command."""
        return {"error": {"message": str(self)}}


class SettingsError(OperatorError):
    """An option or an environment variable is wrong; the message names it."""

    exit_code = 2  # as for any other wrong usage
