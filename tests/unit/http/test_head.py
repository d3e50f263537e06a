"""What a whole head may look like."""

from __future__ import annotations

import pytest

from proxy.errors import HeadersTooLarge, InvalidPath, RequestError, UnabridgedError, URITooLong
from proxy.http.request_head import MAX_HEADER_BYTES, MAX_HEADERS, MAX_URI, check_head
from proxy.ports import Header

HOST: Header = (b"host", b"api.example")


def refusal(
    *headers: Header, version: str = "1.1", target: bytes = b"/v1/models"
) -> type[UnabridgedError] | None:
    try:
        check_head(version, target, list(headers))
    except UnabridgedError as error:
        return type(error)
    return None


@pytest.mark.parametrize("host", [b"a", b"a.example:8080", b"127.0.0.1", b"[::1]:80", b"a_b", b"a:"])
def test_one_host_is_wanted(host: bytes) -> None:
    assert refusal((b"host", host)) is None


def test_no_host_and_two_are_refused() -> None:
    assert refusal() is RequestError
    assert refusal(HOST, HOST) is RequestError


@pytest.mark.parametrize("host", [b"", b"a, b", b"a b", b"user@a", b"a/b", b"a:port", b"[::1", b"http://a"])
def test_a_host_that_names_none_is_refused(host: bytes) -> None:
    assert refusal((b"host", host)) is RequestError


def test_http_1_0_needs_no_host_and_may_not_have_two() -> None:
    assert refusal(version="1.0") is None
    assert refusal(HOST, HOST, version="1.0") is RequestError


@pytest.mark.parametrize("version", ["0.9", "2.0", "1.2"])
def test_other_versions_are_refused(version: str) -> None:
    assert refusal(HOST, version=version) is RequestError


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"identity", b"chunked, chunked", b"x"])
def test_no_coding_but_chunked_is_read(coding: bytes) -> None:
    assert refusal(HOST, (b"transfer-encoding", coding)) is RequestError
    assert refusal(HOST, (b"transfer-encoding", b"Chunked")) is None


def test_http_1_0_has_no_chunks() -> None:
    assert refusal(HOST, (b"transfer-encoding", b"chunked"), version="1.0") is RequestError


def test_as_many_headers_as_are_allowed_are() -> None:
    more = [(b"x", b"y")] * (MAX_HEADERS - 1)
    assert refusal(HOST, *more) is None
    assert refusal(HOST, *more, (b"x", b"y")) is HeadersTooLarge


def test_header_bytes_are_counted_with_colon_blank_and_line_end() -> None:
    room = MAX_HEADER_BYTES - len(b"host: api.example\r\n") - len(b"x: \r\n")
    assert refusal(HOST, (b"x", b"y" * room)) is None
    assert refusal(HOST, (b"x", b"y" * (room + 1))) is HeadersTooLarge


def test_a_target_as_long_as_is_allowed_is() -> None:
    assert refusal(HOST, target=b"/" * MAX_URI) is None
    assert refusal(HOST, target=b"/" * (MAX_URI + 1)) is URITooLong


@pytest.mark.parametrize("target", [b"http://a/v1/models", b"HTTPS://a:8080/", b"/v1/models?a=b"])
def test_a_path_or_a_whole_uri_is_a_target(target: bytes) -> None:
    assert refusal(HOST, target=target) is None


@pytest.mark.parametrize(
    "target", [b"*", b"a:443", b"http://a", b"http://a?x", b"http://u:p@a/v1", b"ftp://a/v1", b"/v1#x"]
)
def test_anything_else_is_none(target: bytes) -> None:
    assert refusal(HOST, target=target) is InvalidPath


def test_white_space_after_a_value_is_no_part_of_it() -> None:
    headers = [HOST, (b"authorization", b"Bearer x \t"), (b"x", b"")]
    check_head("1.1", b"/", headers)
    assert headers == [HOST, (b"authorization", b"Bearer x"), (b"x", b"")]
