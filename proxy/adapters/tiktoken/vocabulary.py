"""The o200k_base encoding, built from the file beside this module.

`tiktoken.get_encoding` downloads its vocabularies; a proxy must start where there is no network. The pattern
and the special tokens are data of the encoding, published in tiktoken's `tiktoken_ext/openai_public.py`.
Origin and licence of the file: LICENSE, beside it.
"""

from __future__ import annotations

import gzip
import hashlib
from binascii import a2b_base64
from functools import cache
from importlib.resources import files

import tiktoken

from proxy.errors import VocabularyError

_PACKAGE = "proxy.adapters.tiktoken"
_FILE = "o200k_base.tiktoken.gz"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_SPECIAL_TOKENS = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@cache
def o200k_base() -> tiktoken.Encoding:
    """The encoding, one for the process: about 0.5 s and 80 MB the first time.

    Raises VocabularyError when the shipped file is not the published one.
    """
    return tiktoken.Encoding(
        "o200k_base",
        pat_str=_PATTERN,
        mergeable_ranks=_ranks(files(_PACKAGE).joinpath(_FILE).read_bytes()),
        special_tokens=_SPECIAL_TOKENS,
    )


def _ranks(compressed: bytes) -> dict[bytes, int]:
    """Token bytes → rank, from lines of `base64 rank`."""
    content = gzip.decompress(compressed)
    if (found := hashlib.sha256(content).hexdigest()) != _SHA256:
        raise VocabularyError(f"{_FILE} is damaged (SHA-256 {found}, not {_SHA256}): reinstall")
    lines = (line.split() for line in content.splitlines())
    return {a2b_base64(token): int(rank) for token, rank in lines}
