"""Finds valid parts of a policy that have no effect, never match, or do not fit: for `unabridged check`.

There is a warning only for what is certain in every conversation. Some values are at fault only if the file
states them itself; ``stated`` has the keys that it does.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import ROLES
from proxy.core.policy.values import STRATEGIES
from proxy.core.text.similarity import did_you_mean

Location = tuple[str | int, ...]
"""Keys and indices from the top of a policy file."""

_STRATEGY_OF: Mapping[str, str] = {
    "last": "sliding_window",
    "idle": "session",
    **dict.fromkeys(("exchanges", "roll_to", "answer_max", "answer_to"), "exchanges"),
    **dict.fromkeys(("condense_active", "summary_max", "summary_to"), "exchanges"),
}
"""By option of `[strategy]`, the built-in strategy that reads it; what a plug-in's reads is not known."""
_CUTTING = (
    *("budget", "stages", "importance", "keep", "summary", "ledger", "economy"),
    *("retention", "compactors", "tool_results", "recall", "proof"),
)
_SUMMARY = ("model", "min_gap", "max_tokens", "max_characters", "temperature", "wait", "timeout", "prompt")
_SUMMARY_OF_MEMORY = ("model", "temperature", "timeout")
"""Keys of `[summary]` that memory's model calls use too."""
_ECONOMY = ("cache_ttl", "cached_price", "expected_turns")
_ECONOMY_OF_READING = ("cache_ttl", "cached_price")
"""Keys of `[economy]` that also decide how a summary is asked for."""
_MESSAGE_ROLES = {*ROLES, "function"}
_TOOL_ROLES = {"assistant", "tool", "function"}
_SMALL = 1_000
"""A budget in tokens so small that a usual system prompt, a few tools and a question fill it."""

_NO_NAME = re.compile(r"[\^$|(){}\\+\s]|^\.\*")
"""Characters that no tool name has; OpenAI allows letters, digits, `_` and `-`, others also `.`, `:`, `/`."""
_SET = re.compile(r"\[[^\]]*\]")
_ESCAPE_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]])*\]", re.DOTALL)
_PAST_AN_END = re.compile(r"\$\w(?![?*{])|\w\^")
_BY_LINES_OR_SPACED = re.compile(r"\(\?[a-zA-Z]*[mx]")


class PolicyWarning(NamedTuple):
    """A warning, and the location of the key that it is about."""

    location: Location
    message: str


def warnings_of(policy: Policy, stated: Collection[Location], budget: int | None) -> Iterator[PolicyWarning]:
    """Yield all warnings about a policy; ``budget`` is in tokens, None if it is not known."""
    for key, message in policy.retired():
        yield PolicyWarning(tuple(key.split(".")), message)
    for keys, why in _idle(policy):
        found = [key for key in keys if tuple(key.split(".")) in stated]
        if found:
            named = ", ".join(f"`{key}`" for key in found)
            verb = "has" if len(found) == 1 else "have"
            yield PolicyWarning(tuple(found[0].split(".")), f"{named} {verb} no effect: {why}")
    if policy.strategy.name != "off":
        yield from _tools(policy, stated)
        yield from _shadowed(policy)
        yield from _roles(policy)
        yield from _patterns(policy)
        yield from _sizes(policy, stated, budget)


def _idle(policy: Policy) -> Iterator[tuple[Collection[str], str]]:
    """Yield groups of keys (dotted) that have no effect under the policy, each with the reason."""
    name = policy.strategy.name
    if name == "off":
        yield _CUTTING, 'nothing is cut with `strategy.name = "off"`'
    for key, owner in _STRATEGY_OF.items():
        if name in STRATEGIES.built_in and name != owner:
            yield (f"strategy.{key}",), f'it is for "{owner}", and `strategy.name` is "{name}"'
    if name == "off":
        return
    rules, rounds = policy.ledger, () if any(tool.serve for tool in policy.tools) else ("recall.rounds",)
    summary, memory = policy.summary, _SUMMARY_OF_MEMORY if policy.memory.enabled else ()
    reading = _ECONOMY_OF_READING if summary.enabled and summary.cached_prefix else ()
    of_summaries = [f"summary.{key}" for key in _SUMMARY if key not in memory]
    of_economy = [f"economy.{key}" for key in _ECONOMY if key not in reading]
    switches: tuple[tuple[object, Collection[str], str], ...] = (
        (summary.enabled, of_summaries, "`summary.enabled` is false"),
        (policy.economy.enabled, of_economy, "`economy.enabled` is false"),
        (
            policy.tool_results.clear_first,
            ("tool_results.clear_at_least",),
            "`tool_results.clear_first` is false",
        ),
        (
            rules.constraints or rules.identifiers,
            ("ledger.share", "ledger.least"),
            "`ledger.constraints` and `ledger.identifiers` are false",
        ),
        (policy.proof.share, ("proof.daily_dollars", "proof.daily_tokens"), "`proof.share` is 0"),
        (policy.recall.enabled, (*rounds, "recall.search"), "`recall.enabled` is false"),
    )
    yield from ((keys, why) for is_on, keys, why in switches if not is_on)


def _tools(policy: Policy, stated: Collection[Location]) -> Iterator[PolicyWarning]:
    changing = [pattern for tool in policy.tools for pattern in tool.invalidated_by]
    for place, tool in enumerate(policy.tools):
        if tool.serve and not tool.cache_exchanges:
            message = "`serve = true` has no effect: `cache_exchanges` is 0, so no result is kept"
            yield PolicyWarning(("tools", place, "serve"), message)
        if tool.cache_exchanges and (by := next((c for c in changing if _covers(c, tool.match)), None)):
            message = (
                f"no result of `{tool.match}` is kept: `invalidated_by` has `{by}`, so it changes something"
            )
            yield PolicyWarning(("tools", place, "cache_exchanges"), message)
        if not policy.tool_results.clear_first and ("tools", place, "clear_after") in stated:
            message = "`clear_after` has no effect: `tool_results.clear_first` is false"
            yield PolicyWarning(("tools", place, "clear_after"), message)


def _shadowed(policy: Policy) -> Iterator[PolicyWarning]:
    """Yield warnings about rules that never apply, because an earlier one matches all that they match."""
    for place, tool in enumerate(policy.tools):
        if before := next((t.match for t in policy.tools[:place] if _covers(t.match, tool.match)), None):
            message = f'`match = "{tool.match}"` is never reached: `{before}` stands before it'
            yield PolicyWarning(("tools", place, "match"), message)
    for place, rule in enumerate(policy.retention):
        narrow = rule.match
        if any(
            wide.role in (None, narrow.role)
            and wide.content in (None, narrow.content)
            and (wide.tool is None or (narrow.tool is not None and _covers(wide.tool, narrow.tool)))
            for wide in (before.match for before in policy.retention[:place])
        ):
            message = "this `[[retention]]` is never reached: one before it matches all of it"
            yield PolicyWarning(("retention", place), message)
    windows = [each for each in policy.budget.windows if set("*?[") & set(each)]  # a whole name comes first
    for place, name in enumerate(windows):
        if before := next((each for each in windows[:place] if _covers(each, name)), None):
            message = f"the window of `{name}` is never asked for: `{before}` stands before it"
            yield PolicyWarning(("budget", "windows", name), message)


def _covers(wide: str, narrow: str) -> bool:
    """Whether one shell pattern surely matches all that another does, judged by the patterns alone."""
    return wide == narrow or (not set("?[") & set(wide) and "[" not in narrow and fnmatchcase(narrow, wide))


def _roles(policy: Policy) -> Iterator[PolicyWarning]:
    named: list[tuple[Location, str]] = [
        (("importance", "roles", each), each) for each in policy.importance.roles
    ]
    for place, rule in enumerate(policy.retention):
        role, location = rule.match.role, ("retention", place, "match", "role")
        if role is not None:
            named.append((location, role))
        if rule.match.tool is not None and role in _MESSAGE_ROLES - _TOOL_ROLES:
            yield PolicyWarning(location, f'`tool` and `role = "{role}"` never match together')
    for location, role in named:
        if role not in _MESSAGE_ROLES:
            hint = did_you_mean(role, sorted(_MESSAGE_ROLES))
            yield PolicyWarning(location, f"no message has the role `{role}`{hint}")


def _patterns(policy: Policy) -> Iterator[PolicyWarning]:
    globs: list[tuple[Location, str]] = []
    regexes: list[tuple[Location, str]] = []
    regexes += [(("keep", "pins", place), pattern) for place, pattern in enumerate(policy.keep.pins)]
    for place, tool in enumerate(policy.tools):
        globs.append((("tools", place, "match"), tool.match))
        globs += [(("tools", place, "invalidated_by"), pattern) for pattern in tool.invalidated_by]
    for place, rule in enumerate(policy.retention):
        if rule.match.tool is not None:
            globs.append((("retention", place, "match", "tool"), rule.match.tool))
        if rule.match.content is not None:
            regexes.append((("retention", place, "match", "content"), rule.match.content))
    for location, pattern in globs:
        if found := _NO_NAME.search(_SET.sub("", pattern)):
            message = (
                f"`{pattern}` matches no tool: it is a shell pattern (`get_*`), and no name has `{found[0]}`"
            )
            yield PolicyWarning(location, message)
    for location, pattern in regexes:
        is_plain = not _BY_LINES_OR_SPACED.search(pattern)
        if is_plain and _PAST_AN_END.search(_ESCAPE_OR_SET.sub("\0", pattern)):
            message = "nothing stands before `^` or after `$`, the ends of a text; write `\\^`, `\\$`"
            yield PolicyWarning(location, f"`{pattern}`: {message}")


def _sizes(policy: Policy, stated: Collection[Location], budget: int | None) -> Iterator[PolicyWarning]:
    """Yield warnings about what does not fit into the budget."""
    if budget is None:
        return
    location, named = ("budget", "tokens"), f"a budget of {budget:,} tokens"
    if budget < _SMALL:
        message = "holds little beside a system prompt and tools"
        yield PolicyWarning(location, f"{named} {message}")
    summary, eighth = policy.summary.max_tokens, budget // 8
    if not policy.summary.enabled or summary == "auto":
        pass
    elif ("summary", "max_tokens") in stated and eighth < summary:
        message = f"no summary gets {summary:,} tokens: an eighth of {named} is {eighth:,}"
        yield PolicyWarning(("summary", "max_tokens"), message)
    elif budget <= summary:
        yield PolicyWarning(location, f"{named} is no more than one summary may have (`summary.max_tokens`)")
    if budget <= policy.ledger.tokens:
        yield PolicyWarning(location, f"{named} is no more than the ledger may have (`ledger.least`)")
