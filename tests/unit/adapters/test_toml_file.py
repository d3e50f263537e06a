"""On which line of a TOML file a key stands."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters.files.toml_file import key_lines, line_of


def test_keys_are_found_in_every_way_that_toml_writes_them() -> None:
    text = (
        'a = 1\nb.c = 2\n"d e" = 3\n[f."g.h"]\ni = {j = 1, k.l = 2}\n[[m]]\nn = [\n 1,\n]\no = 1\n'
        '[[m]]\n[m.p]\nq = """\nr = 1\n"""\ns = 1\n'
    )
    lines = key_lines(text)
    expected = {
        ("a",): 1, ("b",): 2, ("b", "c"): 2, ("d e",): 3, ("f", "g.h"): 4, ("f", "g.h", "i", "j"): 5,
        ("f", "g.h", "i", "k", "l"): 5, ("m",): 6, ("m", 0, "n"): 7, ("m", 0, "o"): 10, ("m", 1): 11,
        ("m", 1, "p"): 12, ("m", 1, "p", "q"): 13, ("m", 1, "p", "s"): 16,
    }  # fmt: skip
    assert {location: lines.get(location) for location in expected} == expected
    assert ("r",) not in lines


def test_windows_line_ends_are_lines() -> None:
    assert key_lines("# c\r\n[a]\r\nb = 1\r\n")[("a", "b")] == 3


def test_a_key_that_is_absent_is_looked_for_in_the_table_around_it() -> None:
    lines = key_lines("[a]\nb = 1\n")
    assert line_of(("a", "missing"), lines) == 1
    assert line_of(("missing",), lines) is None


STATEMENTS = ("a = 1", "b = [\n1,\n2]", 'c = """\n[x]\n"""', "# d", "", "e.f = {g = 1}")


@given(st.lists(st.sampled_from(STATEMENTS), unique=True))
def test_every_key_that_tomllib_reads_has_a_line_where_it_is_written(statements: list[str]) -> None:
    text = "\n".join(statements)
    lines = key_lines(text)
    for key in tomllib.loads(text):
        assert text.split("\n")[lines[(key,)] - 1].startswith(key)
