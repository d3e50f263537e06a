"""From a question to the words to look for."""

from __future__ import annotations

import pytest

from proxy.adapters.search import MOST_TERMS, spaced, terms_of


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("When did Anna travel to Oslo?", ["anna", "travel", "oslo"]),
        ("Wann ist Anna nach Oslo gefahren?", ["anna", "oslo", "gefahren"]),
        ("Quand est-ce que le train part ?", ["train", "part"]),
        ("¿Cuándo sale el tren?", ["sale", "tren"]),
        ("oslo OSLO Oslo", ["oslo"]),
    ],
)
def test_the_words_of_a_question_that_say_nothing_are_left_out(query: str, terms: list[str]) -> None:
    assert terms_of(query) == terms


def test_a_question_of_nothing_else_keeps_them() -> None:
    assert terms_of("what is it") == ["what", "is", "it"]


@pytest.mark.parametrize("query", ["", "?!", "  \n"])
def test_no_words_are_no_terms(query: str) -> None:
    assert terms_of(query) == []


def test_an_identifier_is_looked_for_whole_and_in_parts() -> None:
    assert terms_of("INV-2023-001") == ["inv", "2023", "001", "inv 2023 001"]


def test_scripts_without_spaces_are_asked_for_in_pairs() -> None:
    assert terms_of("東京タワー") == ["東 京", "京 タ", "タ ワ", "ワ ー"]
    assert terms_of("橋") == ["橋"]


def test_scripts_without_spaces_are_indexed_a_character_at_a_time() -> None:
    assert spaced("橋は石").split() == ["橋", "は", "石"]
    assert spaced("a bridge of 石").split() == ["a", "bridge", "of", "石"]


def test_full_width_letters_are_letters() -> None:
    assert terms_of("\uff21\uff22\uff23") == ["abc"]
    assert spaced("\uff21\uff22\uff23") == "ABC"


def test_a_whole_document_is_no_question() -> None:
    assert len(terms_of(" ".join(f"word{number}" for number in range(1000)))) == MOST_TERMS
