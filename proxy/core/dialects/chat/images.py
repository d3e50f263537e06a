"""Tokens of content parts other than text: images, audio, files.

A data URL is never counted as text: an image costs what its pixels cost, and its first bytes tell its size.
Formulas and figures: OpenAI, "Images and vision", section "Calculating costs" (2026). Models of other makers
are counted like gpt-4o; where that is too little, the learned ratio rises (core/budget/learning.py).
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_base64
from collections.abc import Mapping
from math import ceil, sqrt
from typing import NamedTuple, cast

# -- what a model charges ----------------------------------------------------------------------------------


class _Tiles(NamedTuple):
    """Token prices of a model that splits images into tiles of 512 pixels."""

    base: int
    tile: int


class _Patches(NamedTuple):
    """Token prices of a model that splits images into patches of 32 pixels.

    Limits are (longest side in pixels, patches).
    """

    percent: int  # tokens per hundred patches
    low: tuple[int, int] = (2048, 6144)
    high: tuple[int, int] = (2048, 6144)
    original: tuple[int, int] = (2048, 6144)
    auto: str = "high"


_GPT_4O = _Tiles(85, 170)
_MOST_TILES = 8  # 2048 x 768
_MOST_PATCHES = 10_000  # of an image of unknown size, where the model has no limit

# First match wins. Dated names ("gpt-5-mini-2025-08-07") follow their family.
_MODELS: tuple[tuple[re.Pattern[str], _Tiles | _Patches], ...] = tuple(
    (re.compile(pattern), costs)
    for pattern, costs in (
        (r"gpt-4o-mini", _Tiles(2833, 5667)),
        (r"gpt-4\.1-mini", _Patches(162)),
        (r"gpt-4\.1-nano", _Patches(246)),
        (r"o4-mini|codex-mini", _Patches(172)),
        (r"o[13](-|$)", _Tiles(75, 150)),
        (r"gpt-5-nano", _Patches(150)),
        (r"gpt-5-mini|gpt-5\.[23]", _Patches(120)),
        (r"gpt-5\.[45]", _Patches(120, high=(2048, 2500), original=(6000, 10_000))),
        (r"gpt-5\.\d|gpt-[6-9]", _Patches(120, high=(2048, 2500), original=(65_535, 2**31), auto="original")),
        (r"gpt-5", _Tiles(70, 140)),
    )
)


def image_tokens(url: str, detail: str | None, model: str) -> int:
    """Tokens that `model` charges for the image at `url`; its maximum where the size is unknown."""
    name = model.rpartition("/")[2].lower().removeprefix("ft:")
    costs = next((costs for pattern, costs in _MODELS if pattern.match(name)), _GPT_4O)
    if isinstance(costs, _Tiles):
        if detail == "low":
            return costs.base
        size = image_size(url)
        return costs.base + costs.tile * (_tiles(*size) if size else _MOST_TILES)
    level = detail if detail in ("low", "high", "original") else costs.auto
    side, budget = {"low": costs.low, "high": costs.high, "original": costs.original}[level]
    size = image_size(url)
    patches = _patches(*_fitted(*size, side), budget) if size else min(budget, _MOST_PATCHES)
    return ceil(patches * costs.percent / 100)


def _tiles(width: int, height: int) -> int:
    """Number of 512-pixel tiles that cover the image, scaled into 2048 x 2048 and a shortest side of 768."""
    width, height = _fitted(width, height, 2048)
    shortest = min(width, height)
    if shortest > 768:
        width, height = width * 768 // shortest, height * 768 // shortest
    return ceil(width / 512) * ceil(height / 512)


def _patches(width: int, height: int, budget: int) -> int:
    """Number of 32-pixel patches that cover the image, scaled down until they are at most `budget`."""
    if (patches := ceil(width / 32) * ceil(height / 32)) <= budget:
        return patches
    shrink = sqrt(32 * 32 * budget / (width * height))
    across, down = width * shrink / 32, height * shrink / 32
    # Round down to whole patches on the side that loses most by it, so that the cover is within the budget.
    shrink *= min(max(int(across), 1) / across, max(int(down), 1) / down)
    covering = ceil(int(width * shrink) / 32) * ceil(int(height * shrink) / 32)
    return min(max(covering, 1), budget)


def _fitted(width: int, height: int, side: int) -> tuple[int, int]:
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(1, width * side // longest), max(1, height * side // longest)


# -- what a data URL holds ---------------------------------------------------------------------------------

_SIGHT = 64 * 1024  # bytes decoded at most: a JPEG's size comes after its EXIF thumbnail
_GLANCE = 2048  # bytes that suffice for most JPEGs and for every other format


def image_size(url: str) -> tuple[int, int] | None:
    """(width, height) in pixels of a PNG, JPEG, GIF or WebP in a base64 data URL; None if not found."""
    comma = url.find(",", 0, 256)
    preamble = url[: max(comma, 0)].lower()
    if not (preamble.startswith("data:") and preamble.endswith(";base64")):
        return None
    try:
        head = _decoded(url, comma + 1, _GLANCE)
        if head.startswith(b"\xff\xd8"):
            size = _jpeg_size(head) or _jpeg_size(_decoded(url, comma + 1, _SIGHT))
        else:
            size = _size(head)
    except (ValueError, struct.error):  # not base64, or cut short: the size is unknown
        return None
    return size if size and min(size) > 0 else None


def _decoded(url: str, start: int, size: int) -> bytes:
    digits = "".join(url[start : start + size // 3 * 4].split()).rstrip("=")
    return a2b_base64(digits[: len(digits) // 4 * 4])


def _size(head: bytes) -> tuple[int, int] | None:
    """The size from fixed offsets: PNG (W3C PNG 11.2.2), GIF (89a, 18), WebP (RFC 9649, 2.5 to 2.7)."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return struct.unpack_from(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", head, 6)
    match head[:4] + head[8:16]:
        case b"RIFFWEBPVP8X":
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case b"RIFFWEBPVP8L":
            (bits,) = struct.unpack_from("<I", head, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"RIFFWEBPVP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """The size in the first frame header (ITU-T T.81, B.1.1 and B.2.2), found segment by segment."""
    at = 2  # after the start-of-image marker
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _JPEG_STANDALONE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # these three are tables and extensions
_JPEG_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # no length follows (B.1.1.3): TEM, RST, SOI

# -- audio and files ---------------------------------------------------------------------------------------

_AUDIO_TOKENS = 10  # per second, of OpenAI's models
_AUDIO_BYTES = 4_000  # per second, of speech at 32 kbit/s: the length of what cannot be read
_PLAIN_AUDIO_BYTES = 16_000  # the same of WAV and PCM, of 16 bits at 8 kHz
_LEAST_RATE = 500  # bytes per second; a header that tells less is not believed
_MP3_KBITS = (  # by the index in a frame's header, from MPEG-2 (ISO 13818-3) and from MPEG-1 (ISO 11172-3)
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
)
_PAGE_TOKENS = 2_000  # of a PDF: its text and its picture
_FILE_BYTES = 20  # per token, where pages cannot be counted: a page has about 40 KB
_FILE_LEAST, _FILE_MOST, _FILE_UNSEEN = 1_000, 100_000, 5_000
# ISO 32000-1: page objects (7.7.3.3), object streams, in which they are compressed (7.5.7), and the number of
# pages, with which a file begins that is made to be shown page by page (annex F)
_PDF_PAGE = re.compile(rb"/Type\s{0,2}/Page(?![A-Za-z])")
_PDF_PAGES = re.compile(rb"/Linearized\b[^>]{0,500}/N\s{1,2}(\d{1,5})\b")
_PDF_PIECE = 2**20  # characters that are decoded at a time, so that other threads have their turn
_MOST_PAGES = 1_000  # of a PDF that a provider takes


def other_part_tokens(part: Mapping[str, object]) -> int:
    """Estimate the tokens of a content part that is neither text nor image: at least one.

    The learned ratio corrects the estimate. Audio counts by its length, a PDF by its pages, and a file whose
    pages cannot be counted by its bytes. A file named by its id counts 5,000; an unknown kind of part counts
    as its text, or as a file where that is less.
    """
    match part:
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": "wav" | "pcm16"}}:
            return _audio_tokens(data, _PLAIN_AUDIO_BYTES)
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return _audio_tokens(data, _AUDIO_BYTES)
        case {"type": "file", "file": {"file_data": str(data)}}:
            return _pdf_pages(data) * _PAGE_TOKENS or _file_tokens(_bytes(data))
        case {"type": "file"}:
            return _FILE_UNSEEN
        case _:
            characters = _characters(part)
            return max(1, min(characters // 4, _file_tokens(characters * 3 // 4)))


def _audio_tokens(data: str, usual: int) -> int:
    """Return the tokens of a WAV file by its header, or of an MP3 file by its first frame.

    Where neither is found, or the file's bit rate varies, it has the ``usual`` bytes a second.
    """
    try:
        head = _decoded(data, 0, 510)
        if head[:4] + head[8:12] == b"RIFFWAVE" and (chunk := head.find(b"fmt ", 12)) > 0:
            rate = int.from_bytes(head[chunk + 16 : chunk + 20], "little")
        else:
            rate = _mp3_rate(data, head)
    except ValueError:  # not base64
        rate = 0
    seconds = _bytes(data) / (rate if rate >= _LEAST_RATE else usual)
    return max(1, ceil(_AUDIO_TOKENS * seconds))


def _mp3_rate(data: str, head: bytes) -> int:
    start = 0
    if head.startswith(b"ID3"):  # a tag before the sound, whose length has 7 bits in each of four bytes
        start = 10 + sum(byte << 7 * place for place, byte in enumerate(head[9:5:-1]))
    frame = _decoded(data, start // 3 * 4, 60)[start % 3 :]
    is_layer_3 = len(frame) > 2 and frame[0] == 0xFF and frame[1] & 0xE6 == 0xE2
    if not is_layer_3 or b"Xing" in frame:  # which marks a bit rate that varies
        return 0
    return _MP3_KBITS[frame[1] & 0x18 == 0x18][frame[2] >> 4] * 1000 // 8


def _pdf_pages(data: str) -> int:
    """Number of pages that a PDF in base64 shows without being unpacked; 0 where it shows none."""
    pages, digits = 0, ""
    begin = data.find(",", 0, 256) + 1
    try:
        head = _decoded(data, begin, 1024)
        if not head.startswith(b"%PDF-"):
            return 0
        if stated := _PDF_PAGES.search(head):
            return min(int(stated[1]), _MOST_PAGES)
        for start in range(begin, len(data), _PDF_PIECE):
            digits += "".join(data[start : start + _PDF_PIECE].split())
            whole = len(digits) // 4 * 4  # some encoders break lines, and a piece may end anywhere
            piece, digits = a2b_base64(digits[:whole]), digits[whole:]
            if b"/ObjStm" in piece:
                return 0
            pages += sum(1 for _ in _PDF_PAGE.finditer(piece))
    except ValueError:  # not base64
        return 0
    return min(pages, _MOST_PAGES)


def _file_tokens(size: int) -> int:
    return min(max(size // _FILE_BYTES, _FILE_LEAST), _FILE_MOST)


def _bytes(base64: str) -> int:
    return len(base64) * 3 // 4


def _characters(value: object) -> int:
    """Total length of all strings within a JSON value, in characters."""
    total, rest = 0, [value]
    while rest:
        inner = rest.pop()
        if isinstance(inner, str):
            total += len(inner)
        elif isinstance(inner, Mapping):
            members = cast("Mapping[str, object]", inner)
            rest += [*members.keys(), *members.values()]
        elif isinstance(inner, list):
            rest += cast("list[object]", inner)
    return total
