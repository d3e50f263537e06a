"""Texts cut to a number of characters, or of UTF-8 bytes, never inside a code point."""

import re
from collections.abc import Sequence

_MARK = "…"
CUT = "\n[…]\n"
"""What stands where the middle of a text was left out."""
_MARK_SIZE = len(_MARK.encode())
_CONTINUED, _CONTINUATION = 0xC0, 0x80
"""RFC 3629: the bytes within a code point are 10xxxxxx."""

_DATA_URL = re.compile(
    r"data:([\w.+-]{1,80}\\?/[\w.+-]{1,80})?(?:;[^\s;,]{1,80}){0,4};base64,(?:[A-Za-z0-9+=%_-]|\\?/)++"
)
"""RFC 2397, also within JSON that writes slashes as escapes."""


def without_data(text: str) -> str:
    """Return the text with only the type and the length of each data URL in base64."""

    def named(url: re.Match[str]) -> str:
        kind = (url[1] or "text/plain").replace("\\", "")
        return f"[{kind} data, {len(url[0])} characters]"

    return _DATA_URL.sub(named, text)


def size(text: str) -> int:
    """Size of a text in UTF-8 bytes; a lone surrogate, which JSON may hold, counts three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def head_of(text: str, most: int) -> str:
    """Return the start of a text in at most ``most`` bytes, with a mark where text is cut off."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    end = most - _MARK_SIZE
    while end > 0 and data[end] & _CONTINUED == _CONTINUATION:
        end -= 1
    return data[:end].decode(errors="surrogatepass").rstrip() + _MARK if end >= 0 else ""


def tail_of(text: str, most: int) -> str:
    """Return the end of a text in at most ``most`` bytes, with a mark where text is cut off."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    start = len(data) - most + _MARK_SIZE
    while start < len(data) and data[start] & _CONTINUED == _CONTINUATION:
        start += 1
    return _MARK + data[start:].decode(errors="surrogatepass").lstrip() if most >= _MARK_SIZE else ""


def start_of(text: str, most: int) -> str:
    """Return the start of a text in at most ``most`` characters, with a mark where text is cut off."""
    return text if len(text) <= most else text[: most - 1] + _MARK


def ends_of(text: str, most: int) -> str:
    """Return the start and the end of a text that has more than ``most`` characters; else all of it.

    Encoded data is only named.
    """
    text, half = without_data(text), most // 2
    return text if len(text) <= most else f"{text[:half]}{CUT}{text[-half:]}"


def one_line(text: str, most: int = 60) -> str:
    """Return the start of a text as one line of at most ``most`` printable characters.

    Content comes from clients, so its control characters must not reach a terminal.
    """
    whole = text.lstrip()
    beginning = " ".join(whole[: 8 * most].split())
    line = "".join(character if character.isprintable() else " " for character in beginning)
    return line if len(line) <= most and len(whole) <= 8 * most else line[: most - 1] + _MARK


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Divide ``room`` among texts: small ones get all they need, the others equal shares."""
    given = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for place, index in enumerate(waiting):
        given[index] = min(sizes[index], room // (len(waiting) - place))
        room -= given[index]
    return given
