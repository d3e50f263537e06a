"""Retention classes: the classes that a policy's rules give to messages, and so to their units.

What they mean is in docs/policies.md ("Retention classes"). When a unit is cut depends on its class; whether
a message may be summarised or quoted once it is cut depends on the message's own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import get_args

from proxy.core.conversation.messages import HEAD_ROLES, Message
from proxy.core.conversation.units import Unit
from proxy.core.dialects.dialect import Content
from proxy.core.lazy import lazy
from proxy.core.policy.sections import Retention, RetentionClass

FIRMEST: Sequence[RetentionClass] = get_args(RetentionClass)
"""The classes, firmest first."""
_NOT_SUMMARISED = frozenset({"disposable", "ephemeral"})


class Classes:
    """The classes of one chain's units, each computed on first use."""

    def __init__(
        self,
        rules: Sequence[Retention],
        messages: Sequence[Message],
        units: Sequence[Unit],
        content: Callable[[int], Content],
        role: Callable[[int], str],
    ) -> None:
        self._rules = rules
        self._messages = messages
        self._units = units
        self._content = content
        self._role = role
        self._by_message: dict[int, RetentionClass | None] = {}
        self._ruled: dict[int, RetentionClass | None] = {}

    def of(self, index: int) -> RetentionClass:
        """The class of unit number ``index``."""
        ruled = self._by_rule(index) if self._rules else None
        if ruled is not None:
            return ruled
        start = self._units[index].start
        message = self._messages[start]
        if message.role not in HEAD_ROLES:
            return "compressible"
        return "critical" if self._newest[message.identity] == start else "disposable"

    def may_be_summarised(self, position: int) -> bool:
        """Whether the text of the message at ``position`` may be given to a model to summarise."""
        return self._own(position) not in _NOT_SUMMARISED

    def may_be_quoted(self, position: int) -> bool:
        """Whether any text of the message may be kept after its cut: in a quote, the ledger or memory."""
        return self._own(position) != "ephemeral"

    def _own(self, position: int) -> RetentionClass | None:
        """The class that the rules give to a message, or, if none matches it, to its unit."""
        if not self._rules:
            return None
        return self._of_message(position) or self._by_rule(self._unit_at[position])

    def _by_rule(self, index: int) -> RetentionClass | None:
        """The firmest class that the rules give to a message of the unit; None where no rule matches."""
        if index not in self._ruled:
            unit = self._units[index]
            found = {place: self._of_message(place) for place in range(unit.start, unit.end)}
            classes = {
                class_ or "compressible"
                for place, class_ in found.items()
                if class_ or not self._content(place).calls
            }
            is_ruled = any(found.values())
            self._ruled[index] = next(each for each in FIRMEST if each in classes) if is_ruled else None
        return self._ruled[index]

    def _of_message(self, position: int) -> RetentionClass | None:
        if position not in self._by_message:
            found = [
                next((rule.class_ for rule in self._rules if self._matches(rule, position, tool)), None)
                for tool in self._tools_of(position)
            ]
            if "ephemeral" in found or not any(found):  # one ephemeral result makes the message ephemeral
                self._by_message[position] = "ephemeral" if any(found) else None
            else:
                classes = {each or "compressible" for each in found}
                self._by_message[position] = next(each for each in FIRMEST if each in classes)
        return self._by_message[position]

    def _matches(self, rule: Retention, position: int, tool: str | None) -> bool:
        match = rule.match
        if match.role is not None and match.role != self._role(position):
            return False
        if match.tool is not None and (tool is None or not fnmatchcase(tool, match.tool)):
            return False
        return match.content is None or bool(re.search(match.content, self._content(position).text))

    def _tools_of(self, position: int) -> Sequence[str | None]:
        """The tools that a message calls, or whose results it carries; a single None where there are none.

        The tool of a result is that of the nearest earlier call in its unit with the same id.
        """
        message = self._messages[position]
        if not any(rule.match.tool for rule in self._rules):
            return (None,)
        if message.calls:
            return [name for _, name, _ in self._content(position).calls]
        if not any(message.result_of):
            return (None,)
        earlier = range(position - 1, self._units[self._unit_at[position]].start - 1, -1)
        found: list[str | None] = []
        for call_id in message.result_of:
            caller = next((place for place in earlier if call_id in self._messages[place].calls), None)
            calls = self._content(caller).calls if caller is not None else ()
            named = {call: name for call, name, _ in calls}
            found.append(named.get(call_id) or self._content(position).name or None)
        return found

    @lazy
    def _unit_at(self) -> Sequence[int]:
        return [index for index, unit in enumerate(self._units) for _ in range(unit.start, unit.end)]

    @lazy
    def _newest(self) -> Mapping[bytes, int]:
        """The last position of each identity."""
        return {message.identity: place for place, message in enumerate(self._messages)}


def rules_digest(rules: Sequence[Retention]) -> str:
    """A digest of the rules, which keeps apart summaries written under other rules; empty without rules."""
    terms = repr([rule.model_dump(mode="json") for rule in rules])
    return sha256(terms.encode(errors="surrogatepass")).hexdigest()[:12] if rules else ""
