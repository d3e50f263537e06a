"""How alike texts are, by the words that they share."""

from __future__ import annotations

import pytest

from proxy.core.text.similarity import tfidf

TEXTS = (
    "Plant the tomatoes in the garden after the frost.",
    "Water tomatoes in the garden each morning.",
    "The train to Zurich leaves at noon.",
    "",
)


def test_a_text_is_all_like_itself_and_nothing_like_an_empty_one():
    alike = tfidf(TEXTS)
    assert [alike(index, index) for index in range(4)] == [1.0] * 4
    assert alike(0, 3) == 0.0


def test_texts_that_share_rare_words_are_more_alike_than_those_that_share_common_ones():
    alike = tfidf(TEXTS)
    assert alike(0, 1) > 3 * alike(0, 2) > 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_likeness_is_the_same_both_ways_and_at_most_one(count: int):
    alike = tfidf([TEXTS[index % 4] + str(index) for index in range(count)])
    for one in range(count):
        for other in range(count):
            assert alike(one, other) == pytest.approx(alike(other, one))
            assert 0 <= alike(one, other) <= 1.000001


def test_scripts_without_spaces_are_compared_by_pairs_of_characters():
    alike = tfidf(["庭のトマトに水をやる", "トマトは庭で育つ", "電車はチューリッヒへ行く", "税金の申告"])
    assert alike(0, 1) > alike(0, 2)
    assert alike(0, 1) > 0.05


def test_case_and_punctuation_make_no_difference():
    alike = tfidf(["Zurich, trains!", "TRAINS: zurich", "tax"])
    assert alike(0, 1) == pytest.approx(1.0)
