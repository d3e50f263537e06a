"""Vectors of texts: as an embeddings API answers them, kept small, and compared.

Wire format: OpenAI, "Create embeddings", https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, sqrt
from operator import mul
from typing import Any, TypeAlias, cast

from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import as_mapping

Vector: TypeAlias = "array[int]"
"""Of length 127 and in whole numbers: a quarter of the memory, and the same order of neighbours."""
_LENGTH = 127
BATCH = 64
"""Texts of one call."""
BATCH_BYTES = 128 * 1024
_MOST_DIMENSIONS = 8192


class Unreadable(ValueError):  # noqa: N818 - an answer, not a fault of ours
    """An answer that is not the vectors that were asked for."""


def embedding_request(model: str, texts: Sequence[str]) -> bytes:
    """The body that asks for vectors of ``texts``."""
    return dumps({"model": model, "input": list(texts), "encoding_format": "float"})


def read_vectors(raw: bytes, count: int) -> list[Vector]:
    """The ``count`` vectors of an answer, in the order of the texts. Raises Unreadable."""
    try:
        data = as_mapping(loads(raw)).get("data")
        entries = [as_mapping(entry) for entry in cast("list[object]", data)]
        vectors = [_vector(entry["embedding"]) for entry in sorted(entries, key=_index)]
    except (ValueError, TypeError, KeyError) as error:
        raise Unreadable("no embeddings") from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise Unreadable("not one embedding for each text")
    return vectors


def _index(entry: Any) -> int:
    return int(entry["index"])


def _vector(values: Sequence[float]) -> Vector:
    if not 0 < len(values) <= _MOST_DIMENSIONS:
        raise ValueError("no vector")
    length = sqrt(sum(value * value for value in values))
    if not isfinite(length):
        raise ValueError("no numbers")
    return array("b", (round(_LENGTH * value / (length or 1.0)) for value in values))


def nearest(query: Vector, vectors: Mapping[int, Vector], windows: Sequence[range], most: int) -> list[int]:
    """Indexes of the ``most`` windows whose pieces point most as ``query`` does, nearest first.

    ``vectors`` are the pieces', each embedded once; a window of which one is missing is left out.
    """
    alike = {piece: sum(map(mul, query, vector)) for piece, vector in vectors.items()}
    known = ((index, window) for index, window in enumerate(windows) if all(map(alike.__contains__, window)))
    mean = {index: sum(alike[piece] for piece in window) / len(window) for index, window in known}
    return sorted(mean, key=lambda index: (-mean[index], index))[:most]


def batches_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in calls of bearable size."""
    batch: list[str] = []
    size = 0
    for text in texts:
        new = len(text.encode(errors="surrogatepass"))
        if batch and (len(batch) == BATCH or size + new > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += new
    if batch:
        yield batch
