from __future__ import annotations

import pytest

from proxy.errors import InvalidHeader
from proxy.http.request_head import (
    announces_body,
    check_credentials,
    content_length,
    to_client,
    to_upstream,
)
from proxy.ports import Header, header_of

HOPS: list[Header] = [
    (b"connection", b"keep-alive, X-Private ,x-other"),
    (b"Connection", b"x-third"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-authorization", b"Basic x"),
    (b"proxy-connection", b"keep-alive"),
    (b"TE", b"trailers"),
    (b"trailer", b"x-sum"),
    (b"upgrade", b"h2c"),
    (b"x-private", b"1"),
    (b"X-Other", b"1"),
    (b"x-third", b"1"),
]


def test_what_concerns_the_connection_goes_neither_way() -> None:
    assert to_upstream([*HOPS, (b"x-a", b"1")]) == [(b"x-a", b"1")]
    assert to_client([*HOPS, (b"x-a", b"1")]) == [(b"x-a", b"1")]


def test_host_and_our_own_are_all_that_a_request_loses_besides() -> None:
    kept = [(b"authorization", b"Bearer k"), (b"x-stainless-lang", b"python"), (b"x-unabridge", b"1")]
    ours = [(b"x-unabridged-session", b"s"), (b"X-Unabridged-Anything", b"1"), (b"host", b"proxy")]
    assert to_upstream([*ours, *kept]) == kept


def test_names_values_repetitions_and_order_stay() -> None:
    headers = [(b"X-B", b"caf\xe9"), (b"x-a", b""), (b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2")]
    assert to_upstream(headers) == headers
    assert to_client(headers) == headers


def test_accept_encoding_is_relayed_or_replaced_whole() -> None:
    headers = [(b"Accept-Encoding", b"gzip"), (b"x-a", b"1"), (b"accept-encoding", b"br")]
    assert to_upstream(headers) == headers
    assert to_upstream(headers, accept_encoding=b"identity") == [
        (b"x-a", b"1"),
        (b"accept-encoding", b"identity"),
    ]


def test_headers_that_no_longer_hold_are_left_out() -> None:
    headers = [(b"Content-Encoding", b"gzip"), (b"x-a", b"1")]
    assert to_upstream(headers, without={b"content-encoding"}) == [(b"x-a", b"1")]


def test_a_length_crosses_only_with_the_body_that_it_measures() -> None:
    headers = [(b"content-length", b"5"), (b"x-a", b"1")]
    assert to_client(headers) == headers
    assert to_client(headers, same_body=False) == [(b"x-a", b"1")]


def test_chunks_overrule_a_length() -> None:
    headers = [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")]
    assert to_client(headers) == []
    assert to_upstream(headers) == []


def test_headers_are_found_by_name_in_any_case() -> None:
    headers = [(b"X-A", b"1"), (b"x-a", b"2")]
    assert header_of(headers, b"x-a") == b"1"
    assert header_of(headers, b"x-b") is None


@pytest.mark.parametrize(
    ("headers", "announced"),
    [
        ([], False),
        ([(b"content-length", b"0")], False),
        ([(b"content-length", b"1")], True),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_a_body_is_announced_by_its_framing(headers: list[Header], announced: bool) -> None:
    assert announces_body(headers) is announced


def test_a_content_length_is_a_number() -> None:
    assert content_length([(b"content-length", b"12")]) == 12
    assert content_length([]) is None
    for bad in (b"-1", b"+1", b"1_0", b"", b"1, 1", b"9" * 20):
        with pytest.raises(InvalidHeader):
            content_length([(b"content-length", bad)])


def test_two_credentials_in_one_request_are_refused() -> None:
    check_credentials([(b"authorization", b"Basic x")])
    with pytest.raises(InvalidHeader):
        check_credentials([(b"authorization", b"Bearer a"), (b"Authorization", b"Bearer a")])
