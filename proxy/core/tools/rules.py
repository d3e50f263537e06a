"""What a policy's ``[[tools]]`` say of a tool, by its name: the first pattern that matches speaks.

A tool that stands in an ``invalidated_by`` changes something, so its own results are never kept, whichever
other pattern matches it. A tool of which no rule knows anything may change everything that is served.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from proxy.core.policy_sections import Tool


@dataclass(frozen=True)
class Rules:
    """The rules of one policy."""

    tools: tuple[Tool, ...] = ()

    @property
    def is_caching(self) -> bool:
        """Whether any result is kept at all."""
        return any(rule.cache_exchanges for rule in self.tools)

    def of(self, tool: str) -> Tool | None:
        """The rule for a tool; None where the policy has none."""
        return next((rule for rule in self.tools if fnmatchcase(tool, rule.match)), None)

    def duration(self, tool: str) -> int:
        """For how many exchanges a result of this tool is kept; 0 is not at all."""
        rule = self.of(tool)
        return rule.cache_exchanges if rule is not None and not self.changes(tool) else 0

    def serves(self, tool: str) -> bool:
        """Whether a call of this tool may be answered with a result that is fresh."""
        rule = self.of(tool)
        return rule is not None and rule.serve and not self.changes(tool)

    def changes(self, tool: str) -> bool:
        """Whether the policy says that this tool changes what others read."""
        return any(_is_emptied(rule, tool) for rule in self.tools)

    def emptied_by(self, tool: str) -> list[Tool]:
        """The rules whose results a call of this tool makes stale."""
        found = [rule for rule in self.tools if _is_emptied(rule, tool)]
        if found or self.of(tool) is not None:
            return found
        return [rule for rule in self.tools if rule.serve]


def _is_emptied(rule: Tool, tool: str) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in rule.invalidated_by)
