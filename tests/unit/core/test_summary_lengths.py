"""How long a summary may be: so many tokens, and where the policy says so, so many characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Summary
from proxy.core.summaries.prompt import Limit, Refused, ask_for_summary, truncated
from proxy.core.text.words import first_sentences

THREE = 'They built the bridge. The mayor said "Stop." Then it rained.'


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("tokens", "characters", "kept"),
    [
        (99, 0, THREE),
        (11, len(THREE), THREE),
        (10, 0, 'They built the bridge. The mayor said "Stop."'),
        (8, 99, 'They built the bridge. The mayor said "Stop."'),
        (99, 45, 'They built the bridge. The mayor said "Stop."'),
        (99, 44, "They built the bridge."),
        (5, 99, "They built the bridge."),
    ],
)
def test_of_a_summary_that_is_too_long_the_first_sentences_stay(
    tokens: int, characters: int, kept: str
) -> None:
    assert truncated(THREE, Limit(tokens, characters), words) == kept


@pytest.mark.parametrize(("tokens", "characters"), [(3, 0), (99, 10)])
def test_one_that_begins_with_too_much_is_refused(tokens: int, characters: int) -> None:
    with pytest.raises(Refused, match="too_long"):
        truncated(THREE, Limit(tokens, characters), words)


def test_lines_and_sentences_without_spaces_end_too() -> None:
    assert first_sentences("- one\n- two\n- three", lambda text: len(text) <= 12) == "- one\n- two"
    assert first_sentences("橋を作りました。雨でした。", lambda text: len(text) <= 9) == "橋を作りました。"


@given(st.text(alphabet='ab. \n。!"', max_size=80), st.integers(0, 90))
def test_what_stays_is_a_beginning_that_fits(text: str, most: int) -> None:
    kept = first_sentences(text, lambda part: len(part) <= most)
    assert text.startswith(kept)
    assert len(kept) <= most
    assert kept == text or len(text) > most


def test_the_model_is_told_how_many_characters_it_has() -> None:
    told = ask_for_summary("text", "en", Limit(700, 300), 0.3, "")
    assert "at most 300 characters" in told.task
    assert not told.is_structured
    assert ask_for_summary("text", "en", Limit(700, 3000), 0.3, "").is_structured
    assert "characters" not in ask_for_summary("text", "en", Limit(700), 0.3, "").task


def test_no_summary_gets_more_tokens_than_characters() -> None:
    policy = Policy(summary=Summary(max_tokens=500, max_characters=200))
    assert policy.summary_tokens(100_000) == 200
    assert Policy(summary=Summary(max_tokens=500)).summary_tokens(8_000) == 500
