"""Policy files: the presets, how a file is found and extends another, and the page about them."""

import re
from pathlib import Path

import pytest

from proxy.adapters.files.policies import PolicyLibrary, shipped_policies
from proxy.adapters.files.toml_file import FileError, key_lines
from proxy.core.planning.importance import score
from proxy.core.policy.policy import Policy, dotted_keys
from tests.support.policy_files import Files

PRESETS = ["agent", "aggressive", "balanced", "conservative", "default", "exchanges", "off", "sliding-window"]


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
        ("balanced", 8000, (4800, 6400, 7200), 1000, 5900, 125),
        ("conservative", 6000, (2700, 3600, 4500), 1000, 3500, 100),
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


def test_the_preset_for_agents_tells_of_working_steps_in_a_report_of_2000_tokens() -> None:
    policy = PolicyLibrary().load("agent")
    assert [each.name for each in policy.compactors] == ["working_flow"]
    assert policy.summary_tokens(112_000) == 2000
    assert policy.summary_tokens(8_000) == 1000
    assert not PolicyLibrary().load("default").compactors


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


def test_a_policys_own_window_comes_before_a_pattern_of_the_one_that_it_extends(files: Files) -> None:
    files.write("base", '[budget.windows]\n"*" = 8192\n')
    policy = files.load('extends = "base"\n[budget.windows]\n"qwen3-*" = 32768\n')
    assert (policy.budget.window("qwen3-8b"), policy.budget.window("other")) == (32768, 8192)


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
    with pytest.raises(FileError, match="not the name of a policy"):
        files.library.named(name)


def test_an_edited_file_is_read_again(files: Files) -> None:
    assert files.load("[keep]\nrecent = 0.1\n").keep.recent == 0.1
    assert files.load("[keep]\nrecent = 0.2\n").keep.recent == 0.2


# --- the page about them ---

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_every_policy_on_the_page_loads(files: Files) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) >= 5
    assert {files.load(example).extends for example in examples} == {"default"}


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
