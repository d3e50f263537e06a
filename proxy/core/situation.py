"""What an epoch is planned from: the chain, what is cut already, what must stay, and what each unit is worth.

Everything is derived from the arguments and computed at most once; content is decoded only for the units of
the view, because planning is rare and a view is never larger than its budget.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from itertools import islice
from math import ceil
from operator import attrgetter
from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.breaker import NO_PAST, Past
from proxy.core.budget import Budget
from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.growing import Sizes
from proxy.core.importance import Score, score
from proxy.core.ledger.reading import READINGS, Address, Reading, addresses_of
from proxy.core.ledger.rules import Rule, in_force
from proxy.core.messages import HEAD_ROLES, Content, Message
from proxy.core.plan import Plan, view_tokens
from proxy.core.policy import Policy
from proxy.core.prior import Prior
from proxy.core.retention import Classes
from proxy.core.tools.cache import ToolCache
from proxy.core.tools.folding import begun, folded
from proxy.core.tools.rules import Rules
from proxy.core.units import Asked, Unit, last_user, open_from

Count = Callable[[str], int]
_start: Callable[[Unit], int] = attrgetter("start")

FREE, RECENT, FIRST_USER, CRITICAL, PINNED, FIXED = range(6)
"""How firmly a unit is protected, in the order in which protections yield; a fixed one never does."""


FIRST_USER_LEAST = 100
"""Counted tokens that the first user message keeps when it is clipped."""


class Gathered(msgspec.Struct, frozen=True):
    """What a chain, and those that it goes on from, have found of their first messages."""

    units: Prior[Unit] = msgspec.field(default_factory=Prior[Unit])
    addresses: Prior[Address] = msgspec.field(default_factory=Prior[Address])
    """Under which it is remembered what each message says."""

    def forked(self) -> "Gathered":
        """The same for a chain that goes on from this one; what that finds, its siblings never see."""
        return Gathered(self.units.forked(), self.addresses.forked())


class Chain(msgspec.Struct, frozen=True, dict=True):  # a dict for what is reckoned once
    """A request without its head."""

    messages: Sequence[Message]
    raws: Sequence[bytes]
    tokens: Sizes
    """Counted tokens of each message."""
    hashes: Sequence[bytes]
    """The chain hash after each message."""
    gathered: Gathered = msgspec.field(default_factory=Gathered)

    def __len__(self) -> int:
        return len(self.raws)

    @property
    def exchanges(self) -> int:
        """Final answers."""
        return sum(message.is_final for message in self.messages)

    @property
    def units(self) -> list[Unit]:
        """All units, cut or not."""
        return self._asked.units

    def is_spared_by(self, plan: Plan) -> bool:
        """Whether a plan leaves whole what this chain asks of the model."""
        if plan.depth <= self.settled:
            return True
        clipped = [edit.position for edit in plan.replacements if not edit.why]
        gone = [(gap.start, gap.end) for gap in plan.gaps]
        gone += [(edit.position, edit.position + 1) for edit in plan.replacements if edit.why]
        return self._asked.is_spared(sorted(gone), clipped)

    @property
    def settled(self) -> int:
        """Messages, the oldest, that every plan may edit."""
        return self._asked.settled

    @cached_property
    def _asked(self) -> Asked:
        return Asked(self.messages, self.raws, self.gathered.units)

    def addresses(self, content: Callable[[int], Content]) -> list[Address]:
        """Under which of :data:`READINGS` each message stands; ``content`` decodes one."""
        found = self.gathered.addresses.continued(
            self.raws, self._asked.is_apart, lambda first: addresses_of(self.raws, content, first)
        )
        if found:
            last = self.units[-1].start
            self.gathered.addresses.keep(self.raws[: last + 1], found[:last])
        return found

    def prefix(self, length: int) -> Self:
        """The chain as it was when it had ``length`` messages."""
        if length == len(self):
            return self
        return type(self)(
            self.messages[:length],
            self.raws[:length],
            self.tokens[:length],
            self.hashes[:length],
            self.gathered,
        )

    def weighed(self, plan: Plan) -> Self:
        """The same chain with the tokens of what ``plan`` leaves alone spread over it by bytes."""
        edited = {edit.position for edit in plan.replacements}
        edited.update(place for gap in plan.gaps for place in range(gap.start, gap.end))
        left = [place for place in range(len(self)) if place not in edited]
        tokens, size = sum(self.tokens[place] for place in left), sum(len(self.raws[place]) for place in left)
        share = tokens / max(size, 1)
        return replace(self, tokens=Sizes.of(ceil(len(raw) * share) for raw in self.raws))


class Situation(msgspec.Struct, frozen=True, dict=True):  # a dict for what is reckoned once
    """One chain under one plan, policy and budget."""

    chain: Chain
    plan: Plan
    policy: Policy
    budget: Budget
    count: Count
    """Counts the tokens of a text (a pure function)."""
    conditions: Conditions = UNKNOWN
    unwritten: int = 0
    """Counted tokens of a ledger that stands in the view and is not yet in the plan."""
    pins: AbstractSet[bytes] = frozenset()
    """Chain hashes of the messages that the client has pinned, on whichever branch."""
    past: Past = NO_PAST

    @property
    def units(self) -> list[Unit]:
        """All units of the chain, cut or not."""
        return self.chain.units

    @cached_property
    def standing(self) -> list[int]:
        """Indexes of the units that are in the view."""
        found: list[int] = []
        after = 0
        for start, end in (gap.span for gap in self.plan.gaps):
            found += range(after, bisect_left(self.units, start, key=_start))
            after = bisect_left(self.units, end, key=_start)
        return [*found, *range(after, len(self.units))]

    def under(self, plan: Plan) -> Self:
        """The same chain under a plan; what is known of it stays known where the plan is the same."""
        return self if plan == self.plan else replace(self, plan=plan)

    @cached_property
    def tokens(self) -> list[int]:
        """Counted tokens of each message as it stands in the view (clipped ones are smaller)."""
        sizes = list(self.chain.tokens)
        for replacement in self.plan.replacements:
            sizes[replacement.position] = replacement.tokens
        return sizes

    @cached_property
    def view(self) -> int:
        """Counted tokens of the view."""
        return view_tokens(self.plan, self.chain.tokens) + self.unwritten

    def size(self, index: int) -> int:
        """Counted tokens of unit number ``index``."""
        unit = self.units[index]
        return sum(self.tokens[unit.start : unit.end])

    def content(self, position: int) -> Content:
        """A message's content, decoded once."""
        found = self._contents.get(position)
        if found is None:
            found = self._contents[position] = Content.of(self.chain.raws[position])
        return found

    @cached_property
    def _contents(self) -> dict[int, Content]:
        return {}

    @cached_property
    def readings(self) -> list[Reading]:
        """What each message says that is exact, and which of its sentences bind."""
        chain, may_be_quoted = self.chain, self.classes.may_be_quoted
        return [
            READINGS.of(address, partial(self.content, place)) if may_be_quoted(place) else Reading(())
            for place, address in enumerate(chain.addresses(self.content))
        ]

    @cached_property
    def constraints(self) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
        """What was laid down and is in force; and what newer rules replaced, each with its successor."""
        return in_force(
            Rule(place, sentence)
            for place, reading in enumerate(self.readings)
            for sentence in reading.sentences
        )

    @cached_property
    def fresh(self) -> ToolCache:
        """Tool results of the chain, as the client tells it, that are fresh by its end."""
        rules, chain = Rules(self.policy.tools), self.chain
        places = zip(chain.messages, chain.raws, chain.hashes, strict=True) if rules.is_caching else ()
        return folded(begun(rules), places).cache

    @cached_property
    def protection(self) -> dict[int, int]:
        """How firmly each standing unit is protected."""
        levels = dict.fromkeys(self.standing, FREE)
        for level, members in (
            (RECENT, self._recent()),
            (FIRST_USER, self._first_user()),
            (CRITICAL, self._critical()),
            (PINNED, self._pinned()),
            (FIXED, self._fixed()),
        ):
            levels.update(dict.fromkeys((index for index in members if index in levels), level))
        return levels

    def _recent(self) -> list[int]:
        """The newest units, as many as fit into their share of the room."""
        left = self.budget.share(self.policy.keep.recent)
        members: list[int] = []
        for index in reversed(self.standing):
            left -= self.size(index)
            if left < 0:
                break
            members.append(index)
        return members

    def _first_user(self) -> list[int]:
        if not self.policy.keep.first_user:
            return []
        users = (index for index, unit in enumerate(self.units) if self._is_user(unit))
        return list(islice(users, 1))

    def _is_user(self, unit: Unit) -> bool:
        return self.chain.messages[unit.start].role == "user"

    def _critical(self) -> list[int]:
        """Units of the class, and those that the policy pins."""
        pins = [re.compile(pin) for pin in self.policy.keep.pins]
        return [
            index
            for index in self.standing
            if self.classes.of(index) == "critical" or (pins and self._matches(self.units[index], pins))
        ]

    @cached_property
    def classes(self) -> Classes:
        """The retention classes of the units."""
        return Classes(self.policy.retention, self.chain.messages, self.units, self.content)

    @cached_property
    def pinned(self) -> list[int]:
        """Positions of messages that the client has pinned."""
        hashes = self.chain.hashes if self.pins else ()
        return [place for place, chain_hash in enumerate(hashes) if chain_hash in self.pins]

    @property
    def standing_pins(self) -> list[int]:
        """Those of them that are in the view."""
        return [place for place in self.pinned if not self.plan.covers(place)]

    def _pinned(self) -> list[int]:
        pinned = frozenset(self.pinned)
        return [
            index
            for index, unit in enumerate(self.units if pinned else ())
            if any(place in pinned for place in range(unit.start, unit.end))
        ]

    def _matches(self, unit: Unit, pins: Sequence[re.Pattern[str]]) -> bool:
        texts = (self.content(position).text for position in range(unit.start, unit.end))
        return any(pin.search(text) for text in texts for pin in pins)

    def _fixed(self) -> list[int]:
        """What the model is still to answer: the open unit, and the last user message."""
        members = list(range(open_from(self.chain.messages, self.units), len(self.units)))
        asked = last_user(self.chain.messages)
        members += [
            i for i, unit in enumerate(self.units) if asked is not None and unit.start <= asked < unit.end
        ]
        return members

    def score(self, index: int) -> Score:
        """A unit's importance: that of its best message."""
        found = self._scores.get(index)
        if found is None:
            unit = self.units[index]
            found = max((self._score(place) for place in range(unit.start, unit.end)), key=lambda s: s.total)
            self._scores[index] = found
        return found

    @cached_property
    def _scores(self) -> dict[int, Score]:
        return {}

    def _score(self, position: int) -> Score:
        role, text = self.chain.messages[position].role, self.content(position).text
        return score(role, text, position, len(self.chain), self.policy.importance)

    def is_user(self, index: int) -> bool:
        """Whether the unit is a user message."""
        return self._is_user(self.units[index])

    def request_of(self, index: int) -> int | None:
        """The user unit that unit ``index`` is a part of the answer to."""
        for earlier in range(index - 1, -1, -1):
            if self.is_user(earlier):
                return earlier
        return None

    def answer_to(self, index: int) -> list[int]:
        """The units that answer user unit ``index``: up to the next user message, system ones apart."""
        answer: list[int] = []
        for following in range(index + 1, len(self.units)):
            role = self.chain.messages[self.units[following].start].role
            if role == "user":
                break
            if role not in HEAD_ROLES:
                answer.append(following)
        return answer
