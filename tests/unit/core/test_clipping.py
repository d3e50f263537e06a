"""Clipping: head and tail stay, everything else of the message too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.replacements import clip
from tests.support.conversations import count, counted, encode, result, user

LONG = " ".join(f"w{number}" for number in range(3000))


def clipped(message: dict[str, Any], allowed: int) -> dict[str, Any]:
    raw = encode(message)
    found = clip(CHAT.read(raw), counted(raw), allowed, count)
    assert found is not None
    assert abs(found[1] - counted(found[0])) <= 3  # each text is counted apart
    return json.loads(found[0])


@pytest.mark.parametrize("allowed", [50, 100, 1000, 3000])
def test_head_and_tail_are_kept_within_what_is_allowed(allowed: int):
    text = clipped(result("a", LONG), allowed)["content"]
    assert text.startswith("w0 w1 ")
    assert text.endswith(" w2999")
    assert count(text) <= allowed


def test_a_clip_says_how_many_characters_it_leaves_out():
    text = clipped(result("a", LONG), 500)["content"]
    head, rest = text.split("\n[… ")
    number, tail = rest.split(" characters left out …]\n")
    assert int(number) == len(LONG) - len(head) - len(tail)
    assert LONG.startswith(head)
    assert LONG.endswith(tail)


@pytest.mark.parametrize("allowed", [-100, 0, 1, 5])
def test_where_nothing_fits_the_mark_alone_is_left(allowed: int):
    assert clipped(result("a", LONG), allowed)["content"].strip() == f"[… {len(LONG)} characters left out …]"


def test_everything_but_the_text_stays_as_it_was():
    extra = {"x": [1, {"y": None}], "seed": 123456789012345678901234567890, "name": "look"}
    message = clipped(result("call_9", LONG) | extra, 100)
    assert {name: message[name] for name in extra} == extra
    assert message["tool_call_id"] == "call_9"


def test_numbers_that_no_float_holds_stay_numbers():
    raw = (
        b'{"role":"tool","tool_call_id":"a","x":1e400,"y":'
        + b"7" * 5000
        + b',"content":"'
        + LONG.encode()
        + b'"}'
    )
    found = clip(CHAT.read(raw), 9999, 100, count)
    assert found is not None
    assert b'"x":1e400' in found[0]
    assert b'"y":' + b"7" * 5000 + b"," in found[0]


def test_the_longest_of_several_texts_is_clipped():
    image = {"type": "image_url", "image_url": {"url": "u"}}
    parts = [{"type": "text", "text": "short"}, image, {"type": "text", "text": LONG}]
    message = clipped(user(parts), 200)
    assert message["content"][:2] == parts[:2]
    assert len(message["content"][2]["text"]) < len(LONG)


def test_parts_that_are_no_objects_stay_as_they_were():
    message = clipped(user(["bare", {"type": "text", "text": LONG}, None]), 200)
    assert message["content"][0] == "bare"
    assert message["content"][2] is None


def test_a_result_of_several_large_texts_shrinks_to_what_is_allowed():
    parts = [{"type": "text", "text": LONG} for _ in range(4)]
    raw = encode(result("a", parts))
    found = clip(CHAT.read(raw), counted(raw), 500, count)
    assert found is not None
    assert found[1] <= 600


@pytest.mark.parametrize(
    "content", [None, 7, "", [], [{"type": "image_url", "image_url": {"url": "u"}}], [{"text": ""}]]
)
def test_where_there_is_no_text_there_is_nothing_to_clip(content: object):
    raw = encode(result("a", content))
    assert clip(CHAT.read(raw), 5000, 10, count) is None


@pytest.mark.parametrize("text", ["🌉𝄞" * 2000, "橋の上に" * 2000, "e\u0301" * 3000])
def test_no_code_point_is_parted(text: str):
    for allowed in range(60, 80):
        short = clipped(result("a", text), allowed)["content"]
        short.encode()
        head = short.split("\n[…")[0]
        assert text.startswith(head)


def test_a_lone_surrogate_survives():
    raw = rb'{"role":"tool","tool_call_id":"a","content":"' + rb"\ud800 x " * 2000 + rb'"}'
    found = clip(CHAT.read(raw), counted(raw), 100, count)
    assert found is not None
    assert Content.of(found[0]).exact.text.startswith("\ud800 x ")


def test_the_same_message_is_clipped_to_the_same_bytes():
    raw = encode(result("a", LONG))
    assert clip(CHAT.read(raw), 4000, 300, count) == clip(CHAT.read(raw), 4000, 300, count)
