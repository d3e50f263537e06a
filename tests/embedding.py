"""A scripted embeddings API: texts are alike where they speak of the same things."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from tests.servers import Exchange

DIMENSIONS = 256
CONCEPTS = {"automobile": "car", "vehicle": "car", "physician": "doctor", "money": "cash"}
"""Words of one meaning."""


def vector(text: str) -> list[float]:
    """A bag of words: each counts in one of many dimensions, and words of one meaning in the same one."""
    values = [0.0] * DIMENSIONS
    words: list[str] = re.findall(r"\w+", text.lower())
    for word in words:
        digest = sha256(CONCEPTS.get(word, word).encode()).digest()
        values[int.from_bytes(digest[:2], "big") % DIMENSIONS] += 1.0
    return values


async def embed(exchange: Exchange) -> None:
    """Answer a request for vectors."""
    asked: dict[str, Any] = json.loads(await exchange.body())
    texts: Iterable[str] = asked["input"]
    data = [
        {"object": "embedding", "index": index, "embedding": vector(text)} for index, text in enumerate(texts)
    ]
    await exchange.answer_json({"object": "list", "model": asked["model"], "data": data})
