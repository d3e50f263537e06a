"""Texts that are made to be slow to read take as long as they are, not as the square of that."""

from collections.abc import Callable

import pytest

from proxy.core.extraction.facts import facts_in, leaves_of
from proxy.core.extraction.kinds import spaced_in
from proxy.core.extraction.printed import examples_in, is_record
from proxy.core.extraction.reading import sentences_of
from proxy.core.summaries.verification import Evidence, fault_in
from proxy.core.text.lexicon.rules import DECLINES
from proxy.core.text.lexicon.words import COURTESY
from tests.support.timing import growth

FACTOR = 4
"""How much longer the longer text is."""


def a_line_of_initials(length: int) -> None:
    _ = [*sentences_of("W. " * (length // 3))]


def a_line_of_names_in_code(length: int) -> None:
    for line in ("`a" * (length // 2), "a." * (length // 2) + "(", "a(" * (length // 2), "`" * length):
        _ = [*sentences_of(f"never {line}()")]


def an_answer_that_hardly_declines(length: int) -> None:
    for text in ("\n" * length, "i'm " + "so" * (length // 2) + " sorry", "leider kann ich " + "a " * length):
        DECLINES.match(text)


def a_summary_of_line_ends(length: int) -> None:
    fault_in("They" + "\n" * length + "met.", Evidence("They met.", "They met."))


def a_row_of_courtesies_that_never_end(length: int) -> None:
    for line in ("Thank " * (length // 6), "a i your " * (length // 9), "i " + "u" * length, "谢" * length):
        COURTESY.sub(" ", line)


def a_letter_of_many_words(length: int) -> None:
    _ = [*sentences_of("he said " * (length // 8) + "\n> Never do that.")]


def lines_that_seem_to_be_of_a_trace(length: int) -> None:
    facts_in("f(0x" * (length // 4) + "\n" + "1 " * length + "+0x1\n" + ": " * length + "0x1")


def a_diff_of_one_long_line(length: int) -> None:
    facts_in("+++ b/" + " b" * (length // 2))


def markup_that_no_tag_ends(length: int) -> None:
    leaves_of(f'["{"<a b>" * (length // 5)}<"]', "")


def a_publication_with_brackets(length: int) -> None:
    facts_in("10.4711/" + "a(" * (length // 2))


def a_long_number_among_short_ones(length: int) -> None:
    spaced_in("1 " + "1" * length + " 1")


def a_line_like_an_element(length: int) -> None:
    for line in (
        "[1] link ''" + " a='x\"" * (length // 6),
        'a "' + '" [a] ' * (length // 6),
        "a." * (length // 2),
        "[1] " + "Aa" * (length // 2),
        "[1]<a" + "</" * (length // 2) + " " * length,
        "10:00:00 " + "[a] " * (length // 4),
        '{"error"' + "} " * (length // 2) + "a",
        "a [type=a, input_value=" + "] " * (length // 2) + "a",
    ):
        is_record([line], 0)


def frames_that_nothing_closes(length: int) -> None:
    for text in (
        "<example>" * (length // 9),
        "--- example\n" * (length // 12),
        "-" * length,
        "--- " + "a " * length,
    ):
        examples_in(text)


@pytest.mark.parametrize(
    ("work", "length"),
    [
        (a_line_of_initials, 10_000),
        (a_line_of_names_in_code, 40_000),
        (an_answer_that_hardly_declines, 40_000),
        (a_summary_of_line_ends, 5_000),
        (a_long_number_among_short_ones, 20_000),
        (lines_that_seem_to_be_of_a_trace, 4_000),
        (a_diff_of_one_long_line, 10_000),
        (markup_that_no_tag_ends, 10_000),
        (a_publication_with_brackets, 10_000),
        (a_row_of_courtesies_that_never_end, 40_000),
        (a_letter_of_many_words, 40_000),
        (a_line_like_an_element, 40_000),
        (frames_that_nothing_closes, 40_000),
    ],
)
def test_time_grows_as_the_text_does(work: Callable[[int], None], length: int) -> None:
    assert growth(lambda each: lambda: work(each), length, FACTOR * length) < 2 * FACTOR
