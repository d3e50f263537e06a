from __future__ import annotations

import pytest

from proxy.core.text.numbers import all_numbers, numbers_in


def readings(text: str) -> list[list[str]]:
    return [sorted(number.readings) for number in numbers_in(text)]


@pytest.mark.parametrize(
    "written", ["1000", "1,000", "1 000", "1\u202f000", "1'000", "1k", "1K", "1 thousand", "1000.00", "1千"]
)
def test_a_number_is_the_same_however_it_is_written(written: str) -> None:
    assert readings(written) == [["1000"]]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1.500", ["1.5", "1500"]),
        ("3,50", ["3.5"]),
        ("1.234.567,80", ["1234567.8"]),
        ("2.5 million", ["2500000"]),
        ("2,5 Millionen", ["2500000"]),
        ("10M", ["10", "10000000"]),
        ("10MB", ["10"]),
        ("5万", ["50000"]),
        ("1.2.3", ["1.2.3"]),
        ("007", ["7"]),
    ],
)
def test_what_may_be_read_two_ways_is_read_both_ways(written: str, expected: list[str]) -> None:
    assert readings(written) == [expected]


def test_a_number_within_another_is_not_told() -> None:
    assert "500" not in all_numbers("The cap is 1,500.")
    assert "15" not in all_numbers("in 2015")
    assert "12" not in all_numbers("12k tokens")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("three files", "3"),
        ("zwölf Monate", "12"),
        ("cinco días", "5"),
        ("deux fois", "2"),
        ("三个文件", "3"),
        ("March", "3"),
        ("at 14:30", "2"),
        ("on 2026-03-05", "5"),
        ("am 05.03.2026", "3"),
    ],
)
def test_numbers_are_told_in_words_dates_and_times_too(text: str, number: str) -> None:
    assert number in all_numbers(text)


def test_digits_without_end_are_themselves() -> None:
    digits = "9" * 5_000
    assert readings(f"{digits}k")[0] == [digits]
