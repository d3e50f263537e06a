from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import InvalidPath, NotFound
from proxy.http.request_head import check_path, upstream_target

segments = st.lists(
    st.from_regex(r"[a-zA-Z0-9_~.:@!$&'()*+,;=-]{1,8}|%[2-7][0-9A]", fullmatch=True), max_size=5
)


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        (b"/v1/chat/completions", b"", "/chat/completions"),
        (b"/v1/models", b"after=a%2Fb&&x", "/models?after=a%2Fb&&x"),
        (b"/v1/models/ft:gpt-4o%20mini", b"", "/models/ft:gpt-4o%20mini"),
        (b"/v1/files/a..b/...", b"", "/files/a..b/..."),
        (b"/v1/", b"", "/"),
        (b"/v1", b"", ""),
    ],
)
def test_the_target_is_what_follows_v1_as_it_was_written(path: bytes, query: bytes, target: str) -> None:
    assert upstream_target(path, query) == target


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/../unabridged",
        b"/v1/..",
        b"/v1/./models",
        b"/v1/%2e%2e/unabridged",
        b"/v1/.%2E/unabridged",
        b"/v1/%2e",
        b"/../v1/models",
        b"//v1/models",
        b"/v1//models",
        b"/v1/a%2fb",
        b"/v1/a%2Fb",
        b"/v1/a%5cb",
        b"/v1/a\\b",
        b"/v1/a%00",
        b"/v1/a\0",
        b"/v1/a b",
        b"/v1/caf\xc3\xa9",
        b"v1/models",
        b"*",
        b"",
    ],
)
def test_a_path_that_could_be_read_in_two_ways_is_refused(path: bytes) -> None:
    with pytest.raises(InvalidPath):
        check_path(path)


@pytest.mark.parametrize("path", [b"/v10/models", b"/v2/models", b"/", b"/V1/models"])
def test_what_is_not_below_v1_is_not_found(path: bytes) -> None:
    with pytest.raises(NotFound):
        upstream_target(path)


@pytest.mark.parametrize("query", [b"a b", b"a\nb", b"\xe9", b"\0"])
def test_a_query_that_no_request_line_can_hold_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidPath):
        upstream_target(b"/v1/models", query)


@given(segments)
def test_plain_segments_pass_unchanged(parts: list[str]) -> None:
    parts = [part for part in parts if part not in {".", ".."} and part.lower() not in {"%2e", "%2f", "%5c"}]
    path = "".join(f"/{part}" for part in parts)
    assert upstream_target(b"/v1" + path.encode()) == path
