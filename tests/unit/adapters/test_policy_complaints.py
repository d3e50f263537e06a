"""What is wrong with a policy file is said by file, line and nearest key."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.toml_file import FileError
from proxy.core.policy.policy import dotted_keys
from tests.support.policy_files import Files

SECONDS = 'must be a number of seconds, or text such as "2.5s" or "30d" (ms, s, m, h, d, w)'
BYTES = 'must be a number of bytes, or text such as "64MiB" (B, kB, MB, GB, KiB, MiB, GiB)'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n[summary]\n# why\nwiat = 3\n", "4: unknown key `summary.wiat`; did you mean `wait`?"),
        ("[sumary]\nwait = 3\n", "1: unknown key `sumary`; did you mean `summary`?"),
        ("tokens = 8000\n", "1: unknown key `tokens`; did you mean `budget.tokens`?"),
        ("[keep]\nzzz = 1\n", "2: unknown key `keep.zzz`"),
        ('name = "y"\n', "1: unknown key `name`; a policy has the name of its file"),
        ('[budget]\ntokens = "x"\n', '2: `budget.tokens` must be a whole number or "auto"'),
        ("[keep]\nrecent = 3\n", "2: `keep.recent` must be at most 1 (0.8 is 80 %)"),
        ("[keep]\nfirst_user = 33\n", "2: `keep.first_user` must be true, false or at most 1 (0.8 is 80 %)"),
        ("budget = 3\n", "1: `budget` must be a table"),
        ('[[tools]]\nmatch = "a"\n[[tools]]\npure = true\n', "3: `tools.match` is required"),
        (
            '[[tools]]\nmatch = "a"\n\n[[tools]]\nmatch = "b"\nserve = true\n',
            "6: `serve = true` needs `pure = true` or `invalidated_by` in `tools`",
        ),
        ("[stages]\nwarn = 0.5\ntrim = 0.95\n", "3: `trim` (0.95) must be below `compact` (0.9) in `stages`"),
        (
            '[keep]\npins = [\n  "a",\n  "*",\n]\n',
            "2: `keep.pins` holds `*`, which is no regular expression: nothing to repeat at position 0",
        ),
        ("[budget\n", "1: is not TOML: Expected ']' at the end of a table declaration"),
        ('[keep]\nx = """\n\n', "4: is not TOML: Unterminated string"),
        ("[keep]\nrecent = 0.1\nrecent = 0.2\n", "3: is not TOML: a key stands here for the second time"),
        (
            "[keep]\n[memory]\n[keep]\n",
            "3: is not TOML: Cannot declare ('keep',) twice",
        ),
        (
            "[keep]\nfirst_user = True\n",
            "2: is not TOML: it is no valid value (text has quotes; 0.5, not .5; true, not True)",
        ),
        (
            '[keep]\npins = ["\\d+"]\n',
            "2: is not TOML: a text has a single backslash (write two, or single quotes around it)",
        ),
        ("x = { [\n", "1: is not TOML: Invalid initial character for a key part"),
        ("[stages]\nwarn = 60\n", "2: `stages.warn` must be at most 1 (0.8 is 80 %)"),
        ('[stages]\ntrim = "80%"\n', "2: `stages.trim` must be a number"),
        ('economy.cached_price = "10%"\n', '1: `economy.cached_price` must be a number or "auto"'),
        ('[budget]\ntokens = "8000"\n', '2: `budget.tokens` must be a whole number or "auto"'),
        (
            "[budget]\ntokens = 99999999999999999999\n",
            '2: `budget.tokens` must be at most 9007199254740992 or "auto"',
        ),
        (f'[limits]\nbody = "{"9" * 400}GiB"\n', "2: `limits.body` must be at most 9007199254740992"),
        ('[store]\nttl = "99999999999999d"\n', "2: `store.ttl` must be at most 31536000000"),
        ('[summary]\nwait = "50%"\n', f"2: `summary.wait` {SECONDS}"),
        ('[summary]\nalternate = "yes"\n', '2: `summary.alternate` must be true, false or "auto"'),
        (
            '[budget]\noverflow = "forwards"\n',
            '2: `budget.overflow` must be "forward" or "error"; did you mean `forward`?',
        ),
        (
            "[summary]\nwait = [2]\n",
            f"2: `summary.wait` {SECONDS}",
        ),
        (
            '[limits]\nbody = "64 megabytes"\n',
            f"2: `limits.body` {BYTES}",
        ),
        (
            "[memory]\nmaintain_at = 03:00:00\n",
            '2: `memory.maintain_at` must be a time of day as text, such as "03:00"',
        ),
        ('[importance]\nkeywords = ["a", 3]\n', "2: each of `importance.keywords` must be text"),
        ('[tools]\nmatch = "a"\n', "1: `tools` must be an array; one of tables is written `[[name]]`"),
        ('tools = ["a"]\n', "1: each of `tools` must be a table"),
        ("[[budget]]\ntokens = 1\n", "1: `budget` must be a table"),
        ("[budget.windows]\n'' = 1\n", '2: `budget.windows.""` must not be empty'),
        ("recent = 0.1\n", "1: unknown key `recent`; did you mean `keep.recent`?"),
        ("[budget.limits]\nbody = 1\n", "1: unknown key `budget.limits`; did you mean `limits`?"),
        ("'a\\nb' = 1\n", '1: unknown key `"a\\\\nb"`'),
        (
            '[keep]\nextends = "balanced"\n',
            "2: unknown key `keep.extends`; `extends` stands before the first table",
        ),
        ("extends = 3\n", "1: `extends` must be the name of a policy"),
        (
            '\nextends = "balancd"\n',
            '2: `extends = "balancd"`: there is no such policy; did you mean `balanced`? there are '
            + ", ".join(f"`{name}`" for name in PolicyLibrary().names()),
        ),
        ('extends = "x"\n', '1: `extends = "x"`: there is no other policy of that name'),
        (
            'extends = "./balanced.toml"\n',
            '1: `extends = "./balanced.toml"`: this is not the name of a policy; did you mean `balanced`?',
        ),
        ('extends = "../x"\n', '1: `extends = "../x"`: this is not the name of a policy'),
    ],
)
def test_a_complaint_names_file_line_and_nearest_key(files: Files, text: str, said: str) -> None:
    assert files.complaint(text) == f"x.toml:{said}"


EVERYTHING_WRONG = """\
extends = "balancd"
name = "y"
[stages]
trim = "80%"
warm = 0.5
[importance]
keywords = ["a", 3, 4]
[keep]
pins = ["*"]
[sumary]
wait = 1
[[tools]]
match = "a"
serve = true
[[tools]]
serve = 1
"""


def test_all_mistakes_of_a_file_are_told_at_once_by_line_and_key(files: Files) -> None:
    files.write("x", EVERYTHING_WRONG)
    with pytest.raises(FileError) as caught:
        files.library.load("x")
    first, *told = [(each.line, each.key, each.message) for each in caught.value.mistakes]
    assert first[:2] == (1, "extends")
    assert first[2].startswith('`extends = "balancd"`: there is no such policy; did you mean `balanced`?')
    assert told == [
        (2, "name", "unknown key `name`; a policy has the name of its file"),
        (4, "stages.trim", "`stages.trim` must be a number"),
        (5, "stages.warm", "unknown key `stages.warm`; did you mean `warn`?"),
        (7, "importance.keywords", "each of `importance.keywords` must be text"),
        (
            9,
            "keep.pins",
            "`keep.pins` holds `*`, which is no regular expression: nothing to repeat at position 0",
        ),
        (10, "sumary", "unknown key `sumary`; did you mean `summary`?"),
        (15, "tools.match", "`tools.match` is required"),
        (16, "tools.serve", "`tools.serve` must be true or false"),
    ]
    lines = str(caught.value).splitlines()
    assert lines == [f"{files.directory}/x.toml:{line}: {message}" for line, _, message in (first, *told)]


def test_keys_that_contradict_each_other_are_told_beside_a_key_that_is_wrong(files: Files) -> None:
    said = files.complaint('[stages]\nwarn = "x"\ntrim = 0.95\n[strategy]\nroll_to = 20\n')
    assert [line.partition("x.toml:")[2] for line in said.splitlines()] == [
        "2: `stages.warn` must be a number",
        "3: `trim` (0.95) must be below `compact` (0.9) in `stages`",
        "5: `roll_to` (20) must not be above `exchanges` (10) in `strategy`",
    ]


def test_mistakes_of_a_file_and_of_what_it_extends_are_told_together_once(files: Files) -> None:
    files.write("base", "[keep]\nrecent = 3\n[stages]\ncompact = 0.85\n")
    said = files.complaint('extends = "base"\n[stages]\ntrim = 0.87\nwarm = 1\n')
    assert [line.removeprefix(f"{files.directory}/") for line in said.splitlines()] == [
        "base.toml:2: `keep.recent` must be at most 1 (0.8 is 80 %)",
        "x.toml:3: `trim` (0.87) must be below `compact` (0.85) in `stages`",
        "x.toml:4: unknown key `stages.warm`; did you mean `warn`?",
    ]


def test_nothing_is_said_of_contradictions_with_what_is_not_there(files: Files) -> None:
    said = files.complaint('extends = "bas"\n[stages]\ntrim = 0.95\n')
    assert said.startswith('x.toml:1: `extends = "bas"`: there is no such policy')
    assert "\n" not in said


def test_a_complaint_about_a_pattern_of_several_lines_is_one_line(files: Files) -> None:
    said = files.complaint("[keep]\npins = ['''\na\n)''']\n")
    assert said.startswith("x.toml:2: `keep.pins` holds `a )`, which is no regular expression: ")
    assert "\n" not in said


def test_a_circle_of_policies_is_an_error(files: Files) -> None:
    files.write("y", 'extends = "z"\n')
    files.write("z", 'extends = "x"\n')
    said = files.complaint('extends = "y"\n')
    assert said == "z.toml:1: policies extend each other in a circle: x -> y -> z -> x"


def test_a_mistake_is_reported_in_the_file_that_makes_it(files: Files) -> None:
    files.write("base", "\n[keep]\nrecent = 3\n")
    assert files.complaint('extends = "base"\n').startswith("base.toml:3: ")


def test_a_contradiction_between_two_files_is_reported_in_the_one_that_extends(files: Files) -> None:
    files.write("base", "[stages]\ncompact = 0.85\n")
    said = files.complaint('extends = "base"\n\n[stages]\ntrim = 0.87\n')
    assert said == "x.toml:4: `trim` (0.87) must be below `compact` (0.85) in `stages`"


def test_a_policy_that_is_not_there_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(FileError, match="there is no such policy; did you mean `conservative`"):
        PolicyLibrary().load("conservativ")
    with pytest.raises(FileError, match=r"/nowhere/x\.toml: cannot be read: No such file"):
        PolicyLibrary().load("/nowhere/x.toml")


def test_a_file_that_is_not_utf_8_is_an_error_with_its_line(files: Files) -> None:
    (files.directory / "x.toml").write_bytes(b"# fine\n# \xff\n")
    with pytest.raises(FileError, match=r"x\.toml:2: is not UTF-8"):
        files.library.load("x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"a = {'[' * 5000}", "it is nested too deeply"),
        (f"a = {'[' * 300}{']' * 300}", "it is nested too deeply"),
        (f"a{'.a' * 5000} = 1", "it is nested too deeply"),
        (f"[a{'.a' * 900}]", "it is nested too deeply"),
        (f"a = {'9' * 5000}", "a number is too long"),
    ],
)
def test_what_python_refuses_to_read_is_an_error_like_any_other(files: Files, text: str, reason: str) -> None:
    assert files.complaint(f"{text}\n") == f"x.toml: cannot be read: {reason}"


def test_a_directory_is_no_policy(files: Files) -> None:
    (files.directory / "x.toml").mkdir()
    with pytest.raises(FileError, match=r"^x: there is no such policy; there are `agent`, "):
        files.library.load("x")
    with pytest.raises(FileError, match=r"/x\.toml: cannot be read: Is a directory$"):
        files.library.load(files.directory / "x.toml")


def test_a_directory_of_policies_that_cannot_be_looked_at_is_an_error(files: Files) -> None:
    for name in ("x" * 300, "x\0"):
        with pytest.raises(FileError, match="is not a directory of policies that can be read"):
            PolicyLibrary(files.directory / name)


def test_a_file_is_no_directory_of_policies(files: Files) -> None:
    path = files.write("x", "")
    with pytest.raises(FileError, match=r"x\.toml: is not a directory of policies"):
        PolicyLibrary(path)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(dotted_keys()), ODD.filter(lambda value: value is not None))
def test_whatever_stands_behind_a_key_is_taken_or_complained_about_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: object
) -> None:
    directory = tmp_path_factory.mktemp("odd")
    (directory / "x.toml").write_text(f"{key} = {as_toml(value)}\n", encoding="utf-8")
    said = complaint_about(PolicyLibrary(directory), "x")
    assert all(line.startswith(f"{directory}/x.toml:1: ") for line in (said or "").splitlines())


def complaint_about(library: PolicyLibrary, name: str) -> str | None:
    try:
        library.load(name)
    except FileError as error:
        return str(error)
    return None


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(each)}" for key, each in pairs) + "}"
    if isinstance(value, list):
        return (
            "[" + ", ".join(as_toml(each) for each in cast("list[object]", value) if each is not None) + "]"
        )
    return '""' if value is None else json.dumps(value)
