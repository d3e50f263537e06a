"""Policy files: found, extended, and complained about by file, line and nearest key."""

import json
import re
import tomllib
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters.files.policies import PolicyLibrary, shipped_policies
from proxy.adapters.files.toml_lines import key_lines, line_of
from proxy.core.importance import score
from proxy.core.policy import Policy, dotted_keys
from proxy.errors import PolicyError

PRESETS = ["agent", "aggressive", "balanced", "conservative", "default", "exchanges", "off", "sliding-window"]


class Files:
    """Policy files in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.library = PolicyLibrary([directory])

    def write(self, name: str, text: str) -> Path:
        path = self.directory / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, text: str) -> Policy:
        self.write("x", text)
        return self.library.load("x")

    def complaint(self, text: str) -> str:
        with pytest.raises(PolicyError) as caught:
            self.load(text)
        return str(caught.value).removeprefix(f"{self.directory}/")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# --- the presets ---


def test_the_presets_are_there_without_any_directory() -> None:
    assert PolicyLibrary().names() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_under_its_own_name(name: str) -> None:
    assert PolicyLibrary().load(name).name == name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_explains_itself_before_its_first_key(name: str) -> None:
    text = (shipped_policies() / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}: ")


def test_the_default_file_is_the_models_defaults() -> None:
    assert PolicyLibrary().load("default") == Policy()


def test_the_default_file_states_every_key() -> None:
    lists = ("retention", "compactors", "tools")
    text = (shipped_policies() / "default.toml").read_text(encoding="utf-8")
    stated = {".".join(map(str, location)) for location in key_lines(text)}
    known = {key for key in dotted_keys() if key != "extends" and key.partition(".")[0] not in lists}
    assert known <= stated
    assert all(f"[[{each}]]" in text for each in lists)


@pytest.mark.parametrize(
    ("name", "budget", "marks", "head", "goal", "summary"),
    [
        ("default", 112_000, (67_200, 89_600, 100_800), 12_000, 62_000, 1750),
        ("balanced", 8000, (4800, 6400, 7200), 1000, 5900, 150),
        ("conservative", 6000, (2700, 3600, 4500), 1000, 3500, 150),
        ("aggressive", 12_000, (9600, 10_800, 11_400), 1000, 9800, 187),
    ],
)
def test_the_worked_example_of_a_preset_is_right(
    name: str, budget: int, marks: tuple[int, ...], head: int, goal: int, summary: int
) -> None:
    policy = PolicyLibrary().load(name)
    stages = policy.stages
    assert policy.budget.tokens in {budget, "auto"}
    assert tuple(round(budget * each) for each in (stages.warn, stages.trim, stages.compact)) == marks
    assert round(head + stages.target * (budget - head)) == goal
    assert policy.summary_tokens(budget) == summary
    text = (shipped_policies() / f"{name}.toml").read_text(encoding="utf-8")
    assert all(f"{number:,}" in text for number in (*marks, goal))


@pytest.mark.parametrize("name", ["balanced", "conservative", "aggressive"])
def test_the_presets_with_a_fixed_budget_ask_no_price_and_score_tool_results_like_all_else(name: str) -> None:
    policy = PolicyLibrary().load(name)
    assert not policy.economy.enabled
    assert not policy.tool_results.clear_first


def test_the_presets_by_count_differ_by_strategy() -> None:
    library = PolicyLibrary()
    assert library.load("exchanges").strategy.name == "exchanges"
    assert library.load("sliding-window").strategy.name == "sliding_window"
    assert library.load("off").strategy.name == "off"
    assert library.load("agent").stages.max_units == 20


# --- finding and extending ---


def test_a_file_says_only_what_differs(files: Files) -> None:
    policy = files.load('extends = "balanced"\n[stages]\nwarn = 0.5\n')
    assert (policy.name, policy.extends) == ("x", "balanced")
    assert (policy.stages.warn, policy.stages.target, policy.budget.tokens) == (0.5, 0.7, 8000)


def test_a_file_that_extends_nothing_differs_from_the_default(files: Files) -> None:
    assert files.load("").digest == Policy().digest


def test_tables_merge_to_any_depth_and_arrays_are_replaced(files: Files) -> None:
    files.write(
        "base", '[importance.roles]\ntool = 0.9\n[keep]\npins = ["a", "b"]\n[[tools]]\nmatch = "a*"\n'
    )
    policy = files.load(
        'extends = "base"\nkeep.pins = ["c"]\ntools = [{match = "b*"}]\nimportance.roles = {user = 0.8}\n'
    )
    assert (policy.importance.roles["tool"], policy.importance.roles["user"]) == (0.9, 0.8)
    assert policy.keep.pins == ("c",)
    assert [tool.match for tool in policy.tools] == ["b*"]


def test_a_directory_comes_before_the_presets_and_may_extend_the_one_it_hides(files: Files) -> None:
    files.write("default", 'extends = "default"\n[keep]\nrecent = 0.1\n')
    assert files.library.load("default").keep.recent == 0.1
    assert files.library.names() == PRESETS


def test_a_path_loads_a_file_outside_and_finds_its_neighbours(files: Files) -> None:
    files.write("mine", "[keep]\nrecent = 0.1\n")
    path = files.write("yours", 'extends = "mine"\n')
    assert PolicyLibrary().load(str(path)).keep.recent == 0.1
    assert PolicyLibrary().load(path).name == "yours"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "x.toml/", "", "a b", "..", "x\n"])
def test_a_name_is_never_a_path(files: Files, name: str) -> None:
    files.write("x", "")
    with pytest.raises(PolicyError, match="not the name of a policy"):
        files.library.named(name)


def test_an_edited_file_is_read_again(files: Files) -> None:
    assert files.load("[keep]\nrecent = 0.1\n").keep.recent == 0.1
    assert files.load("[keep]\nrecent = 0.2\n").keep.recent == 0.2


# --- complaints ---

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
        ("[keep]\nfirst_user = 1\n", "2: `keep.first_user` must be true or false"),
        ("budget = 3\n", "1: `budget` must be a table"),
        ('[[tools]]\nmatch = "a"\n[[tools]]\nserve = 1\n', "3: `tools.match` is required"),
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
        ('[keep]\nx = """\n\n', "4: is not TOML: the file ends too early (unterminated string)"),
        ("[keep]\nrecent = 0.1\nrecent = 0.2\n", "3: is not TOML: `recent` stands here for the second time"),
        (
            "[keep]\n[memory]\n[keep]\n",
            "3: is not TOML: the table `keep` stands here for the second time",
        ),
        (
            "[keep]\nfirst_user = True\n",
            "2: is not TOML: `first_user` has no valid value (text has quotes; 0.5, not .5; true, not True)",
        ),
        (
            '[keep]\npins = ["\\d+"]\n',
            "2: is not TOML: a text has a single backslash (write two, or single quotes around it)",
        ),
        ("x = { [\n", "1: is not TOML: Invalid initial character for a key part"),
        ("[stages]\nwarn = 60\n", "2: `stages.warn` must be at most 1 (0.8 is 80 %)"),
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
        ('[tools]\nmatch = "a"\n', "1: `tools` must be tables in an array: `[[tools]]`"),
        ('tools = ["a"]\n', "1: `tools` must be tables in an array: `[[tools]]`"),
        ("[[budget]]\ntokens = 1\n", "1: `budget` must be one table, `[budget]`, not an array"),
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
            '2: `extends = "balancd"`: there is no such policy; did you mean `balanced`?',
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
    with pytest.raises(PolicyError, match="there is no such policy; did you mean `conservative`"):
        PolicyLibrary().load("conservativ")
    with pytest.raises(PolicyError, match=r"/nowhere/x\.toml: cannot be read: No such file"):
        PolicyLibrary().load("/nowhere/x.toml")


def test_a_file_that_is_not_utf_8_is_an_error_with_its_line(files: Files) -> None:
    (files.directory / "x.toml").write_bytes(b"# fine\n# \xff\n")
    with pytest.raises(PolicyError, match=r"x\.toml:2: is not UTF-8"):
        files.library.load("x")


@pytest.mark.parametrize(
    ("value", "reason"), [("[" * 5000, "it is nested too deeply"), ("9" * 5000, "a number is too long")]
)
def test_what_python_refuses_to_read_is_an_error_like_any_other(
    files: Files, value: str, reason: str
) -> None:
    assert files.complaint(f"a = {value}\n") == f"x.toml: cannot be read: {reason}"


def test_a_directory_is_no_policy(files: Files) -> None:
    (files.directory / "x.toml").mkdir()
    with pytest.raises(PolicyError, match=r"^x: there is no such policy$"):
        files.library.load("x")
    with pytest.raises(PolicyError, match=r"/x\.toml: cannot be read: Is a directory$"):
        files.library.load(files.directory / "x.toml")


def test_a_file_is_no_directory_of_policies(files: Files) -> None:
    path = files.write("x", "")
    with pytest.raises(PolicyError, match=r"x\.toml: is not a directory of policies"):
        PolicyLibrary.of(path)


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
    said = complaint_about(PolicyLibrary([directory]), "x")
    assert said is None or said.startswith(f"{directory}/x.toml:1: ")
    assert "\n" not in (said or "")


def complaint_about(library: PolicyLibrary, name: str) -> str | None:
    try:
        library.load(name)
    except PolicyError as error:
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


# --- the lines of keys ---


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


# --- the page about them ---

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_every_policy_on_the_page_loads(files: Files) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 5
    assert {files.load(example).extends for example in examples} == {"default", "agent"}


def test_the_page_tells_what_does_not_act_yet_and_nothing_more() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## What does not act yet")[2]
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)) == set(Policy.PENDING)


def test_the_page_lists_every_preset_with_its_numbers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in PRESETS:
        policy = PolicyLibrary().load(name)
        stages = policy.stages
        marks = " / ".join(f"{each * 100:.0f}" for each in (stages.warn, stages.trim, stages.compact))
        budget = "the model's window" if policy.budget.tokens == "auto" else f"{policy.budget.tokens:,}"
        by_stage = policy.strategy.name == "importance"
        row = f"| `{name}` | {budget} | {marks} % | {stages.target * 100:.0f} % |"
        assert (row if by_stage else f"| `{name}` | {budget} |") in page


def test_the_worked_score_on_the_page_is_what_the_core_gives() -> None:
    scored = score("tool", "Error: connection refused by host", 49, 101, Policy().importance)
    assert round(scored.total, 6) == 0.517
    assert "= 0.517" in PAGE.read_text(encoding="utf-8")
