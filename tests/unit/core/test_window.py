"""Windows: who states one, and what answers teach about it."""

from __future__ import annotations

import pytest

from proxy.core.budget.budget import Window, WindowSource
from proxy.core.budget.learning import BELIEVED_FOR, CountQuality, Growth, WindowEvidence

POLICY, UPSTREAM, PRICES = 32_000, 16_000, 128_000


Stated = tuple[int | None, int | None, int | None]


def known(evidence: WindowEvidence, *stated: int | None, now: float = 0.0) -> tuple[int | None, str]:
    policy, upstream, prices = stated
    window = evidence.window(policy, upstream, prices, now)
    return window.tokens, window.source.value


@pytest.mark.parametrize(
    ("stated", "window"),
    [
        ((POLICY, UPSTREAM, PRICES), (POLICY, "policy")),
        ((None, UPSTREAM, PRICES), (UPSTREAM, "upstream")),
        ((None, None, PRICES), (PRICES, "prices")),
        ((None, None, None), (None, "unknown")),
    ],
)
def test_the_policy_is_believed_before_the_upstream_and_that_before_the_price_list(
    stated: Stated, window: tuple[int | None, str]
):
    assert known(WindowEvidence(), *stated) == window


@pytest.mark.parametrize("stated", [(POLICY, None, None), (None, UPSTREAM, PRICES), (None, None, PRICES)])
def test_a_refusal_and_a_truncation_lower_whatever_is_stated(stated: Stated):
    refused, truncated = WindowEvidence(), WindowEvidence()
    refused.learn_refusal(8_000, sent=9_000, now=0.0)
    truncated.learn_truncation(4_096, now=0.0)
    assert known(refused, *stated) == (8_000, "refusal")
    assert known(truncated, *stated) == (4_096, "truncated")


def test_a_refusal_never_raises_what_the_policy_states():
    evidence = WindowEvidence()
    evidence.learn_refusal(64_000, sent=70_000, now=0.0)
    assert known(evidence, POLICY, None, None) == (POLICY, "policy")


def test_a_refusal_fades():
    evidence = WindowEvidence()
    evidence.learn_refusal(8_000, sent=9_000, now=0.0)
    assert known(evidence, None, None, PRICES, now=BELIEVED_FOR + 1) == (PRICES, "prices")


def test_a_refusal_without_numbers_raises_no_window_that_one_with_a_number_has_taught():
    evidence = WindowEvidence()
    evidence.learn_refusal(4_000, sent=5_000, now=0.0)
    evidence.learn_refusal(None, sent=8_000, now=0.0, upstream=UPSTREAM)
    assert known(evidence, None, UPSTREAM, None) == (4_000, "refusal")


def test_what_was_answered_hours_ago_hides_no_refusal_without_numbers():
    evidence = WindowEvidence()
    evidence.learn_answer(30_000, now=0.0)
    later = BELIEVED_FOR + 1
    evidence.learn_refusal(None, sent=8_000, now=later)
    assert known(evidence, None, None, None, now=later) == (6_000, "refusal")


def test_a_refusal_without_numbers_leaves_three_quarters_of_what_was_sent():
    evidence = WindowEvidence()
    evidence.learn_refusal(None, sent=8_000, now=0.0)
    assert known(evidence, None, None, None) == (6_000, "refusal")


def test_a_refusal_without_numbers_lowers_no_window_below_what_was_answered():
    evidence = WindowEvidence()
    evidence.learn_answer(7_500)
    assert evidence.learn_refusal(None, sent=8_000, now=0.0) == 6_000, "what the refused request may have"
    assert (known(evidence, None, None, None), evidence.answered) == ((7_500, "refusal"), 7_500)
    evidence = WindowEvidence()
    evidence.learn_answer(9_000)
    assert evidence.learn_refusal(None, sent=8_000, now=0.0) == 6_000
    assert (known(evidence, None, None, PRICES), evidence.answered) == ((PRICES, "prices"), 9_000)


def test_a_refusal_without_numbers_far_below_what_the_upstream_states_lowers_no_window():
    evidence = WindowEvidence()
    assert evidence.learn_refusal(None, sent=8_000, now=0.0, upstream=UPSTREAM) == 6_000
    assert known(evidence, None, UPSTREAM, PRICES) == (UPSTREAM, "upstream")
    evidence.learn_refusal(None, sent=12_000, now=0.0, upstream=UPSTREAM)
    assert known(evidence, None, UPSTREAM, PRICES) == (9_000, "refusal")


def test_a_refusal_with_a_number_lowers_what_was_answered_and_what_is_stated():
    evidence = WindowEvidence()
    evidence.learn_answer(7_500)
    assert evidence.learn_refusal(4_096, sent=8_000, now=0.0, upstream=128_000) == 4_096
    assert (known(evidence, None, 128_000, None), evidence.answered) == ((4_096, "refusal"), 4_096)


def test_an_answer_raises_what_upstream_or_price_list_state_and_then_nothing_is_cut_by_it():
    evidence = WindowEvidence()
    evidence.learn_answer(21_000)
    assert evidence.window(None, None, 8_000, 0.0) == Window(21_000, WindowSource.PRICES, is_least=True)
    assert evidence.window(None, None, 8_000, 0.0).limit is None
    assert evidence.window(None, 64_000, 8_000, 0.0) == Window(64_000, WindowSource.UPSTREAM)
    assert evidence.window(8_000, None, None, 0.0) == Window(8_000, WindowSource.POLICY)


def test_an_answer_alone_says_no_window():
    evidence = WindowEvidence()
    evidence.learn_answer(21_000)
    assert known(evidence, None, None, None) == (None, "unknown")


def test_the_newest_evidence_counts():
    evidence = WindowEvidence()
    evidence.learn_refusal(8_000, sent=9_000, now=0.0)
    evidence.learn_answer(12_000)
    assert known(evidence, None, None, 4_000) == (12_000, "prices")
    evidence.learn_refusal(10_000, sent=11_000, now=0.0)
    assert known(evidence, None, None, 4_000) == (10_000, "refusal")
    assert evidence.answered == 10_000


# --- truncation ---


def test_where_a_longer_prompt_was_answered_within_the_hour_nothing_is_truncated():
    evidence = WindowEvidence()
    evidence.learn_answer(17_000, now=5.0)
    assert not evidence.learn_truncation(9_000, now=BELIEVED_FOR)
    assert known(evidence, *[None] * 3) == (None, "unknown")
    assert evidence.learn_truncation(16_000, now=BELIEVED_FOR), (
        "a truncating server counts about as much each time"
    )
    evidence.learn_answer(17_000, now=6.0)
    assert evidence.learn_truncation(9_000, now=BELIEVED_FOR + 7.0), "it was restarted with another window"


def counted(*requests: tuple[int, int]) -> Growth:
    growth = Growth()
    for sent, count in requests:
        growth.observe(sent, count)
    return growth


def test_a_count_that_stops_growing_in_two_requests_is_a_truncation():
    assert counted((1_000, 1_000), (2_000, 2_000), (3_000, 2_048)).window is None
    assert counted((1_000, 1_000), (2_000, 2_000), (3_000, 2_048), (3_300, 2_048)).window == 2_048
    assert counted((2_000, 2_000), (2_050, 2_048), (2_300, 2_048)).window == 2_048


def test_what_was_sent_is_more_than_the_window_in_the_tokens_of_the_model():
    fine, coarse = Growth(), Growth()
    for sent in (1_000, 1_500, 1_700, 1_900):
        fine.observe(sent, min(2 * sent, 3_000), ratio=2.0)
    for sent in (1_000, 2_000, 3_000):
        coarse.observe(sent, min(sent, 2_000), ratio=0.6)
    assert (fine.window, coarse.window) == (3_000, None)


def test_requests_aside_do_not_hide_a_truncation():
    assert counted(
        (1_000, 1_000), (2_000, 2_000), (300, 300), (3_000, 2_048), (300, 300), (4_000, 2_048)
    ).window


def test_an_upstream_that_drops_whole_messages_counts_a_little_less_each_time():
    assert counted((2_000, 2_000), (2_600, 1_990), (3_200, 1_850)).window == 2_000


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([(1_000, 1_000), (1_050, 1_000), (1_090, 1_000)], "hardly more was sent"),
        ([(400, 400), (800, 512), (1_200, 512), (1_600, 512)], "too little was counted"),
        ([(5_000, 5_000), (6_400, 1_400), (7_800, 1_400), (9_200, 1_400)], "cached tokens are left out"),
        ([(1_500, 1_500), (2_900, 1_400), (4_300, 1_400), (5_700, 1_400)], "so they are, from the start"),
        ([(1_800, 1_800), (4_800, 1_500), (7_800, 1_500)], "the answer is cached as well"),
        ([(2_000, 2_000), (3_000, 3_000), (2_500, 2_500), (2_800, 2_800)], "the view was cut"),
        ([(4_000, 9_000), (4_500, 8_900), (5_000, 8_950), (5_600, 8_990)], "there is a remote video"),
        (
            [(1_000, 1_000), (2_000, 2_000), (3_000, 3_000), (4_000, 4_000), (4_500, 1_500), (5_500, 2_500),
             (6_500, 3_500), (7_500, 3_990), (8_000, 1_900), (9_000, 2_900), (10_000, 3_900)],
            "reasoning of earlier exchanges is left out",
        ),
    ],
)  # fmt: skip
def test_what_has_another_reason_is_none(requests: list[tuple[int, int]], why: str):
    assert counted(*requests).window is None, why


def test_of_servers_that_leave_out_what_is_cached_no_count_grows_with_what_was_sent():
    growth = Growth()
    samples = [
        growth.observe(sent, count) for sent, count in [(1_500, 1_500), (3_300, 1_800), (5_000, 1_700)]
    ]
    assert CountQuality.GROWING not in samples


def test_counts_that_grow_with_what_was_sent_are_tracked():
    growth = Growth()
    samples = [growth.observe(each, each * 13 // 10) for each in (400, 800, 1_200)]
    assert samples == [CountQuality.COMPARABLE, CountQuality.GROWING, CountQuality.GROWING]


def test_a_tenth_more_to_the_token_is_more():
    grown = range(1_000, 3_000, 10)
    assert {counted((each, each)).observe(each * 11 // 10, each * 11 // 10) for each in grown} == {
        CountQuality.GROWING
    }
    assert {counted((each, each)).observe(each * 11 // 10 - 1, each * 11 // 10) for each in grown} == {
        CountQuality.COMPARABLE
    }
    stalled = (counted((each, 1_000), (each * 11 // 10, 1_000)) for each in grown)
    assert {growth.stalls for growth in stalled} == {2}


def test_a_request_of_which_too_little_was_counted_is_no_sample_of_the_ratio():
    growth = counted((2_000, 2_000))
    assert growth.observe(2_500, 2_500) is CountQuality.GROWING
    assert growth.observe(5_000, 2_600) is CountQuality.UNRELIABLE
    assert growth.observe(6_000, 2_600) is CountQuality.UNRELIABLE
    assert growth.observe(1_000, 1_000) is CountQuality.COMPARABLE


def test_a_side_request_without_its_pictures_hides_no_truncation() -> None:
    growth = Growth()
    for number in range(8):
        growth.observe(3_000 + 2_000 * number, min(3_000 + 2_000 * number, 4_096), 765)
        growth.observe(100, 100, 0)
    assert growth.window == 4_096


def test_a_small_picture_a_turn_makes_no_count_without_cached_tokens_plain() -> None:
    growth, samples = Growth(), list[CountQuality]()
    for number in range(8):
        samples.append(growth.observe(20_000 + 300 * number, 20_000 if not number else 300, 85 * number))
    assert samples[1:] == [CountQuality.UNRELIABLE] * 7
