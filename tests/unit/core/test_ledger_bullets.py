"""Rules in few tokens: titles that are said once where room is short."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.extraction.reading import title_of
from proxy.core.planning.ledger_packing import Bullets, may_share
from tests.support.conversations import count

BOATS, DOORS = "HOUSE RULE: No boats in the hall.", "HOUSE RULE: Doors stay shut at night."
OTHERS = "Never feed the gulls."
BODIES = [
    "No boats in the hall",
    "Doors stay shut.",
    "橋を開けないでください。",
    "Never feed the gulls!",
    "No ropes",
]
TITLES = ["", "HOUSE RULE: ", "TOWN FACT: ", "【規則】"]


def lines(*sentences: str, shares: bool, room: int = 1_000) -> tuple[str, ...]:
    bullets = Bullets(count, shares=shares)
    bullets.fill(sentences, room)
    return bullets.lines(sentences)


def test_each_sentence_has_a_line_of_its_own_where_there_is_room() -> None:
    assert lines(BOATS, OTHERS, DOORS, shares=False) == (BOATS, OTHERS, DOORS)


def test_a_shared_title_is_said_once_and_the_sentences_stay_in_order() -> None:
    together = "HOUSE RULE: No boats in the hall. Doors stay shut at night."
    assert lines(BOATS, OTHERS, DOORS, shares=True) == (together, OTHERS)


def test_a_sentence_without_an_end_is_set_apart_from_the_next() -> None:
    assert lines("PORT: north 4", "PORT: south 5", shares=True) == ("PORT: north 4; south 5",)


def test_numbered_titles_and_sentences_without_one_share_nothing() -> None:
    told = ("RULE 1: no boats.", "RULE 2: no ropes.", OTHERS, "Never open the bridge.")
    assert not may_share(told)
    assert may_share([BOATS, OTHERS, DOORS])
    assert lines(*told, shares=True) == told


def test_what_was_taken_is_not_taken_again() -> None:
    bullets = Bullets(count, shares=True)
    assert bullets.fill([BOATS], 1_000) > 0
    assert bullets.fill([BOATS], 1_000) == 0


@given(
    st.lists(st.builds(str.__add__, st.sampled_from(TITLES), st.sampled_from(BODIES)), unique=True),
    st.integers(0, 80),
    st.booleans(),
)
def test_what_is_chosen_is_told_word_for_word_and_fits(told: list[str], room: int, shares: bool) -> None:
    bullets = Bullets(count, shares=shares)
    assert bullets.fill(told, room) <= room
    shown = bullets.lines(told)
    assert count("".join(f"\n- {line}" for line in shown)) <= room + 1
    for text in bullets.chosen:
        title = title_of(text)
        assert any(line.startswith(title) and text.removeprefix(title).strip() in line for line in shown)
