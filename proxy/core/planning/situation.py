"""What an epoch is planned from: the chain, what is cut already, what must stay, and what each unit is worth.

Everything is derived from the arguments and computed at most once. Content is decoded only for units in the
view: planning is rare, and a view is never larger than its budget.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.retention import Classes
from proxy.core.conversation.units import Unit, joined, open_from, units_of
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.observations import in_plain_text
from proxy.core.extraction.reading import Extracted, Reading
from proxy.core.lazy import lazy
from proxy.core.planning.chain import Chain
from proxy.core.planning.importance import Score, score
from proxy.core.planning.life import NO_PAST, Past, affordable_summary
from proxy.core.planning.plan import EMPTY, Anchor, Plan, Span, first_difference, view_tokens
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import RetentionClass
from proxy.core.text.words import common_language
from proxy.core.tool_cache.cache import ToolCache, ToolRules
from proxy.core.tool_cache.derive import derive, initial

Count = Callable[[str], int]
_start: Callable[[Unit], int] = attrgetter("start")

FREE, RECENT, FIRST_USER, CRITICAL, PINNED, FIXED = range(6)
"""Protection levels of units, in the order in which they yield; ``FIXED`` never yields."""

_SAMPLE = 8
"""Number of messages from which the conversation's language is detected."""
FIRST_USER_LEAST = 100
"""Counted tokens that the first user message keeps when it is clipped."""


class Conditions(msgspec.Struct, frozen=True):
    """Inputs to an epoch beside chain, plan and budget: elapsed time, prices, and what the client asked for.

    They may affect when an epoch begins and what it cuts, but never how it rewrites a request (law 3).
    """

    idle: float | None = None
    """Seconds since the lane's last answer; None if no answer is known."""
    head_idle: float | None = None
    """Seconds since the lane's last answer under this request's head; None if none is known, so that the
    provider has cached nothing."""
    head_sent: int | None = None
    """Number of the chain's first messages that were in the last answered request with this head; 0 if the
    client has changed or dropped the first message since; None if unknown."""
    pause: float | None = None
    """Seconds since the session's last answer, in whichever lane; None if no answer is known."""
    boundary: bool = False
    """Whether the client says that its newest message begins something new."""
    prices: Prices | None = None
    """Token prices and the cache's rules, as the policy adjusts them; None: cost does not count."""
    since: int = 0
    """Length of the chain when the epoch in force began, else 0: only units after it count towards
    `max_units`. The whole length if the client drops its oldest messages itself."""

    def sent_before(self, chain: Chain, plan: Plan) -> int:
        """Presumed number of the chain's messages in the previous request with this head.

        Where ``plan`` has cut later ones meanwhile, they are those that its view still begins with.
        """
        presumed, sent = chain.sent_before, self.head_sent
        if sent is None or sent >= presumed:
            return presumed
        return sent if plan.depth <= sent else min(sent, first_difference(EMPTY, plan) or 0)


UNKNOWN_CONDITIONS = Conditions()


class Situation(msgspec.Struct, frozen=True, dict=True):  # a dict for cached properties
    """One chain under one plan, policy and budget."""

    chain: Chain
    plan: Plan
    policy: Policy
    budget: Budget
    count: Count
    """A pure function that counts the tokens of a text."""
    conditions: Conditions = UNKNOWN_CONDITIONS
    unwritten: int = 0
    """Counted tokens of a ledger that is in the view but not yet in the plan."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned, on any branch."""
    past: Past = NO_PAST
    prepared: tuple[Anchor, ...] = ()
    """Summaries, in order, that no note contains yet; the note that replaces their messages will."""
    recent_tokens: int | None = None
    """Counted tokens of the newest units that stay uncut; None: `keep.recent` of the budget."""
    extracted: Extracted = msgspec.field(default_factory=Extracted)
    """What has been extracted from the chain's messages; shared by other situations of the same chain."""

    @lazy
    def units(self) -> list[Unit]:
        """All units of the chain, cut or not; a plain-text command and its observation form one unit.

        Exceptions: an observation that the model has still to answer, and a pair of which a gap of the plan
        covers only one half. What a gap leaves of a unit that a late result has made larger is grouped anew.
        """
        units, plan = self.chain.units, self.plan
        for gap in plan.gaps:
            unit = units[index := bisect_left(units, gap.end, key=_start) - 1]
            if gap.end < unit.end:
                rest = units_of(self.chain.messages[gap.end : unit.end], gap.end)
                units = [*units[:index], Unit(unit.start, gap.end), *rest, *units[index + 1 :]]
        found = self.extracted.observations if self._readings else []
        answered = {
            place
            for place in found[: bisect_left(found, len(self.chain))]
            if (place - 1 in self._in_plain_text or self.chain.messages[place - 1].is_result)
            and place < units[-1].start
            and plan.covers(place - 1) == plan.covers(place)
        }
        return joined(units, answered) if answered else units

    @lazy
    def _in_plain_text(self) -> AbstractSet[int]:
        """Positions of plain-text commands and of observations."""
        return self.extracted.in_plain_text if self._readings else frozenset()

    @lazy
    def users(self) -> list[int]:
        """Positions of user messages, without observations."""
        found = self.extracted.users if self._readings else []
        return found[: bisect_left(found, len(self.chain))]

    def language_before(self, end: int) -> str:
        """The language of most of the newest user messages before a position; without any, of other ones."""
        count = bisect_left(self.users, end)
        if not count:
            return self._language_of(range(max(end - _SAMPLE, 0), end))
        found = self.extracted.languages.get(count)
        if found is None:
            sample = self.users[max(count - _SAMPLE, 0) : count]
            found = self.extracted.languages[count] = self._language_of(sample)
        return found

    def _language_of(self, places: Sequence[int]) -> str:
        return common_language(self.content(place).text for place in reversed(places))

    def preceding_in_view(self, position: int) -> int:
        """Return the nearest message before a position, skipping gaps and system messages; -1 without any."""
        known, passed, place = self._preceding, list[int](), position - 1
        while place >= 0 and place not in known:
            ending = (gap for gap in self.plan.gaps_within(place, place + 1) if gap.end == place + 1)
            gap = next(ending, None)
            if gap is None and self.chain.messages[place].role not in HEAD_ROLES:
                break
            passed.append(place)
            place = (place if gap is None else gap.start) - 1
        place = known.get(place, place)
        known.update(dict.fromkeys(passed, place))
        return place

    @lazy
    def _preceding(self) -> dict[int, int]:
        """What :meth:`preceding_in_view` has found, by each place that it passed."""
        return {}

    def role(self, position: int) -> str:
        """Return the role of a message; that of an observation is "tool"."""
        role = self.chain.messages[position].role
        return "tool" if role == "user" and position in self._in_plain_text else role

    @lazy
    def view_units(self) -> list[int]:
        """Indexes of the units that are in the view."""
        found: list[int] = []
        after = 0
        for start, end in (gap.span for gap in self.plan.gaps):
            found += range(after, bisect_left(self.units, start, key=_start))
            after = bisect_left(self.units, end, key=_start)
        return [*found, *range(after, len(self.units))]

    @lazy
    def pace(self) -> float:
        """Mean counted tokens that each request since the last epoch has added."""
        began = self.past.length
        requests = 1 + sum(message.role == "assistant" for message in self.chain.messages[began:])
        return self.chain.tokens.between(began) / requests

    @lazy
    def summary_tokens(self) -> int:
        """Tokens that a summary may have if it is requested now."""
        return affordable_summary(self.policy, self.budget, self.conditions.prices, self.pace)

    def under(self, plan: Plan) -> Self:
        """Return the situation under a plan; itself, with its cached values, if the plan is equal."""
        return self if plan == self.plan else replace(self, plan=plan)

    def without_unwritten_ledger(self) -> Self:
        """Return the situation without an unwritten ledger in its view; other cached values are kept."""
        other = replace(self, unwritten=0)
        vars(other).update((name, known) for name, known in vars(self).items() if name != "view_tokens")
        return other

    def anchors_within(self, start: int, end: int) -> list[Anchor]:
        """The existing summaries of messages between two positions, in order, prepared ones included."""
        found = self.plan.anchors_within(start, end)
        for each in self.prepared:  # it replaces the summaries that it was made from
            others = [other for other in found if not each.contains(other)]
            is_apart = all(each.end <= other.start or other.end <= each.start for other in others)
            if is_apart and start <= each.start and each.end <= end:
                found = [*others, each]
        return sorted(found, key=attrgetter("start"))

    def size_at(self, position: int) -> int:
        """Counted tokens of a message as the view has it (smaller if it was clipped or cleared)."""
        edit = self.plan.edit_at(position)
        return self.chain.tokens[position] if edit is None else edit.tokens

    @lazy
    def view_tokens(self) -> int:
        """Counted tokens of the view, without the head."""
        return view_tokens(self.plan, self.chain.tokens) + self.unwritten

    @property
    def last_user_exceeds_room(self) -> bool:
        """Whether the last user message alone is over the budget, so that nothing that is cut can help."""
        return self.budget.last_user_tokens > 0 and self.chain.last_user_tokens > self.budget.room

    def size(self, index: int) -> int:
        """Counted tokens of unit number ``index``."""
        unit = self.units[index]
        if not self.plan.replacements:
            return self.chain.tokens.between(unit.start, unit.end)
        return sum(map(self.size_at, range(unit.start, unit.end)))

    def content(self, position: int) -> Content:
        """Return a message's content, with plain-text commands as tool calls; decoded only once."""
        if position not in self._in_plain_text:
            return self._decoded(position)
        found = self.extracted.plain_text.get(position)
        if found is None:
            found = in_plain_text(
                self._decoded(position), is_whole=self.extracted.readings[position].is_whole
            )
            self.extracted.plain_text[position] = found
        return found

    def _decoded(self, position: int) -> Content:
        """Return a message's content as its dialect reads it, decoded only once."""
        found = self.extracted.contents.get(position)
        if found is None:
            found = self.extracted.contents[position] = self.chain.content(position)
        return found

    @lazy
    def view_index(self) -> dict[str, Container[str]]:
        """The text of the view last written, indexed: a draft and its finished plan usually have the same."""
        return {}

    @lazy
    def rooms(self) -> dict[Span, int]:
        """Bytes that the text of each gap may have; filled by a strategy that divides them among gaps."""
        return {}

    @lazy
    def readings(self) -> list[Reading]:
        """By message, its exact values and its binding sentences; empty for messages not to be quoted."""
        readings = self._readings[: len(self.chain)]
        if not self.policy.retention:
            return readings
        may_be_quoted = self.classes.may_be_quoted
        return [reading if may_be_quoted(place) else Reading(()) for place, reading in enumerate(readings)]

    @property
    def _readings(self) -> list[Reading]:
        """Readings of the chain's messages; more than that if a longer chain has been read already."""
        first = len(self.extracted.readings)
        if first < len(self.chain):
            addresses = self.chain.addresses(self._decoded, first)
            self.extracted.go_on(self.chain.messages, self.chain.raws, addresses, self._decoded)
        return self.extracted.readings

    def is_constraint(self, position: int) -> bool:
        """Whether a user's message is a rule that the ledger carries, not a request that can be completed."""
        rules = self.policy.ledger
        return rules.constraints and rules.is_written and self._readings[position].is_constraint

    @lazy
    def constraints(self) -> tuple[list[Constraint], list[tuple[Constraint, Constraint]]]:
        """The rules in force; and the rules that newer ones replaced, each with its successor."""
        readings = self.readings
        binding = self.extracted.binding[: bisect_left(self.extracted.binding, len(readings))]
        messages = self.chain.messages
        return in_force(
            Constraint(place, sentence, authority=int(messages[place].role in HEAD_ROLES))
            for place in binding
            for sentence in readings[place].sentences
        )

    @lazy
    def fresh_results(self) -> ToolCache:
        """The tool results that are fresh at the end of the chain, as the client sent it."""
        rules, chain = ToolRules(self.policy.tools), self.chain
        places = zip(chain.messages, chain.raws, chain.hashes, strict=True) if rules.is_caching else ()
        return derive(initial(rules), places, chain.dialect).cache

    @lazy
    def protection(self) -> dict[int, int]:
        levels = dict.fromkeys(self.view_units, FREE)
        recent, left = list[int](), self.recent_tokens
        if left is None:
            left = self.budget.share(self.policy.keep.recent)
        for index in reversed(self.view_units):
            left -= self.size(index)
            if left < 0:
                break
            recent.append(index)
        first = self.first_users if self.policy.keep.first_user else []
        # What the model has still to answer: the open units, and the last user message.
        fixed = [*range(open_from(self.chain.messages, self.units), len(self.units))]
        asking = list[int]()
        if self.chain.last_user is not None:
            fixed.append(self.unit_at(self.chain.last_user))
            if self.role(self.chain.last_user) != "user":  # an observation: the request came before it
                recent.append(fixed[-1] - 1)
                asking += map(self.unit_at, self.users[-1:])
        for level, members in (
            (RECENT, recent),
            (FIRST_USER, (*first, *asking)),
            (CRITICAL, self._critical()),
            (PINNED, map(self.unit_at, self.pinned)),
            (FIXED, fixed),
        ):
            levels.update(dict.fromkeys((index for index in members if index in levels), level))
        return levels

    @lazy
    def first_users(self) -> list[int]:
        """The unit of the first user message; if that shows an example, also of the first that does not."""
        found = list[int]()
        for place in self.users:
            if self.is_user(index := self.unit_at(place)):
                found[1:] = [index]
                if not self._readings[place].is_example:
                    return found
        return found[:1]

    def unit_at(self, position: int) -> int:
        """Return the index of the unit that contains a message."""
        return bisect_right(self.units, position, key=_start) - 1

    def _critical(self) -> list[int]:
        """Units of the retention class *critical*, and those that match the policy's pins."""
        pins = [re.compile(pin) for pin in self.policy.keep.pins]

        def is_pinned(unit: Unit) -> bool:
            texts = (self.content(position).text for position in range(unit.start, unit.end))
            return any(pin.search(text) for text in texts for pin in pins)

        pinned = (index for index in self.view_units if pins and is_pinned(self.units[index]))
        return [*self.units_by_class.get("critical", ()), *pinned]

    @lazy
    def units_by_class(self) -> dict[RetentionClass, list[int]]:
        """The units of the view by retention class, in order."""
        found: dict[RetentionClass, list[int]] = {}
        for index in self.view_units:
            found.setdefault(self.classes.of(index), []).append(index)
        return found

    @lazy
    def classes(self) -> Classes:
        other = replace(self)  # this one would be in a circle, and keep its texts until the next collection
        return Classes(self.policy.retention, self.chain.messages, self.units, other.content, other.role)

    @lazy
    def pinned(self) -> list[int]:
        hashes = self.chain.hashes if self.pins else ()
        return [place for place, chain_hash in enumerate(hashes) if chain_hash in self.pins]

    def score(self, index: int) -> Score:
        """Return a unit's importance, which is that of its most important message."""
        found = self._scores.get(index)
        if found is None:
            found = self._scores[index] = self.score_among(index, len(self.chain))
        return found

    def score_among(self, index: int, count: int) -> Score:
        """Return what a unit's importance was when the chain had ``count`` messages."""
        unit, weights = self.units[index], self.policy.importance
        scores = (
            score(self.role(place), self.content(place).text, place, count, weights)
            for place in range(unit.start, unit.end)
        )
        return next(scores) if unit.count == 1 else max(scores, key=lambda each: each.total)

    @lazy
    def _scores(self) -> dict[int, Score]:
        return {}

    def is_user(self, index: int) -> bool:
        return self.role(self.units[index].start) == "user"
