"""What an epoch is planned from: the chain, what is cut already, what must stay, and what each unit is worth.

Everything is derived from the arguments and computed at most once; content is decoded only for the units of
the view, because planning is rare and a view is never larger than its budget.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import cached_property
from operator import attrgetter
from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.retention import Classes
from proxy.core.conversation.units import Unit, joined, open_from
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.constraints import Rule, in_force
from proxy.core.extraction.observations import in_plain_text
from proxy.core.extraction.reading import Read, Reading
from proxy.core.planning.chain import Chain
from proxy.core.planning.importance import Score, score
from proxy.core.planning.life import NO_PAST, Past, distance
from proxy.core.planning.plan import Anchor, Plan, view_tokens
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import RetentionClass
from proxy.core.tool_cache.cache import Rules, ToolCache
from proxy.core.tool_cache.derive import derive, initial

Count = Callable[[str], int]
_start: Callable[[Unit], int] = attrgetter("start")

FREE, RECENT, FIRST_USER, CRITICAL, PINNED, FIXED = range(6)
"""How firmly a unit is protected, in the order in which protections yield; a fixed one never does."""

FIRST_USER_LEAST = 100
"""Counted tokens that the first user message keeps when it is clipped."""


class Conditions(msgspec.Struct, frozen=True):
    """What an epoch is chosen by beside chain, plan and budget: the clock, and what the client asked for.

    They may decide when an epoch begins and what it cuts, never how a request is rewritten by it (law 3).
    """

    idle: float | None = None
    """Seconds since the lane was last answered; None where nobody knows of an answer."""
    boundary: bool = False
    """Whether the client says that something new begins with its newest message."""
    prices: Prices | None = None
    """What tokens cost, and how the provider keeps prefixes; None where money has no say."""
    is_new_head: bool = False
    """Whether the head is another than the last one: nothing that the provider has kept is of use."""
    since: int = 0
    """Messages of the chain when its last epoch began; 0 where none is in force."""


UNKNOWN_CONDITIONS = Conditions()


def affordable_summary(policy: Policy, budget: Budget, prices: Prices | None, pace: float) -> int:
    """Tokens that one summary may have in a conversation that grows by ``pace`` counted tokens a request.

    Where money has a say, one that is longer than usual costs no more to write than half of what a cut saves
    until the next one: ``r * D * D / 2g`` fresh tokens (:mod:`proxy.core.economics.economy`), where D is what
    the conversation grows by meanwhile. The other half is for what is read anew. So a policy that asks for
    long ones costs no more, under a small budget, than sending the whole history. What another model writes
    is at a price that is not known here.
    """
    rules, stages = policy.economy, policy.stages
    if prices is None or not prices.is_known or not rules.enabled or policy.summary.model:
        return policy.summary_tokens(budget.limit)
    prices, grown, pace = prices.under(rules), float(distance(budget, stages)), max(pace, 1.0)
    if stages.max_units:
        grown = min(grown, stages.max_units * pace)
    saved = prices.read_share * grown * grown / (2 * pace)
    return policy.summary_tokens(budget.limit, saved / 2 * prices.fresh / prices.output)


class Situation(msgspec.Struct, frozen=True, dict=True):  # a dict for what is reckoned once
    """One chain under one plan, policy and budget."""

    chain: Chain
    plan: Plan
    policy: Policy
    budget: Budget
    count: Count
    """Counts the tokens of a text (a pure function)."""
    conditions: Conditions = UNKNOWN_CONDITIONS
    unwritten: int = 0
    """Counted tokens of a ledger that stands in the view and is not yet in the plan."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned, on whichever branch."""
    past: Past = NO_PAST
    prepared: tuple[Anchor, ...] = ()
    """Summaries that no note tells yet, in order: the note of what cuts their messages does."""
    newest: int | None = None
    """Counted tokens that the newest units fill uncut; None: `keep.recent` of the budget."""
    read: Read = msgspec.field(default_factory=Read)
    """What is known of what the chain's messages say; others of the same chain go on from it."""

    @cached_property
    def units(self) -> list[Unit]:
        """All units of the chain, cut or not; a command in plain text stands with its observation in one.

        But for the observation that the model is still to answer, and where an edit has parted the two.
        """
        units, plan = self.chain.units, self.plan
        answered = {
            place
            for place in self._observations
            if place - 1 in self._in_plain_text
            and place < units[-1].start
            and plan.covers(place - 1) == plan.covers(place)
        }
        return joined(units, answered) if answered else units

    @property
    def _in_plain_text(self) -> AbstractSet[int]:
        """Positions of commands in plain text, and of observations."""
        return self.read.in_plain_text if self._readings else frozenset()

    @cached_property
    def _observations(self) -> list[int]:
        """Positions of what commands in plain text have brought."""
        found = self.read.observations if self._readings else []
        return found[: bisect_left(found, len(self.chain))]

    @cached_property
    def users(self) -> list[int]:
        """Positions of what users say, observations apart."""
        found = self.read.users if self._readings else []
        return found[: bisect_left(found, len(self.chain))]

    def role(self, position: int) -> str:
        """Who says a message: an observation is a tool's."""
        role = self.chain.messages[position].role
        return "tool" if role == "user" and position in self._in_plain_text else role

    @cached_property
    def standing(self) -> list[int]:
        """Indexes of the units that are in the view."""
        found: list[int] = []
        after = 0
        for start, end in (gap.span for gap in self.plan.gaps):
            found += range(after, bisect_left(self.units, start, key=_start))
            after = bisect_left(self.units, end, key=_start)
        return [*found, *range(after, len(self.units))]

    @cached_property
    def pace(self) -> float:
        """Counted tokens that a request brings, since the last epoch."""
        began = self.past.length
        requests = 1 + sum(message.role == "assistant" for message in self.chain.messages[began:])
        return self.chain.tokens.between(began) / requests

    @cached_property
    def summary_tokens(self) -> int:
        """Tokens that a summary may have which is asked for now."""
        return affordable_summary(self.policy, self.budget, self.conditions.prices, self.pace)

    def under(self, plan: Plan) -> Self:
        """The same chain under a plan; what is known of it stays known where the plan is the same."""
        return self if plan == self.plan else replace(self, plan=plan)

    def before_ledgers(self) -> Self:
        """The same with no ledger in its view; what is known of the chain stays known."""
        other = replace(self, unwritten=0)
        vars(other).update((name, known) for name, known in vars(self).items() if name != "view")
        return other

    def anchors_within(self, start: int, end: int) -> list[Anchor]:
        """The summaries that there are of what lies between two places, in order."""
        found = self.plan.anchors_within(start, end)
        for each in self.prepared:  # it takes the place of those that it was made from
            others = [other for other in found if not each.contains(other)]
            is_apart = all(each.end <= other.start or other.end <= each.start for other in others)
            if is_apart and start <= each.start and each.end <= end:
                found = [*others, each]
        return sorted(found, key=attrgetter("start"))

    def size_at(self, position: int) -> int:
        """Counted tokens of a message as it stands in the view (clipped ones are smaller)."""
        edit = self.plan.edit_at(position)
        return self.chain.tokens[position] if edit is None else edit.tokens

    @cached_property
    def view(self) -> int:
        return view_tokens(self.plan, self.chain.tokens) + self.unwritten

    def size(self, index: int) -> int:
        """Counted tokens of unit number ``index``."""
        unit = self.units[index]
        if not self.plan.replacements:
            return self.chain.tokens.between(unit.start, unit.end)
        return sum(map(self.size_at, range(unit.start, unit.end)))

    def content(self, position: int) -> Content:
        """A message's content, decoded once."""
        found = self._contents.get(position)
        if found is None:
            found = self._decoded(position)
            if position in self._in_plain_text:
                found = in_plain_text(found)
            self._contents[position] = found
        return found

    def _decoded(self, position: int) -> Content:
        """A message as its dialect reads it, decoded once."""
        found = self._as_written.get(position)
        if found is None:
            found = self._as_written[position] = self.chain.content(position)
        return found

    @cached_property
    def _contents(self) -> dict[int, Content]:
        return {}

    @cached_property
    def _as_written(self) -> dict[int, Content]:
        return {}

    @cached_property
    def readings(self) -> list[Reading]:
        """What each message says that is exact, and which of its sentences bind."""
        readings = self._readings[: len(self.chain)]
        if not self.policy.retention:
            return readings
        may_be_quoted = self.classes.may_be_quoted
        return [reading if may_be_quoted(place) else Reading(()) for place, reading in enumerate(readings)]

    @property
    def _readings(self) -> list[Reading]:
        """What the messages of the chain say, and of a longer one that has been read those after them."""
        first = len(self.read.readings)
        if first < len(self.chain):
            addresses = self.chain.addresses(self._decoded, first)
            self.read.go_on(self.chain.messages, addresses, self._decoded)
        return self.read.readings

    def is_rule(self, position: int) -> bool:
        """Whether a message of a user is no request, but what the ledger tells: a rule is never handled."""
        rules = self.policy.ledger
        return bool(rules.constraints and (rules.share or rules.tokens)) and self._readings[position].is_rule

    @cached_property
    def constraints(self) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
        """What was laid down and is in force; and what newer rules replaced, each with its successor."""
        readings = self.readings
        binding = self.read.binding[: bisect_left(self.read.binding, len(readings))]
        messages = self.chain.messages
        return in_force(
            Rule(place, sentence, authority=int(messages[place].role in HEAD_ROLES))
            for place in binding
            for sentence in readings[place].sentences
        )

    @cached_property
    def fresh(self) -> ToolCache:
        """Tool results of the chain, as the client tells it, that are fresh by its end."""
        rules, chain = Rules(self.policy.tools), self.chain
        places = zip(chain.messages, chain.raws, chain.hashes, strict=True) if rules.is_caching else ()
        return derive(initial(rules), places, chain.dialect).cache

    @cached_property
    def protection(self) -> dict[int, int]:
        levels = dict.fromkeys(self.standing, FREE)
        recent, left = list[int](), self.newest
        if left is None:
            left = self.budget.share(self.policy.keep.recent)
        for index in reversed(self.standing):
            left -= self.size(index)
            if left < 0:
                break
            recent.append(index)
        users = map(self.unit_at, self.users if self.policy.keep.first_user else ())
        first_user = next((index for index in users if self.is_user(index)), None)
        # What the model is still to answer: the open unit, and the last user message.
        fixed = [*range(open_from(self.chain.messages, self.units), len(self.units))]
        asking = list[int]()
        if self.chain.last_user is not None:
            fixed.append(self.unit_at(self.chain.last_user))
            if self.role(self.chain.last_user) != "user":  # then what is asked for was said before it
                recent.append(fixed[-1] - 1)
                asking += map(self.unit_at, self.users[-1:])
        for level, members in (
            (RECENT, recent),
            (FIRST_USER, asking if first_user is None else (first_user, *asking)),
            (CRITICAL, self._critical()),
            (PINNED, map(self.unit_at, self.pinned)),
            (FIXED, fixed),
        ):
            levels.update(dict.fromkeys((index for index in members if index in levels), level))
        return levels

    def unit_at(self, position: int) -> int:
        """Index of the unit that a message belongs to."""
        return bisect_right(self.units, position, key=_start) - 1

    def _critical(self) -> list[int]:
        """Units of the class, and those that the policy pins."""
        pins = [re.compile(pin) for pin in self.policy.keep.pins]

        def is_pinned(unit: Unit) -> bool:
            texts = (self.content(position).text for position in range(unit.start, unit.end))
            return any(pin.search(text) for text in texts for pin in pins)

        pinned = (index for index in self.standing if pins and is_pinned(self.units[index]))
        return [*self.classed.get("critical", ()), *pinned]

    @cached_property
    def classed(self) -> dict[RetentionClass, list[int]]:
        """The standing units of each retention class, in order."""
        found: dict[RetentionClass, list[int]] = {}
        for index in self.standing:
            found.setdefault(self.classes.of(index), []).append(index)
        return found

    @cached_property
    def classes(self) -> Classes:
        return Classes(self.policy.retention, self.chain.messages, self.units, self.content, self.role)

    @cached_property
    def pinned(self) -> list[int]:
        hashes = self.chain.hashes if self.pins else ()
        return [place for place, chain_hash in enumerate(hashes) if chain_hash in self.pins]

    def score(self, index: int) -> Score:
        """A unit's importance: that of its best message."""
        found = self._scores.get(index)
        if found is None:
            unit = self.units[index]
            weights = self.policy.importance
            scores = (
                score(self.role(place), self.content(place).text, place, len(self.chain), weights)
                for place in range(unit.start, unit.end)
            )
            found = next(scores) if unit.count == 1 else max(scores, key=lambda each: each.total)
            self._scores[index] = found
        return found

    @cached_property
    def _scores(self) -> dict[int, Score]:
        return {}

    def is_user(self, index: int) -> bool:
        return self.role(self.units[index].start) == "user"

    @cached_property
    def requests(self) -> dict[int, int | None]:
        """By unit of the view, the user unit that it is a part of the answer to."""
        found: dict[int, int | None] = {}
        before, request = -1, None
        for index in self.standing:
            found[index] = request if index == before + 1 else self._request_of(index)
            before, request = index, index if self.is_user(index) else found[index]
        return found

    def _request_of(self, index: int) -> int | None:
        users, before = self.users, self.units[index].start
        while place := bisect_left(users, before):
            earlier = self.unit_at(users[place - 1])
            if self.is_user(earlier):
                return earlier
            before = self.units[earlier].start  # what users say within an odd unit asks for nothing
        return None

    def answer_to(self, index: int) -> list[int]:
        """The units that answer user unit ``index``: up to the next user message, system ones apart."""
        answer: list[int] = []
        for following in range(index + 1, len(self.units)):
            role = self.role(self.units[following].start)
            if role == "user":
                break
            if role not in HEAD_ROLES:
                answer.append(following)
        return answer
