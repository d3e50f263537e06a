"""The decoder of event streams against a plain reading of the specification, cut anywhere."""

from __future__ import annotations

import itertools
import re

from tests.fuzz.guided import fuzz, instrumented

with instrumented():
    from proxy.core.formats.sse import Decoder


def one(data: bytes) -> None:
    """The first three bytes say where the rest is cut."""
    cuts, stream = data[:3], data[3:]
    expected = by_the_book(stream)
    assert decoded(stream) == expected
    assert decoded(*pieces(stream, cuts)) == expected
    assert decoded(*(stream[at : at + 1] for at in range(len(stream)))) == expected


def decoded(*chunks: bytes) -> list[tuple[str, bytes]]:
    decoder = Decoder()
    return [(event.name, event.data) for chunk in chunks for event in decoder.feed(chunk)]


def pieces(stream: bytes, cuts: bytes) -> list[bytes]:
    marks = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(marks)]


def by_the_book(stream: bytes) -> list[tuple[str, bytes]]:
    """WHATWG HTML 9.2.6, line by line; and the field `error`, which is ours."""
    events: list[tuple[str, bytes]] = []
    name, data = b"", list[bytes]()
    *lines, _ = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if not line:
            if data:
                events.append((name.decode("utf-8", "replace") or "message", b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field in (b"data", b"error"):
            data.append(value)
            name = b"error" if field == b"error" else name
    return events


if __name__ == "__main__":
    fuzz(one)
