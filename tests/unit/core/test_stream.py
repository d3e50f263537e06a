"""The usage that only the proxy asked for is taken out of a stream, and nothing else is."""

from itertools import pairwise

import pytest

from proxy.core.dialects.chat.stream_filters import UsageRemover
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import loads

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"caf\xc3\xa9"}}],"usage":null}\n\n'
PING = b": ping\n\n"
USAGE = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


def passed(stream: bytes, *cuts: int) -> bytes:
    remover = UsageRemover()
    places = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    return b"".join(map(remover.feed, pieces)) + remover.rest()


def test_the_usage_only_event_is_dropped_wherever_the_stream_is_cut():
    stream = TEXT + PING + TEXT + USAGE + DONE
    for cut in range(len(stream) + 1):
        assert passed(stream, cut) == TEXT + PING + TEXT + DONE


@pytest.mark.parametrize("choices", [b"", b'"choices":null,'])
def test_it_is_dropped_too_where_its_choices_are_null_or_missing(choices: bytes):
    usage = USAGE.replace(b'"choices":[],', choices)
    assert passed(TEXT + usage + DONE) == TEXT + DONE


@pytest.mark.parametrize(
    "other",
    [
        b'data: {"error":{"message":"no"},"usage":{"prompt_tokens":9}}\n\n',
        b'data: {"choices":[],"error":{"message":"no"},"usage":{"prompt_tokens":9}}\n\n',
        b'data: {"choices":"odd","usage":{"prompt_tokens":9}}\n\n',
        b'data: {"usage":null}\n\n',
    ],
)
def test_what_tells_more_than_the_usage_stays(other: bytes):
    assert passed(TEXT + other + DONE) == TEXT + other + DONE


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_ends_an_event(end: bytes):
    stream = (TEXT + USAGE + DONE).replace(b"\n", end)
    assert passed(stream, 40) == (TEXT + DONE).replace(b"\n", end)


def test_a_stream_without_it_passes_untouched():
    stream = TEXT + PING + b'event: odd\ndata: not json, "usage"\n\n' + DONE + b"data: unfinished"
    assert passed(stream, 3, 17, 60) == stream


def test_usage_beside_choices_stays():
    beside = b'data: {"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":9}}\n\n'
    assert passed(beside + DONE) == beside + DONE


@pytest.mark.parametrize(
    ("body", "asking"),
    [
        (b' {"stream": true}', b' {"stream_options":{"include_usage":true},"stream": true}'),
        (
            b'{"stream_options": {"a":1}, "n":1e2}',
            b'{"stream_options": {"a":1,"include_usage":true}, "n":1e2}',
        ),
        (b'{"stream_options": null, "x": 1}', b'{"stream_options": {"include_usage":true}, "x": 1}'),
        (
            rb'{"messages":[{"content":"\ud800"}], "n": 1}',
            rb'{"stream_options":{"include_usage":true},"messages":[{"content":"\ud800"}], "n": 1}',
        ),
        (
            rb'{"messages":[{"content":"\ud800"}], "stream_options": {}, "n": 1}',
            rb'{"messages":[{"content":"\ud800"}], "stream_options": {"include_usage":true}, "n": 1}',
        ),
    ],
)
def test_asking_for_usage_changes_nothing_else(body: bytes, asking: bytes):
    assert CHAT.asking_for_usage(body) == asking
    assert loads(asking)["stream_options"]["include_usage"] is True
