"""Old images leave a line of text, and only they do."""

from __future__ import annotations

import base64
import json
import struct
from typing import cast

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Gap, Plan
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.replacements import first_user_clips, picture_clearings
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
    decided = draft_epoch(before, Stage.COMPACT)
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


def screenshots(number: int, text: str = "Here it is.") -> list[Sent]:
    """A round of calls whose results, which the model has still to answer, have a picture each."""
    shown = {"type": "text", "text": text}
    calls = [f"call-{each}" for each in range(number)]
    return [user("Look around."), calling(*calls), *(result(each, [shown, picture()]) for each in calls)]


def emergency(messages: list[Sent], tokens: int) -> Plan:
    before = situation(messages)
    before = replace(before, budget=Budget(tokens, 1.0, 0, last_user_tokens=before.chain.last_user_tokens))
    decided = draft_epoch(before, Stage.EMERGENCY)
    assert decided is not None
    return finish(decided, {})


def shortened(messages: list[Sent], tokens: int) -> dict[int, object]:
    edits = emergency(messages, tokens).replacements
    return {each.position: json.loads(each.raw)["content"] for each in edits}


def test_where_nothing_else_helps_pictures_that_the_model_has_still_to_see_go_oldest_first():
    found = shortened(screenshots(3), 2 * IMAGE_TOKENS)
    cleared = [{"type": "text", "text": "Here it is."}, {"type": "text", "text": "[image, 640x480, cleared]"}]
    assert found == {2: cleared, 3: cleared}


def test_text_that_the_model_has_still_to_see_is_clipped_before_a_picture_goes():
    (content,) = shortened(screenshots(1, prose("en", 4_000)), 2 * IMAGE_TOKENS).values()
    text, shown = cast("list[Sent]", content)
    assert "characters left out" in text["text"]
    assert shown == picture()


def test_both_go_where_neither_alone_is_enough():
    found = shortened(screenshots(3, prose("en", 4_000)), 2 * IMAGE_TOKENS)
    assert [str(content).count("[image, 640x480, cleared]") for content in found.values()] == [1, 1, 0]
    assert all("characters left out" in str(content) for content in found.values())


def test_where_the_last_user_message_alone_is_too_much_every_picture_stays():
    assert shortened([user(prose("en", 9_000)), *screenshots(2)[1:]], IMAGE_TOKENS) == {}


def test_a_first_message_with_pictures_that_are_too_much_keeps_its_words():
    asked = user([{"type": "text", "text": "Never call me at night."}, *[picture()] * 5])
    plan = emergency([asked, assistant(prose("en", 200)), user("And now?")], 3 * IMAGE_TOKENS)
    (edit,) = plan.replacements
    assert edit.position == 0
    assert [part["text"] for part in json.loads(edit.raw)["content"]] == [
        "Never call me at night.",
        *["[image, 640x480, cleared]"] * 5,
    ]


def test_what_no_clip_can_shorten_is_cut_with_a_note_that_says_what_it_laid_down():
    recording = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    asked = user([{"type": "text", "text": "Never call me at night."}, *[picture()] * 5, recording])
    plan = emergency([asked, assistant(prose("en", 60)), user("And now?")], 3 * IMAGE_TOKENS)
    (gap,) = plan.gaps
    assert gap.span == (0, 2)
    assert "Never call me at night." in json.loads(gap.note)["content"]


def test_the_words_beside_what_takes_more_than_the_first_message_may_have_are_not_clipped_in_vain():
    recording = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    asked = user([{"type": "text", "text": prose("en", 300)}, *[picture()] * 3, recording])
    before = situation([asked, *talk()])
    assert not list(first_user_clips(before))


def test_a_picture_beside_a_long_text_stays_when_that_is_clipped():
    asked = user([{"type": "text", "text": prose("en", 9_000)}, picture()])
    (clip,) = first_user_clips(situation([asked, *talk(*[user(prose("en", 3_000))] * 3)]))
    text, shown = json.loads(clip.edit.raw)["content"]
    assert "characters left out" in text["text"]
    assert shown == picture()
