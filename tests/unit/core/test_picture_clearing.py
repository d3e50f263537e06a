"""Old images leave a line of text, and only they do."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Gap, Plan
from proxy.core.planning.planner import draft, finish
from proxy.core.planning.replacements import picture_clearings
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep
from tests.support.conversations import Sent, assistant, calling, chain_from, count, prose, result, user

IMAGE_TOKENS = 765


def picture(width: int = 640, height: int = 480) -> Sent:
    png = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png).decode()}"},
    }


def shown(*parts: object) -> Sent:
    return user([{"type": "text", "text": "What is this?"}, *parts])


def situation(messages: list[Sent], plan: Plan = EMPTY, keep: Keep | None = None) -> Situation:
    chain = chain_from(messages)
    images = [json.dumps(message).count('image_url": {') for message in messages]
    tokens = [size + IMAGE_TOKENS * number for size, number in zip(chain.tokens, images, strict=True)]
    priced = Chain(chain.messages, chain.raws, Sizes.of(tokens), chain.hashes, chain.dialect)
    policy = Policy(keep=keep or Keep(recent=0.0))
    return Situation(priced, plan, policy, Budget(int(sum(tokens) / 0.95), 1.0, 0), count)


def talk(*shows: Sent) -> list[Sent]:
    return [
        user("Hello"),
        *(each for show in shows for each in (show, assistant(prose("en", 30)))),
        user("And now?"),
    ]


def edits(situation: Situation) -> dict[int, object]:
    return {each.edit.position: json.loads(each.edit.raw)["content"] for each in picture_clearings(situation)}


def test_each_image_leaves_its_size_and_the_text_beside_it_stays():
    found = edits(situation(talk(shown(picture(), picture(12, 7)))))
    assert found == {
        1: [
            {"type": "text", "text": "What is this?"},
            {"type": "text", "text": "[image, 640x480, cleared]"},
            {"type": "text", "text": "[image, 12x7, cleared]"},
        ]
    }


def test_an_image_elsewhere_has_no_size_to_tell():
    remote = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    (content,) = edits(situation(talk(shown(remote)))).values()
    assert content == [
        {"type": "text", "text": "What is this?"},
        {"type": "text", "text": "[image, cleared]"},
    ]


@pytest.mark.parametrize("keep", [Keep(recent=1.0), Keep(recent=0.0, pins=("What is this",))])
def test_images_in_what_is_protected_stay(keep: Keep):
    assert edits(situation(talk(shown(picture())), keep=keep)) == {}


def test_the_last_user_message_keeps_its_images():
    assert edits(situation([user("Hello"), assistant("Hi"), shown(picture())])) == {}


def test_a_message_with_anything_else_in_it_stays_as_it_is():
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    assert edits(situation(talk(shown(picture(), audio)))) == {}


def test_images_go_before_any_message_does_and_oldest_first():
    before = situation(talk(*(shown(picture()) for _ in range(10))))
    decided = draft(before, Stage.COMPACT)
    assert decided is not None
    plan = finish(decided, {})
    assert plan.gaps == ()
    cleared = [edit.position for edit in plan.replacements]
    assert cleared == sorted(cleared)
    assert cleared[0] == 1
    assert len(cleared) < 10
    assert edits(situation(talk(*(shown(picture()) for _ in range(10))), plan)).keys().isdisjoint(cleared)


def test_an_image_is_cleared_whatever_call_before_the_cut_a_late_result_after_it_answers():
    late = [
        user("Hello"),
        calling("a"),
        assistant("Wait."),
        shown(picture()),
        result("a", "18"),
        user("And now?"),
    ]
    cut = Plan(gaps=(Gap(start=0, end=3, note=b"{}", tokens=1),))
    assert edits(situation(late, cut)).keys() == {3}
