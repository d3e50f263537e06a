"""Exact values in any text: each is told to its end, with its unit, currency and zone, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.extraction.facts import MOST_CHARACTERS, facts_in
from tests.support.timing import growth

digit = st.sampled_from("123456789")


def digits(least: int, most: int) -> st.SearchStrategy[str]:
    return st.builds(str.__add__, digit, st.text("0123456789", min_size=least - 1, max_size=most - 1))


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


def one_of(words: str, apart: str = " ") -> st.SearchStrategy[str]:
    return st.sampled_from(words.split(apart))


def just(text: str) -> st.SearchStrategy[str]:
    return st.just(text)


def grouped(separator: str, point: str) -> st.SearchStrategy[str]:
    """A number of at least four digits in groups of three, with decimals or without."""
    groups = st.lists(st.text("0123456789", min_size=3, max_size=3), min_size=1, max_size=2)
    more = groups.map(lambda each: "".join(separator + three for three in each))
    decimals = just("") | joined(just(point), st.text("0123456789", min_size=2, max_size=2))
    return joined(digits(1, 3), more, decimals)


def blocks(*lengths: int, apart: str = " ") -> st.SearchStrategy[str]:
    return st.tuples(*(digits(length, length) for length in lengths)).map(apart.join)


number = digits(2, 5) | joined(digits(1, 3), one_of(". ,", " "), digits(1, 2))
number |= grouped(",", ".") | grouped(".", ",") | grouped(" ", ",") | grouped("'", ".")
ranges = joined(digits(1, 3), one_of("- \u2013", " "), digits(1, 3))
currency = one_of(" €,€,$, EUR, USD, CHF, kr, dollars, euros", ",")
unit = one_of("ms, ms, GB,GB, kg, mg, °C,°C, %,%, km/h, g/dL, MB/s, m², minutes, Stunden, kWh", ",")
clock = joined(st.integers(10, 23).map(str), just(":"), st.integers(10, 59).map(str))
zone = one_of(" UTC| CET|+02:00| GMT+1| (JST)| EST| Uhr| Uhr MEZ", "|") | one_of(" PM| p.m.|am| AM EST", "|")
han = joined(
    digits(1, 4),
    st.lists(joined(one_of("千 万 億"), digits(1, 3)), max_size=2).map("".join),
    one_of("円 万円 元 万元 億円 ドル 人民币"),
)
values = st.one_of(
    joined(just("+"), st.one_of(blocks(3, 3, 3, 3), blocks(2, 3, 7), blocks(2, 2, 4, 4, apart="-"))),
    joined(just("0"), st.one_of(blocks(1, 2, 2, 2, 2), blocks(3, 7), blocks(2, 4, 4), blocks(3, 4, 4))),
    joined(just("("), blocks(3), just(") "), blocks(3, 4, apart="-")),
    blocks(3, 3, 3),
    blocks(4, 4, 4, 4),
    joined(just("DE"), blocks(2, 4, 4, 4, 4, 2)),
    joined(just("FR"), blocks(2, 4, 4, 4, 4, 4, 3)),
    joined(just("GB"), digits(2, 2), just(" NWBK "), blocks(4, 4, 4, 2)),
    joined(number | ranges, currency | unit),
    joined(one_of("$ € £ US$ CHF_ EUR_ -€", " ").map(lambda sign: sign.replace("_", " ")), number),
    joined(just("-"), digits(1, 2), one_of(" °C,°C, %,%", ",")),
    joined(digits(1, 2), just(" "), one_of("million|Mio.|Millionen|millions", "|"), one_of(" €| EUR", "|")),
    grouped(".", ",").filter(lambda value: "," in value),
    grouped("'", "."),
    han,
    joined(
        one_of("db-prod-7.internal,cache.boats.example,10.0.0.12,localhost", ","), just(":"), digits(4, 5)
    ),
    joined(clock, zone),
    joined(clock, one_of("- \u2013", " "), clock, just("") | just(" CET")),
    joined(digits(1, 1), one_of(" May 2031| de mayo de 2031|. März 2031|st of May 2031|\u20139 May", "|")),
    joined(one_of("May |June ", "|"), digits(1, 1), one_of(", 2031|th, 2031|-9", "|")),
    joined(one_of("2031年 令和8年"), digits(1, 1), just("月"), digits(1, 1), just("日")),
    joined(just("v"), digits(1, 2), just("."), digits(1, 2), one_of(".0-rc.1|.0+build.5|.17", "|")),
)
contexts = st.sampled_from(
    """{}
    It is {}.
    We have {}, as said.
    So: {}!
    Note ({}), thanks.
    is it {}?
    See {}; then go.
    « {} »
    "{}"
    ask {} …
    它是{}。
    それは{}です。
    値段は{}、以上""".split("\n    ")
)


@settings(max_examples=400)
@given(values, contexts)
@example("1.200,50 €", "It is {}.")
@example("06 41 77 20 93", "Please note {} for later.")
@example("+351 912 445 018", "It is {}.")
@example("2万5千円", "宿は一泊{}です。")
def test_a_value_is_told_to_its_end_or_not_at_all(value: str, context: str) -> None:
    told = [fact.value for fact in facts_in(context.format(value))]
    shortened = [each for each in told if each in value and each != value.removesuffix(".")]
    assert value in told or not shortened, told


@settings(max_examples=200)
@given(st.lists(st.tuples(values, contexts), min_size=2, max_size=4))
def test_whatever_stands_beside_it_a_value_stays_what_it_is_by_itself(parts: list[tuple[str, str]]) -> None:
    lines = [context.format(value) for value, context in parts]
    alone = {fact.value for line in lines for fact in facts_in(line)}
    assert {fact.value for fact in facts_in("\n".join(lines))} == alone


PIECES = "1|12 |123 |1,|1.|1'|1-|(12) |(12|+1 |2万|1:|1/|DE89 3704 |$1-|1 h |12\u2013|May |1 de |5 km/"
NAMES = "https://a/(|a-1:|a.|::1|1.1.1.1/|x@y:"


@pytest.mark.parametrize("piece", f"{PIECES}|{NAMES}".split("|"))
def test_reading_four_times_as_much_takes_some_four_times_as_long(piece: str) -> None:
    text = piece * (MOST_CHARACTERS // len(piece) + 1)
    assert growth(lambda length: lambda: facts_in(text[:length]), MOST_CHARACTERS // 4, MOST_CHARACTERS) <= 10
