"""The learned ratio between our count and the upstream's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget.learning import Ratio

counts = st.integers(200, 1_000_000)
anything = st.integers(-5, 10**9)
ratios = st.floats(0.8, 3.0)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-4o",
        "openai/gpt-4.1-mini",
        "gpt-5.2",
        "o1",
        "o3-mini",
        "o4-mini",
        "chatgpt-4o-latest",
        "ft:gpt-4o:a::b",
    ],
)
def test_a_model_whose_encoding_is_ours_starts_at_one(model: str) -> None:
    assert Ratio.of(model).value == 1.0


@pytest.mark.parametrize("model", ["", "gpt-4", "gpt-3.5-turbo", "claude-sonnet-4-5", "o100", "openai/"])
def test_an_unknown_model_starts_with_a_margin(model: str) -> None:
    assert Ratio.of(model).value == 1.3


def test_a_count_is_calibrated_upwards() -> None:
    assert Ratio(steps=26).calibrated(0) == 0
    assert Ratio(steps=26).calibrated(1) == 2
    assert Ratio(steps=26).calibrated(1000) == 1300
    assert Ratio(steps=20).calibrated(123) == 123


def test_a_steady_model_is_learned_within_three_turns_upwards() -> None:
    ratio = Ratio.of("somebody-s-model")
    for _ in range(3):
        ratio.observe(1_000, 2_000)
    assert ratio.value == 2.0


def test_downwards_it_goes_one_step_a_turn() -> None:
    ratio = Ratio.of("somebody-s-model")
    values: list[float] = []
    for _ in range(8):
        ratio.observe(1_000, 1_000)
        values.append(ratio.value)
    assert values == [1.25, 1.2, 1.15, 1.1, 1.05, 1.0, 1.0, 1.0]


def test_one_strange_sample_moves_it_by_one_step_at_most() -> None:
    fresh, settled = Ratio.of("gpt-4o"), Ratio.of("gpt-4o")
    for _ in range(3):
        settled.observe(1_000, 1_000)
    fresh.observe(1_000, 2_900)
    settled.observe(1_000, 2_900)
    assert fresh.value == 1.05
    assert settled.value == 1.0


def test_a_count_that_no_tokenizer_makes_of_the_text_is_no_sample() -> None:
    ratio = Ratio.of("gpt-4o")
    for _ in range(5):
        ratio.observe(300, 9_000)
    assert ratio == Ratio.of("gpt-4o")
    for _ in range(5):
        ratio.observe(300, 900)
    assert ratio.value == 3.0


def test_an_estimate_that_rocks_within_a_step_moves_nothing() -> None:
    ratio, values = Ratio.of("gpt-4o"), set[float]()
    for turn in range(40):
        ratio.observe(1_000, 1_020 if turn % 2 else 1_030)
        values.add(ratio.value)
    assert values == {1.05}


def test_the_ratio_covers_what_it_has_learned() -> None:
    ratio = Ratio.of("somebody-s-model")
    for _ in range(9):
        ratio.observe(1_000, 1_010)
    assert ratio.value == 1.05


def test_a_small_sample_is_framing_not_text() -> None:
    ratio = Ratio.of("gpt-4o")
    for _ in range(10):
        ratio.observe(20, 45)
    assert (ratio.value, ratio.samples) == (1.0, 0)


def test_a_usage_without_prompt_tokens_teaches_nothing() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.observe(1_000, 0)
    assert ratio == Ratio.of("gpt-4o")


def test_every_sample_is_counted() -> None:
    ratio = Ratio.of("gpt-4o")
    for _ in range(12):
        ratio.observe(1_000, 1_000)
    assert ratio.samples == 12
    assert len(ratio.recent) == 7


def test_a_refusal_that_names_the_real_size_is_believed_at_once() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.refused(1_000, 1_512)
    assert ratio.value == 1.55
    assert ratio.calibrated(1_000) >= 1_512


def test_a_refusal_of_a_window_smaller_than_believed_leaves_a_right_ratio_alone() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.refused(10_000, 9_900)
    assert ratio.value == 1.0


def test_a_refusal_that_names_nothing_raises_the_ratio_by_a_quarter() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.refused(1_000, None)
    assert ratio.value == 1.25


def test_a_refusal_of_nothing_counted_teaches_nothing() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.refused(0, 1_000)
    ratio.refused(0, None)
    assert ratio.value == 1.0


def test_what_was_learned_survives_the_store() -> None:
    ratio = Ratio.of("gpt-4o")
    ratio.refused(1_000, 1_512)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ratio), type=Ratio) == ratio


@given(st.lists(st.tuples(anything, st.none() | anything, st.booleans())))
def test_whatever_is_seen_the_ratio_stays_on_its_grid_and_in_its_bounds(
    seen: list[tuple[int, int | None, bool]],
) -> None:
    ratio = Ratio()
    for counted, real, refused in seen:
        if refused or real is None:
            ratio.refused(counted, real)
        else:
            ratio.observe(counted, real)
        assert 0.8 <= ratio.value <= 3.0
        assert len(ratio.recent) <= 7


@given(ratios, st.lists(counts, min_size=60, max_size=60))
def test_a_steady_model_is_learned_to_within_a_step(real: float, sizes: list[int]) -> None:
    ratio = Ratio()
    for counted in sizes[:50]:
        ratio.observe(counted, round(counted * real))
    learned = ratio.value
    assert abs(learned - real) <= 0.05
    for counted in sizes[50:]:
        ratio.observe(counted, round(counted * real))
    assert abs(ratio.value - learned) <= 0.05


@given(st.integers(1, 10**6), ratios)
def test_after_a_refusal_with_its_size_that_prompt_is_not_undercounted_again(
    counted: int, factor: float
) -> None:
    real = int(counted * factor)
    ratio = Ratio.of("gpt-4o")
    ratio.refused(counted, real)
    assert ratio.calibrated(counted) >= real
