"""Errors: each has the status and the code of the contract."""

from __future__ import annotations

import pytest

from proxy import errors
from proxy.adapters.files.toml_file import FileError
from proxy.errors import (
    ContextLengthExceeded,
    HistoryUnavailable,
    InvalidJSON,
    MissingParameter,
    OperatorError,
    Overloaded,
    UnabridgedError,
    UpstreamTimeout,
)

CONTRACT = {
    "InvalidJSON": (400, "invalid_json"),
    "InvalidType": (400, "invalid_type"),
    "MissingParameter": (400, "missing_required_parameter"),
    "EmptyArray": (400, "empty_array"),
    "InvalidEncoding": (400, "invalid_encoding"),
    "JSONTooDeep": (400, "json_too_deep"),
    "InvalidSessionId": (400, "invalid_session_id"),
    "InvalidPolicy": (400, "invalid_policy"),
    "InvalidPath": (400, "invalid_path"),
    "ContextLengthExceeded": (400, "context_length_exceeded"),
    "RequestTooLarge": (413, "request_too_large"),
    "TooManyMessages": (413, "too_many_messages"),
    "UnsupportedMediaType": (415, "unsupported_media_type"),
    "UpstreamInvalidResponse": (502, "upstream_invalid_response"),
    "UpstreamTimeout": (504, "upstream_timeout"),
    "HistoryUnavailable": (503, "history_unavailable"),
}


def every_error() -> list[type[UnabridgedError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, UnabridgedError)]


@pytest.mark.parametrize(("name", "expected"), CONTRACT.items(), ids=CONTRACT)
def test_an_error_of_the_contract_has_its_status_and_code(name: str, expected: tuple[int, str]) -> None:
    error = getattr(errors, name)
    assert (error.status, error.code) == expected


def test_no_two_errors_share_a_code() -> None:
    codes = [each.code for each in every_error()]
    assert len(codes) == len(set(codes))


def test_the_type_says_whose_fault_it_is() -> None:
    for each in every_error():
        expected = "invalid_request_error" if each.status < 500 else "server_error"
        assert each.type == expected, each


def test_the_body_has_the_shape_that_the_sdk_reads() -> None:
    error = MissingParameter("Missing required parameter: 'messages'.", param="messages")
    assert error.body() == {
        "error": {
            "message": "Missing required parameter: 'messages'.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "missing_required_parameter",
        }
    }


def test_an_error_without_a_message_says_what_its_class_says() -> None:
    assert str(UpstreamTimeout()) == UpstreamTimeout.default_message
    assert UpstreamTimeout().body()["error"]["param"] is None


def test_invalid_json_tells_the_offset() -> None:
    error = InvalidJSON(offset=17)
    assert error.offset == 17
    assert "17" in error.message


def test_a_context_that_cannot_fit_tells_what_it_needs_what_it_kept_and_the_limit() -> None:
    error = ContextLengthExceeded(needed=9000, kept=5000, limit=4000)
    assert all(number in error.message for number in ("9000", "5000", "4000"))
    assert error.param == "messages"


def test_what_may_work_a_moment_later_says_when_to_retry() -> None:
    assert HistoryUnavailable().retry_after == 1
    assert Overloaded().retry_after == 1
    assert MissingParameter().retry_after is None


def test_a_mistake_of_the_operator_is_never_an_answer_to_a_client() -> None:
    assert not issubclass(OperatorError, UnabridgedError)


def test_a_policy_error_reads_as_file_line_and_message() -> None:
    assert str(FileError("p.toml", 3, "wrong")) == "p.toml:3: wrong"
    assert str(FileError("p.toml", None, "wrong")) == "p.toml: wrong"
