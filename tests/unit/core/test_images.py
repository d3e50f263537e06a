"""Tokens of images, audio and files."""

from __future__ import annotations

import base64
import io
import struct
import wave
from collections.abc import Callable
from typing import SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.chat.images import image_size, image_tokens, other_part_tokens

sides = st.integers(1, 60_000)


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int) -> bytes:
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + header + bytes(100)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(100)


def jpeg(width: int, height: int, before: int = 0, frame: int = 0xC0) -> bytes:
    segments = b"\xff\xe0" + struct.pack(">H", 16) + bytes(14)
    while before > 0:
        size = min(before, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", size + 2) + b"\xff\xc0" * (size // 2) + bytes(size % 2)
        before -= size
    tables = b"\xff\xc4" + struct.pack(">H", 4) + bytes(2) + b"\xff"  # a table, then a fill byte
    sof = bytes([0xFF, frame]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + segments + tables + sof + b"\xff\xda" + bytes(200)


def webp_lossy(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height) + bytes(60)


def webp_lossless(width: int, height: int) -> bytes:
    sides = struct.pack("<I", (width - 1) | (height - 1) << 14)
    return b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + sides + bytes(60)


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + sides + bytes(60)


@pytest.mark.parametrize("image", [png, gif, jpeg, webp_lossy, webp_lossless, webp_extended])
def test_the_size_stands_in_the_first_bytes_of_every_format(image: Callable[[int, int], bytes]) -> None:
    assert image_size(url(image(1920, 1080))) == (1920, 1080)


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC2, 0xCF])
def test_a_jpegs_size_is_found_in_any_kind_of_frame(frame: int) -> None:
    assert image_size(url(jpeg(640, 480, frame=frame))) == (640, 480)


def test_a_jpegs_size_is_found_behind_a_thumbnail() -> None:
    assert image_size(url(jpeg(4000, 3000, before=60_000))) == (4000, 3000)


@pytest.mark.parametrize("marker", [0x01, 0xD0, 0xD7, 0xD8])
def test_a_jpegs_size_is_found_behind_a_marker_that_has_no_length(marker: int) -> None:
    image = jpeg(640, 480)
    assert image_size(url(image[:2] + bytes([0xFF, marker]) + image[2:])) == (640, 480)


def test_a_jpeg_that_hides_its_size_behind_more_than_is_decoded_counts_as_unseen() -> None:
    assert image_size(url(jpeg(4000, 3000, before=120_000))) is None


def test_line_breaks_in_the_base64_do_not_matter() -> None:
    data = base64.encodebytes(png(300, 200)).decode()
    assert image_size("data:image/png;base64," + data) == (300, 200)


def test_the_media_type_is_not_believed() -> None:
    assert image_size(url(gif(300, 200), kind="image/png;charset=x")) == (300, 200)


@pytest.mark.parametrize(
    "unseen",
    [
        "",
        "https://example.org/cat.png",
        "data:image/png,plain",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,\ud800äöü",
        "data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode(),
        url(png(0, 100)),
        url(png(1, 1)[:18]),
        url(jpeg(8, 8)[:30]),
        url(b"\xff\xd8"),
        url(b"RIFF\0\0\0\0WEBPVP9 " + bytes(40)),
    ],
)
def test_what_cannot_be_seen_has_no_size_and_costs_the_maximum(unseen: str) -> None:
    assert image_size(unseen) is None
    assert image_tokens(unseen, None, "gpt-4o") == 1445


starts = st.sampled_from([b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF0000WEBPVP8X", b""])


@given(st.binary(max_size=200), starts)
def test_no_bytes_break_it(data: bytes, start: bytes) -> None:
    size = image_size(url(start + data))
    assert size is None or min(size) > 0


@given(st.text(max_size=100))
def test_no_url_breaks_it(text: str) -> None:
    assert image_tokens(text, text, text) > 0
    assert image_size("data:image/png;base64," + text) is None


def test_twenty_megabytes_are_not_read() -> None:
    class Watched(str):
        __slots__ = ()
        longest = 0

        def __getitem__(self, key: SupportsIndex | slice) -> str:
            part = super().__getitem__(key)
            Watched.longest = max(Watched.longest, len(part))
            return part

    huge = Watched(url(jpeg(4000, 3000) + bytes(15_000_000)))
    assert image_tokens(huge, None, "gpt-4o") == 765
    assert 0 < Watched.longest <= 90_000


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1024, 1024, 765),  # the two examples of the guide
        (2048, 4096, 1105),
        (512, 512, 255),
        (513, 512, 425),
        (1, 1, 255),
        (1920, 1080, 1105),
        (60_000, 1, 765),
    ],
)
def test_gpt_4o_pays_by_the_tile(width: int, height: int, tokens: int) -> None:
    assert image_tokens(url(png(width, height)), "high", "openai/gpt-4o-2024-08-06") == tokens


def test_low_detail_costs_the_base_alone() -> None:
    assert image_tokens(url(png(4096, 8192)), "low", "gpt-4o") == 85
    assert image_tokens("https://example.org/cat.png", "low", "gpt-4o") == 85


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-5", 910),
        ("gpt-5-chat-latest", 910),
        ("gpt-4.1", 1105),
        ("gpt-4o-mini", 36_835),
        ("o3", 975),
        ("gpt-5-mini-2025-08-07", 2448),
        ("gpt-5.2", 2448),
        ("gpt-5.4", 2448),
        ("gpt-4.1-mini", 3305),
        ("claude-sonnet-4-5", 1105),
    ],
)
def test_each_family_has_its_own_price_for_the_same_picture(model: str, tokens: int) -> None:
    assert image_tokens(url(png(1920, 1080)), "high", model) == tokens


@pytest.mark.parametrize(
    ("model", "detail", "tokens"),
    [
        ("gpt-5.4", "high", 2942),
        ("gpt-5.4", None, 2942),
        ("gpt-5.2", "high", 3687),
        ("gpt-4.1-mini", "high", 4977),
        ("gpt-5.6-sol", None, 14_100),
    ],
)
def test_a_photograph_is_shrunk_to_the_models_patches(model: str, detail: str | None, tokens: int) -> None:
    assert image_tokens(url(png(4000, 3000)), detail, model) == tokens


@given(sides, sides)
def test_no_image_costs_more_than_one_that_cannot_be_seen(width: int, height: int) -> None:
    image = url(png(width, height))
    for model in ("gpt-4o", "gpt-5", "gpt-5.4", "gpt-4.1-nano", "o4-mini"):
        assert 0 < image_tokens(image, None, model) <= image_tokens("https://example.org/", None, model)


@given(sides, sides)
def test_turning_an_image_does_not_change_its_price(width: int, height: int) -> None:
    for model in ("gpt-4o", "gpt-5.4"):
        upright, turned = (
            image_tokens(url(image), None, model) for image in (png(width, height), png(height, width))
        )
        assert upright == turned


def sound_tokens(sound: bytes, kind: str) -> int:
    data = base64.b64encode(sound).decode()
    return other_part_tokens({"type": "input_audio", "input_audio": {"data": data, "format": kind}})


@pytest.mark.parametrize(("rate", "channels"), [(8_000, 1), (16_000, 1), (24_000, 1), (44_100, 2)])
def test_ten_seconds_of_plain_sound_are_a_hundred_tokens_at_any_rate(rate: int, channels: int) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((channels, 2, rate, 0, "NONE", ""))
        sound.writeframes(bytes(10 * rate * channels * 2))
    assert sound_tokens(file.getvalue(), "wav") == 101  # with the header


def test_a_wav_may_begin_with_something_else_than_its_format() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((2, 2, 44_100, 0, "NONE", ""))
        sound.writeframes(bytes(10 * 44_100 * 4))
    whole = file.getvalue()
    assert sound_tokens(whole[:12] + b"JUNK" + struct.pack("<I", 28) + bytes(28) + whole[12:], "wav") == 101


@pytest.mark.parametrize("tag", [b"", b"ID3\x04\x00\x00\x00\x00\x01\x05" + bytes(133)])
@pytest.mark.parametrize(
    ("header", "kbits"), [(b"\xff\xfb\x90\x64", 128), (b"\xff\xfb\xe0\x64", 320), (b"\xff\xf3\x40\xc4", 32)]
)
def test_ten_seconds_of_compressed_sound_are_a_hundred_tokens(tag: bytes, header: bytes, kbits: int) -> None:
    frames = header + bytes(kbits * 125 * 10 - 4)
    assert sound_tokens(tag + frames, "mp3") in (100, 101)


@pytest.mark.parametrize(
    "sound", [bytes(39_999), (b"\xff\xfb\x90\x64" + bytes(32) + b"Xing").ljust(39_999, b"\0")]
)
def test_sound_that_cannot_be_read_counts_as_speech(sound: bytes) -> None:
    assert sound_tokens(sound, "mp3") == 100
    assert sound_tokens(bytes(159_999), "pcm16") == 100
    assert other_part_tokens({"type": "input_audio", "input_audio": {"data": "?" * 4_000}}) == 8


def pdf(pages: int, *, begins: bytes = b"", padding: int = 0) -> bytes:
    page = b"3 0 obj\n<< /Type /Page /Parent 1 0 R >>\nendobj\n"
    tree = b"1 0 obj\n<</Type/Pages/Count %d>>\nendobj\n" % pages
    return b"%PDF-1.4\n" + begins + tree + pages * page + bytes(padding)


def file_tokens(file: bytes, scheme: str = "data:application/pdf;base64,") -> int:
    data = scheme + base64.b64encode(file).decode()
    return other_part_tokens({"type": "file", "file": {"filename": "a.pdf", "file_data": data}})


@pytest.mark.parametrize("padding", [0, 3_000_000])
def test_a_pdf_counts_by_its_pages_however_large_their_pictures_are(padding: int) -> None:
    assert file_tokens(pdf(7, padding=padding)) == file_tokens(pdf(7, padding=padding), "") == 14_000
    assert file_tokens(pdf(5_000, padding=padding)) == 2_000_000


def test_a_pdf_in_lines_counts_by_its_pages_too() -> None:
    data = base64.encodebytes(pdf(7, padding=3_000_000)).decode()
    assert other_part_tokens({"type": "file", "file": {"file_data": data}}) == 14_000


def test_a_pdf_whose_pages_are_packed_counts_by_the_number_that_it_begins_with_or_by_its_bytes() -> None:
    packed = b"<</Type/ObjStm>>"
    assert file_tokens(pdf(1, begins=b"9 0 obj\n<</Linearized 1/L 54/O 3/N 12/T 5>>\n" + packed)) == 24_000
    assert file_tokens(pdf(1, begins=packed, padding=60_000)) == 3_006
    assert file_tokens(b"PK" + pdf(7), "data:application/zip;base64,") == 1_000
    assert other_part_tokens({"type": "file", "file": {"file_data": "JVBERi0xLjQ=A"}}) == 1_000


def test_a_file_counts_by_its_bytes_between_a_floor_and_a_ceiling() -> None:
    def tokens(size: int) -> int:
        return other_part_tokens({"type": "file", "file": {"file_data": "A" * (size * 4 // 3)}})

    assert tokens(10) == 1_000
    assert tokens(60_000) == 3_000
    assert tokens(60_000_000) == 100_000


def test_a_file_named_by_its_id_counts_a_fixed_figure() -> None:
    assert other_part_tokens({"type": "file", "file": {"file_id": "file-1"}}) == 5_000


def test_an_unknown_part_counts_as_its_text_or_as_a_file() -> None:
    assert 1 <= other_part_tokens({"type": "x", "n": 1}) < 10
    assert other_part_tokens({"type": "note", "lines": ["word " * 400]}) == 503
    assert other_part_tokens({"type": "video_url", "video_url": {"url": "A" * 8_000_000}}) == 100_000


@given(
    st.dictionaries(
        st.text(max_size=9), st.none() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=9))
    )
)
def test_no_part_breaks_it(part: dict[str, object]) -> None:
    assert other_part_tokens(part) >= 1
