"""A conversation as the planner sees it: a request without its head, with values computed once."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import ceil
from operator import attrgetter
from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.conversation.messages import Message, last_user, read_message
from proxy.core.conversation.records import HiddenCalls, Node
from proxy.core.conversation.units import Unit, exchange_starts, open_from, request_points, units_of
from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.extraction.reading import Address, addresses_of
from proxy.core.persistent import Incremental, PersistentList, Sizes
from proxy.core.planning.plan import Plan

_start: Callable[[Unit], int] = attrgetter("start")


class ChainCache(msgspec.Struct, frozen=True):
    """Results already computed for the first messages of a chain, which longer chains reuse."""

    units: Incremental[Unit] = msgspec.field(default_factory=Incremental[Unit])
    addresses: Incremental[Address] = msgspec.field(default_factory=Incremental[Address])
    """By message, the cache key of its :class:`Reading`."""


class Chain(msgspec.Struct, frozen=True, dict=True):  # a dict for cached properties
    """A request without its head."""

    messages: Sequence[Message]
    raws: Sequence[bytes]
    tokens: Sizes
    hashes: Sequence[bytes]
    dialect: Dialect
    cache: ChainCache = msgspec.field(default_factory=ChainCache)
    media_tokens: int = 0
    """How many of the tokens are of images, audio and files; these are estimates."""
    hidden: Mapping[int, HiddenCalls] = {}
    """What is sent in place of answers within which the proxy answered calls, by position."""
    is_estimated: bool = False
    """Whether its token counts are estimated from bytes, because its body is near a ceiling in bytes."""
    full_chain: "Chain | None" = None
    """The longer chain that this one is a :meth:`prefix` of; else None."""
    visible: "Chain | None" = None
    """The same chain with all answers as the client has them, where ``hidden`` replaces some; else None."""

    @classmethod
    def from_nodes(cls, branch: Sequence[Node], dialect: Dialect) -> Self:
        """Return the chain of a branch of a stored session."""
        return cls(
            messages=[read_message(dialect.read(node.raw)) for node in branch],
            raws=[node.raw for node in branch],
            tokens=Sizes.of(node.tokens for node in branch),
            hashes=[node.hash for node in branch],
            dialect=dialect,
        )

    def __len__(self) -> int:
        return len(self.raws)

    def followed_by(
        self,
        messages: Sequence[Message],
        tokens: Sequence[int],
        raws: Sequence[bytes],
        hashes: Sequence[bytes],
        media_tokens: int = 0,
    ) -> Self:
        """Return this chain with more messages; ``raws`` and ``hashes`` are those of the whole new chain.

        ``media_tokens`` are the tokens of the new messages that are not text.
        """
        before, gathered = self.messages, self.cache
        return type(self)(
            messages=before.followed_by(messages)
            if isinstance(before, PersistentList)
            else PersistentList([*before, *messages]),
            raws=raws,
            tokens=self.tokens.followed_by(tokens),
            hashes=hashes,
            dialect=self.dialect,
            media_tokens=self.media_tokens + media_tokens,
            # A copy: chains that continue the same chain must not see each other's results.
            cache=ChainCache(Incremental(gathered.units.found), Incremental(gathered.addresses.found)),
        )

    def with_hidden(self, hidden: Mapping[int, HiddenCalls]) -> "Chain":
        """Return the chain with this alone sent in place of answers, by position, and its token counts."""
        visible = self if self.visible is None else self.visible
        if not hidden:
            return visible
        tokens = list(visible.tokens)
        for place, each in hidden.items():
            tokens[place] = each.tokens
        return replace(visible, tokens=Sizes.of(tokens), hidden=hidden, visible=visible)

    def sent_for(self, position: int) -> Sequence[bytes]:
        """Return the messages that are sent for the one at this position: mostly itself."""
        hidden = self.hidden.get(position)
        return (self.raws[position],) if hidden is None else hidden.messages

    def content(self, position: int) -> Content:
        """Decode a message; the result is not cached."""
        return self.dialect.read(self.raws[position])

    def call_position(self, answered: str, before: int, most: int | None = None) -> int | None:
        """Position of the nearest earlier message that makes the call with this id; None if there is none.

        Only the nearest ``most`` messages are searched, if given.
        """
        end = -1 if most is None else max(before - 1 - most, -1)
        return next((at for at in range(before - 1, end, -1) if answered in self.messages[at].calls), None)

    def tool(self, answered: str, before: int) -> str:
        """The tool of the nearest earlier call with this id; empty if there is none."""
        place = self.call_position(answered, before)
        calls = self.content(place).calls if place is not None else ()
        return next((name for call, name, _ in calls if call == answered), "")

    @property
    def last_user_tokens(self) -> int:
        """Counted tokens of the last user message, which is never cut."""
        place = last_user(self.messages)
        return 0 if place is None else self.tokens[place]

    @property
    def sent_before(self) -> int:
        """Presumed number of messages in the previous request: those before the newest answer."""
        for back, message in enumerate(reversed(self.messages), 1):
            if message.role == "assistant":
                return len(self.raws) - back
        return 0

    @property
    def requests(self) -> list[int]:
        """The number of messages in each request; an answer at the very end has not been sent yet."""
        points = request_points(self.messages)
        return points[:-1] if not self.messages or self.messages[-1].role == "assistant" else points

    @property
    def exchanges(self) -> int:
        return sum(message.is_final for message in self.messages)

    @cached_property
    def units(self) -> list[Unit]:
        """All units. All but the last are reused by longer chains, unless a later result answers them."""
        if self.full_chain is not None:
            units = self.full_chain.units
            count = bisect_left(units, len(self), key=_start)
            if count and units[count - 1].end == len(self):  # no unit extends beyond the prefix
                return units[:count]
        known = self.cache.units
        units = known.continued(
            self.raws, self.is_self_contained_from, lambda first: units_of(self.messages[first:], first)
        )
        if self.raws:
            known.keep(self.raws[: units[-1].start + 1], units, len(units) - 1)
        return units

    @cached_property
    def users(self) -> list[int]:
        """Positions of user messages."""
        if self.full_chain is not None:
            return self.full_chain.users[: bisect_left(self.full_chain.users, len(self))]
        return [place for place, message in enumerate(self.messages) if message.role == "user"]

    @cached_property
    def exchange_starts(self) -> list[int]:
        """Positions of the messages that begin an exchange."""
        if self.full_chain is not None:
            return self.full_chain.exchange_starts[: bisect_left(self.full_chain.exchange_starts, len(self))]
        return exchange_starts(self.messages)

    # --- the open part, which the model still has to answer; none of it may be cut or clipped ---

    @cached_property
    def last_user(self) -> int | None:
        """Position of the last user message."""
        return last_user(self.messages)

    @property
    def open_from(self) -> int:
        """Position of the first message of the open part."""
        return self.units[open_from(self.messages, self.units)].start if self.units else 0

    @cached_property
    def editable_length(self) -> int:
        """Number of oldest messages that every plan may edit; found from the later messages alone."""
        user = self.last_user
        return user if user is not None and self.is_self_contained_from(user) else 0

    def is_self_contained_from(self, place: int) -> bool:
        """Whether every result from ``place`` on answers a call from ``place`` on."""
        calls = set[str]()
        for message in self.messages[place:]:
            calls.update(message.calls)
            if message.is_result and not (message.result_of and calls.issuperset(message.result_of)):
                return False
        return True

    def keeps_open_part(self, plan: Plan) -> bool:
        """Whether a plan leaves alone what the model has still to answer, and parts no late result's unit."""
        if not self.is_self_contained_from(plan.depth):  # a late result has joined all up to its call
            ends = {0, *(unit.end for unit in self.units)}
            if any(gap.start not in ends or gap.end not in ends for gap in plan.gaps):
                return False
        if plan.depth <= self.editable_length:
            return True
        if self.last_user is not None and not plan.shows(self.last_user):
            return False
        cleared = (edit.position + 1 for edit in plan.replacements if edit.why)
        return max((*cleared, *(gap.end for gap in plan.gaps)), default=0) <= self.open_from

    def addresses(self, content: Callable[[int], Content], first: int = 0) -> list[Address]:
        """Return the keys in :data:`READINGS` of the messages from ``first`` on; ``content`` decodes one."""
        if first and self.is_self_contained_from(first):
            return [*addresses_of(self.dialect, self.raws, self.messages, content, first)]
        found = self.cache.addresses.continued(
            self.raws,
            self.is_self_contained_from,
            lambda first: addresses_of(self.dialect, self.raws, self.messages, content, first),
        )
        if found:
            last = self.units[-1].start
            self.cache.addresses.keep(self.raws[: last + 1], found, last)
        return found[first:]

    def prefix(self, length: int) -> Self:
        """Return the chain as it was when it had ``length`` messages."""
        if length == len(self):
            return self
        return replace(
            self,
            messages=self.messages[:length],
            raws=self.raws[:length],
            tokens=self.tokens[:length],
            hashes=self.hashes[:length],
            full_chain=self,
        )

    def with_estimated_tokens(self, plan: Plan) -> Self:
        """Return the chain with token counts estimated from bytes.

        The ratio of tokens to bytes is that of the messages that ``plan`` leaves alone.
        """
        edited = plan.edited
        left = [place for place in range(len(self)) if place not in edited]
        sizes = [sum(map(len, self.sent_for(place))) for place in range(len(self))]
        tokens, size = sum(self.tokens[place] for place in left), sum(sizes[place] for place in left)
        share = tokens / max(size, 1)
        weighed = Sizes.of(ceil(each * share) for each in sizes)
        return replace(self, tokens=weighed, is_estimated=True)
