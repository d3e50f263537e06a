"""Every error of our own, in one tree, by whose fault it is.

`UnabridgedError` is for clients: `status` and `code` are the contract (docs/api.md), `code` is also a
metric's label, and `body()` is OpenAI's error shape. `OperatorError` is for whoever starts the server: it has
no status, and the command line prints it. A table in the form of classes, made of the standard library alone.
"""

# ruff: noqa: D101, N818 - in a table, the name of a class is its code, and its message says what it is for

from __future__ import annotations

from typing import Any, ClassVar


class UnabridgedError(Exception):
    """Something to tell a client. Raise a subclass.

    `param` names the offending member of the request, `retry_after` is in seconds. The message is seen by
    clients: no key, no content and no internal URL belongs in it.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    default_message: ClassVar[str] = "Something went wrong inside the proxy."
    default_retry_after: ClassVar[int | None] = None

    def __init__(
        self, message: str | None = None, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        self.message: str = self.default_message if message is None else message
        self.param: str | None = param
        self.retry_after: int | None = self.default_retry_after if retry_after is None else retry_after
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """The answer's JSON, in the shape of OpenAI's errors."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


# --- the request is at fault ---


class RequestError(UnabridgedError):
    """The client can mend it."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"
    default_message = "The request is not valid."


class InvalidJSON(RequestError):
    """`offset` is the byte at which the body stops being JSON."""

    code = "invalid_json"

    def __init__(self, message: str | None = None, *, offset: int) -> None:
        self.offset: int = offset
        super().__init__(message or f"The body is not valid JSON (byte {offset}).")


class InvalidType(RequestError):
    code = "invalid_type"
    default_message = "A value has the wrong type."


class InvalidValue(RequestError):
    code = "invalid_value"
    default_message = "A value is not valid."


class UnknownParameter(RequestError):
    code = "unknown_parameter"
    default_message = "There is no such parameter."


class MissingParameter(RequestError):
    code = "missing_required_parameter"
    default_message = "A required parameter is missing."


class EmptyArray(RequestError):
    code = "empty_array"
    default_message = "An array is empty that must not be."


class InvalidEncoding(RequestError):
    code = "invalid_encoding"
    default_message = "The body is not valid UTF-8."


class JSONTooDeep(RequestError):
    code = "json_too_deep"
    default_message = "The body is nested too deeply."


class InvalidSessionId(RequestError):
    code = "invalid_session_id"
    default_message = "A session id is at most 256 printable characters."


class SessionRequired(RequestError):
    code = "session_required"
    default_message = "Append mode needs a header that names the session, such as X-Unabridged-Session."


class UnsupportedValue(RequestError):
    code = "unsupported_value"
    default_message = "A value is not supported here."


class InvalidHeader(RequestError):
    code = "invalid_header"
    default_message = "A header is not valid."


class InvalidPath(RequestError):
    code = "invalid_path"
    default_message = "The path is not valid."


class InvalidPolicy(RequestError):
    code = "invalid_policy"
    default_message = "There is no policy of that name."


class ContextLengthExceeded(RequestError):
    """What cannot be cut does not fit. `needed`, `kept` and `limit` are tokens."""

    code = "context_length_exceeded"

    def __init__(self, *, needed: int, kept: int, limit: int) -> None:
        self.needed: int = needed
        self.kept: int = kept
        self.limit: int = limit
        super().__init__(
            f"This conversation needs {needed} tokens; {kept} of them cannot be cut, the limit is {limit}.",
            param="messages",
        )


class Unauthorized(RequestError):
    status = 401
    code = "unauthorized"
    default_message = "The admin token is missing or wrong."


class Forbidden(RequestError):
    status = 403
    code = "forbidden"
    default_message = "This credential may not do that."


class OriginForbidden(Forbidden):
    code = "origin_forbidden"
    default_message = (
        "Web pages of another origin may not ask here, but for those that the server's --cors-origin names."
    )


class HostForbidden(Forbidden):
    code = "host_forbidden"
    default_message = "The Host is no name of this server: its --allowed-host names those that are."


class NotFound(RequestError):
    status = 404
    code = "not_found"
    default_message = "There is nothing here."


class MethodNotAllowed(RequestError):
    status = 405
    code = "method_not_allowed"
    default_message = "This path does not answer that method."


class RequestTimeout(RequestError):
    status = 408
    code = "request_timeout"
    default_message = "The request did not arrive in time."


class SessionExists(RequestError):
    status = 409
    code = "session_exists"
    default_message = "There is a session of that name already."


class NothingToChange(RequestError):
    status = 409
    code = "nothing_to_change"
    default_message = "There is nothing to change."


class SessionExpired(RequestError):
    status = 410
    code = "session_expired"
    default_message = "This session has expired or was deleted: send the whole history, or name another."


class RequestTooLarge(RequestError):
    status = 413
    code = "request_too_large"
    default_message = "The body is too large."


class TooManyMessages(RequestError):
    status = 413
    code = "too_many_messages"
    default_message = "There are too many messages."


class URITooLong(RequestError):
    status = 414
    code = "uri_too_long"
    default_message = "The URI is too long."


class UnsupportedMediaType(RequestError):
    status = 415
    code = "unsupported_media_type"
    default_message = "The body must be application/json."


class IdempotencyKeyReused(RequestError):
    status = 422
    code = "idempotency_key_reused"
    default_message = (
        "This Idempotency-Key belongs to a turn with other messages: a new turn needs a new key."
    )


class SessionBusy(RequestError):
    status = 429
    code = "session_busy"
    default_message = "Too many turns of this session are waiting, or one has waited for too long."
    default_retry_after = 1


class HeadersTooLarge(RequestError):
    status = 431
    code = "headers_too_large"
    default_message = "The headers are too large or too many."


# --- the upstream is at fault ---


class UpstreamError(UnabridgedError):
    """Whatever stands behind the proxy did not answer as it should.

    `why` is told in a word or two that anybody may read; `detail` may hold an address, and is for the log.
    """

    status = 502
    code = "upstream_error"
    default_message = "The upstream failed."

    def __init__(self, why: str = "", detail: str = "") -> None:
        self.detail: str = detail
        super().__init__(f"{self.default_message[:-1]}: {why}." if why else None)


class UpstreamUnreachable(UpstreamError):
    code = "upstream_unreachable"
    default_message = "The upstream cannot be reached."


class UpstreamInvalidResponse(UpstreamError):
    code = "upstream_invalid_response"
    default_message = "The upstream's answer is not valid."


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"
    default_message = "The request to the upstream timed out."


# --- the server is at fault ---


class NotBuilt(UnabridgedError):
    status = 501
    code = "not_implemented"
    default_message = "The proxy does not do that."


class Unavailable(UnabridgedError):
    """It may work a moment later."""

    status = 503
    code = "unavailable"
    default_message = "The proxy cannot answer now."
    default_retry_after = 1


class StoreUnavailable(Unavailable):
    """Internal: the engine answers without the store, except where a policy says `on_fault = "closed"`."""

    code = "store_unavailable"
    default_message = "The store cannot be reached."


class HistoryUnavailable(Unavailable):
    code = "history_unavailable"
    default_message = "The history of this session cannot be read now."


class HistoryNotSaved(Unavailable):
    code = "history_not_saved"
    default_message = "The turn was answered, but could not be saved: send it again."


class Overloaded(Unavailable):
    code = "overloaded"
    default_message = "The proxy has more to do than it can."


class SearchUnavailable(Exception):
    """What was cut cannot be searched. No client hears of it: the model is told to read by number."""


# --- whoever starts the server is at fault ---


class OperatorError(Exception):
    """Something to tell whoever starts the server, a line or several: never an answer to a client."""

    exit_code: ClassVar[int] = 1

    def body(self) -> dict[str, Any]:
        """What is printed where JSON is asked for."""
        return {"error": {"message": str(self)}}


class SettingsError(OperatorError):
    """An option or an environment variable is wrong; the message names it."""

    exit_code = 2  # as for any other wrong usage
