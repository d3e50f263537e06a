"""What is valid in a policy and yet has no effect, can never match, or has no room."""

import tomllib

import pytest

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.toml_file import key_lines
from proxy.core.policy.policy import Policy
from proxy.core.policy.warnings import warnings_of


def warned(text: str, budget: int | None = 100_000) -> list[str]:
    """The warnings about a policy file, each behind its key."""
    found = warnings_of(Policy.model_validate(tomllib.loads(text)), key_lines(text), budget)
    return [f"{'.'.join(map(str, each.location))}: {each.message}" for each in found]


@pytest.mark.parametrize("name", PolicyLibrary().names())
def test_no_preset_is_warned_of(name: str) -> None:
    assert not list(warnings_of(PolicyLibrary().load(name), (), 8_000))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('strategy.name = "exchanges"\nstrategy.last = 20', "strategy.last: `strategy.last` has no effect: "),
        ('strategy.name = "sliding_window"\nstrategy.roll_to = 4', "strategy.roll_to: `strategy.roll_to`"),
        (
            "summary.enabled = false\nsummary.wait = 1\nsummary.min_gap = 2",
            "summary.min_gap: `summary.min_gap`, `summary.wait` have no effect: `summary.enabled` is false",
        ),
        (
            "economy.enabled = false\neconomy.expected_turns = 9",
            "economy.expected_turns: `economy.expected_turns` has no",
        ),
        (
            'recall.enabled = true\nrecall.embeddings = "m"',
            "recall.embeddings: `recall.embeddings` has no effect any more: searches are by words; a",
        ),
        (
            'recall.search = "words"',
            "recall.search: `recall.search` has no effect: `recall.enabled` is false",
        ),
        (
            "proof.daily_dollars = 5",
            "proof.daily_dollars: `proof.daily_dollars` has no effect: `proof.share` is 0",
        ),
        ("recall.rounds = 2", "recall.rounds: `recall.rounds` has no effect: `recall.enabled` is false"),
        (
            "tool_results = {clear_first = false, clear_at_least = 0.2}",
            "tool_results.clear_at_least: `tool_results.clear_at_least` has no effect",
        ),
        (
            'tool_results.clear_first = false\ntools = [{match = "a", clear_after = 9}]',
            "tools.0.clear_after: `clear_after` has no effect: `tool_results.clear_first` is false",
        ),
        (
            'strategy.name = "off"\n[stages]\ntrim = 0.7\n[keep]\npins = ["$x"]',
            "stages: `stages`, `keep` have no effect: nothing is cut",
        ),
        (
            'tools = [{match = "a", serve = true, pure = true}]',
            "tools.0.serve: `serve = true` has no effect: `cache_exchanges` is 0",
        ),
        (
            'tools = [{match = "set_*", cache_exchanges = 1, invalidated_by = ["set_*"]}]',
            "tools.0.cache_exchanges: no result of `set_*` is kept: `invalidated_by` has `set_*`",
        ),
    ],
)
def test_what_has_no_effect_is_said(text: str, said: str) -> None:
    (found,) = warned(text)
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        'summary = {enabled = false, model = "small", timeout = 9}\nmemory.enabled = true',
        "economy = {enabled = false, cache_ttl = 60, cached_price = 0.2}",
    ],
    ids=["memory asks the summaries' model", "how a summary is asked for"],
)
def test_what_has_an_effect_elsewhere_is_no_warning(text: str) -> None:
    assert warned(text) == []


SHADOWED = """\
[[retention]]
match.role = "tool"
class = "critical"
[[retention]]
match = {role = "tool", tool = "a"}
class = "disposable"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHADOWED, "retention.1: this `[[retention]]` is never reached: one before it matches all of it"),
        (
            'tools = [{match = "*"}, {match = "get_*"}]',
            'tools.1.match: `match = "get_*"` is never reached: `*` stands before it',
        ),
        (
            'budget.windows = {"qwen*" = 1, "qwen3-*" = 2}',
            "budget.windows.qwen3-*: the window of `qwen3-*` is never asked for: `qwen*` stands before it",
        ),
        (
            'retention = [{match.role = "developper", class = "critical"}]',
            "retention.0.match.role: no message has the role `developper`; did you mean `developer`?",
        ),
        ("importance.roles.bot = 0.1", "importance.roles.bot: no message has the role `bot`"),
        (
            'retention = [{match = {role = "user", tool = "a"}, class = "critical"}]',
            'retention.0.match.role: `tool` and `role = "user"` never match together',
        ),
        (
            'tools = [{match = "^get_.*"}]',
            "tools.0.match: `^get_.*` matches no tool: it is a shell pattern (`get_*`), and no name has `^`",
        ),
        (
            "retention = [{match.tool = '(a|b)', class = \"critical\"}]",
            "retention.0.match.tool: `(a|b)` matches no tool: it is a shell pattern (`get_*`), and",
        ),
        (
            'keep.pins = ["ok", "US$100"]',
            "keep.pins.1: `US$100`: nothing stands before `^` or after `$`, the ends of a text",
        ),
        (
            'retention = [{match.content = "a^b", class = "critical"}]',
            "retention.0.match.content: `a^b`: nothing stands before `^`",
        ),
    ],
)
def test_what_can_never_match_is_said(text: str, said: str) -> None:
    (found,) = warned(text)
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "keep.pins = ['\\$100', '[$^]x', '(?m)a$b', '^a$', 'a$|b', '(^|x)y', 'a$b?', '(?x) a $ b']",
        'tools = [{match = "server.*"}, {match = "get_[!x]*"}, {match = "*"}]',
        'budget.windows = {"*" = 1, "qwen3" = 2}',
        'tools = [{match = "a?"}, {match = "a*"}, {match = "[ab]c"}, {match = "bc"}]',
        'retention = [{match.content = "a", class = "critical"}, {match.tool = "a", class = "critical"}]',
        'strategy.name = "session"\nstrategy.idle = 60',
        'tools = [{match = "a", serve = true, pure = true, cache_exchanges = 1}]\nrecall.rounds = 2',
        'retention = [{match.role = "function", class = "critical"}]',
    ],
)
def test_what_may_match_or_act_is_not_warned_of(text: str) -> None:
    assert warned(text) == []


def test_a_budget_with_no_room_for_what_must_be_in_it_is_said() -> None:
    assert warned("", 900) == [
        "budget.tokens: a budget of 900 tokens holds little beside a system prompt and tools",
        "budget.tokens: a budget of 900 tokens is no more than the ledger may have (`ledger.least`)",
    ]
    assert warned("summary.max_tokens = 500", 3_000) == [
        "summary.max_tokens: no summary gets 500 tokens: an eighth of a budget of 3,000 tokens is 375"
    ]
    assert warned("summary.max_tokens = 500", 4_000) == warned("summary.max_tokens = 500", None) == []
