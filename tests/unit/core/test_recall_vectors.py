"""Vectors as an embeddings API answers them."""

from __future__ import annotations

import json

import pytest

from proxy.core.recall.vectors import BATCH, Unreadable, batches_of, embedding_request, nearest, read_vectors


def answer(*vectors: list[float]) -> bytes:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return json.dumps({"data": data[::-1]}).encode()


def test_a_request_asks_for_plain_numbers() -> None:
    asked = json.loads(embedding_request("small", ["one", "two"]))
    assert asked == {"model": "small", "input": ["one", "two"], "encoding_format": "float"}


def test_vectors_come_in_the_order_of_their_texts() -> None:
    first, second = read_vectors(answer([3.0, 4.0], [0.0, 9.0]), 2)
    assert list(first) == [76, 102]
    assert list(second) == [0, 127]


def test_length_does_not_matter() -> None:
    assert read_vectors(answer([0.03, 0.04]), 1) == read_vectors(answer([300, 400]), 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data": 7}',
        b'{"data": [7]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [null]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999]}]}',
        answer([1.0], [2.0]),
    ],
)
def test_anything_else_is_no_vector(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        read_vectors(raw, 1)


def test_vectors_of_several_lengths_cannot_be_compared() -> None:
    with pytest.raises(Unreadable):
        read_vectors(answer([1.0], [1.0, 2.0]), 2)


def test_what_points_the_same_way_is_nearest() -> None:
    query, *vectors = read_vectors(answer([1.0, 0.1], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]), 4)
    by_piece = dict(enumerate(vectors))
    assert nearest(query, by_piece, [range(1), range(1, 2), range(2, 3)], 2) == [1, 0]
    assert nearest(query, by_piece, [range(2), range(1, 3)], 2) == [0, 1]


def test_a_window_that_is_not_embedded_whole_is_left_out() -> None:
    query, vector = read_vectors(answer([1.0], [1.0]), 2)
    assert nearest(query, {1: vector}, [range(2), range(1, 2)], 2) == [1]


def test_batches_are_of_bearable_size() -> None:
    texts = ["x" * 5000] * 100
    batches = list(batches_of(texts))
    assert [text for batch in batches for text in batch] == texts
    assert max(len(batch) for batch in batches) <= BATCH
    assert len(batches) > 2
    assert list(batches_of(["x" * 10**6])) == [["x" * 10**6]]
    assert list(batches_of([])) == []
