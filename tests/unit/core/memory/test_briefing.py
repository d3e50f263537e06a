"""What a new session is told of earlier ones."""

from __future__ import annotations

import pytest

from proxy.core.conversation.notes import memory_note
from proxy.core.memory.briefing import opening_briefing, recall_briefing
from proxy.core.memory.records import Source, Trust
from proxy.core.memory.utterances import Utterance
from tests.support.conversations import count
from tests.support.memories import DAY, NOW, an_item

TEXTS = ["- The fleet sails in May.", "- The crane is red.", "- The cable is late."]


def source(day: int, name: str = "") -> Source:
    return Source(session="s1", messages=(b"m",), role="user", name=name, at=NOW + day * DAY)


def test_texts_come_first_and_then_items_by_their_days() -> None:
    items = [an_item("Ana has a boat.", source=source(2, "ana")), an_item("Bob left.", source=source(1))]
    assert opening_briefing(TEXTS, items, 500, "en", count).text.splitlines() == [
        *TEXTS,
        "2026-01-02:",
        "- Bob left.",
        "2026-01-03:",
        "- ana: Ana has a boat.",
    ]


def test_what_only_the_model_said_is_told_as_that() -> None:
    item = an_item("The crane is red.", trust=Trust.ASSISTANT)
    assert (
        "- The crane is red. (said by the assistant)" in opening_briefing([], [item], 500, "en", count).text
    )
    assert "(vom Assistenten gesagt)" in opening_briefing([], [item], 500, "de", count).text


def test_nothing_to_say_is_nothing() -> None:
    assert opening_briefing(["", " \n"], [], 500, "en", count) == ("", ())
    assert opening_briefing(TEXTS, [an_item()], 3, "en", count) == ("", ())
    assert opening_briefing([], [an_item(superseded_by="newer")], 500, "en", count) == ("", ())


def test_items_that_are_told_are_named_and_the_best_ones_are_told() -> None:
    items = [an_item(f"Ana has boat number {n}.", source=source(n)) for n in range(20)]
    found = opening_briefing([], items, 120, "en", count)
    assert 1 < len(found.items) < 20
    assert list(found.items) == items[: len(found.items)]


@pytest.mark.parametrize("room", [0, 30, 60, 100, 200, 1_000])
def test_all_of_it_is_within_its_tokens(room: int) -> None:
    texts = ["\n".join(f"- The crane number {n} is red." for n in range(100))] * 3
    items = [an_item(f"Ana has boat number {n}.") for n in range(100)]
    text = opening_briefing(texts, items, room, "en", count).text
    assert not text or count(memory_note(text, "en")) <= room


def test_what_texts_and_items_say_in_the_same_words_is_told_once() -> None:
    line = "- Ana has a boat."
    items = [an_item("Ana has a boat.", id=name, source=source(1, "ana")) for name in ("i1", "i2")]
    text = opening_briefing([f"{line}\n{TEXTS[0]}", line, line], items, 500, "en", count).text
    assert text.splitlines() == [TEXTS[0], "2026-01-02:", "- ana: Ana has a boat."]
    assert opening_briefing([line, line], [], 500, "en", count).text == line


def test_long_texts_leave_half_of_the_room_to_items_and_some_of_it_to_short_texts() -> None:
    long = "\n".join(f"- The crane number {n} is red." for n in range(100))
    items = [an_item(f"Ana has boat number {n}.") for n in range(100)]
    text = opening_briefing([long, TEXTS[1], long], items, 400, "en", count).text
    assert TEXTS[1] in text
    assert text.count("boat") > 10
    assert text.count("crane number") > 10
    assert opening_briefing([long], [], 400, "en", count).text.count("crane number") > 30


def test_the_same_is_told_in_the_same_bytes() -> None:
    items = [an_item("Ana has a boat."), an_item("Bob left.")]
    assert opening_briefing(TEXTS, items, 500, "en", count) == opening_briefing(
        TEXTS, items, 500, "en", count
    )


def test_a_search_tells_what_was_said_under_its_day_in_the_order_in_which_it_was_said() -> None:
    said = {
        place: Utterance(NOW + place // 2 * DAY, Trust.USER, "ana", f"Boat {place}.", b"")
        for place in (3, 1, 2, 0)
    }
    text = recall_briefing(said, [an_item("Bob left.", source=source(1))], 500, "en", count).text
    days = ["2026-01-01:", "- ana: Boat 0.", "- ana: Boat 1."]
    days += ["2026-01-02:", "- Bob left.", "- ana: Boat 2.", "- ana: Boat 3."]
    assert text.splitlines()[2:-1] == days


@pytest.mark.parametrize("room", [0, 30, 60, 100, 200])
def test_a_search_tells_the_best_within_its_tokens_and_names_the_items_that_it_tells(room: int) -> None:
    said = {
        place: Utterance(NOW - place * DAY, Trust.USER, "ana", f"Boat {place}.", b"") for place in range(5)
    }
    items = [an_item(f"Bob has boat number {n}.", source=source(n)) for n in range(20)]
    text, used = recall_briefing(said, items, room, "en", count)
    assert not text or count(text) <= room
    assert (list(used), "Boat 0" in text) == (items[: len(used)], room > 30)
    assert text.count("number") == len(used)
