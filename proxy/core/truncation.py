"""Texts cut to a number of UTF-8 bytes, never inside a code point."""

from collections.abc import Sequence

_MARK = "…"
_MARK_SIZE = len(_MARK.encode())
_CONTINUED, _CONTINUATION = 0xC0, 0x80
"""RFC 3629: the bytes within a code point are 10xxxxxx."""


def size(text: str) -> int:
    """Bytes of a text in UTF-8; a lone surrogate, which JSON may hold, counts three."""
    return len(text.encode(errors="surrogatepass"))


def head_of(text: str, most: int) -> str:
    """The text's beginning in at most so many bytes, a mark where something is missing; else the text."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    end = most - _MARK_SIZE
    while end > 0 and data[end] & _CONTINUED == _CONTINUATION:
        end -= 1
    return _decoded(data[:end]).rstrip() + _MARK if end >= 0 else ""


def tail_of(text: str, most: int) -> str:
    """The text's end in at most so many bytes, a mark where something is missing; else the text."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    start = len(data) - most + _MARK_SIZE
    while start < len(data) and data[start] & _CONTINUED == _CONTINUATION:
        start += 1
    return _MARK + _decoded(data[start:]).lstrip() if most >= _MARK_SIZE else ""


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """What each of several texts gets of ``room`` bytes: small ones all they need, the others as much."""
    given = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for place, index in enumerate(waiting):
        given[index] = min(sizes[index], room // (len(waiting) - place))
        room -= given[index]
    return given


def _decoded(data: bytes) -> str:
    return data.decode(errors="surrogatepass")
