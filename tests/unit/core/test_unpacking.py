"""Answers that are compressed though nobody asked for it."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.formats.unpacking import CODINGS, Unpacker, UnpackingError


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=3), st.integers(1, 30))
def test_what_was_packed_comes_out_wherever_it_is_cut(members: list[bytes], size: int) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    unpacker = Unpacker(b"gzip", 1000)
    pieces = [unpacker.feed(packed[at : at + size]) for at in range(0, len(packed), size)]
    assert b"".join(pieces) == b"".join(members)


def test_deflate_is_zlibs() -> None:
    assert Unpacker(b"deflate", 100).feed(zlib.compress(b"words")) == b"words"


def test_what_unpacks_to_more_than_the_cap_is_refused_and_exactly_the_cap_is_not() -> None:
    assert Unpacker(b"gzip", 1000).feed(gzip.compress(b" " * 1000)) == b" " * 1000
    with pytest.raises(UnpackingError):
        Unpacker(b"gzip", 1000).feed(gzip.compress(b" " * 1001))
    twice = Unpacker(b"gzip", 1000)
    assert twice.feed(gzip.compress(b" " * 600)) == b" " * 600
    with pytest.raises(UnpackingError):
        twice.feed(gzip.compress(b" " * 600))


def test_what_is_not_packed_is_refused() -> None:
    with pytest.raises(UnpackingError):
        Unpacker(b"gzip", 1000).feed(b'{"choices": []}')


def test_codings_that_need_more_than_zlib_are_not_known() -> None:
    assert {b"gzip", b"x-gzip", b"deflate"} == CODINGS
