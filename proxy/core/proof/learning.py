"""Learn from recorded sessions which weights and retention rules miss less, or send fewer tokens.

A recorded answer was given with the whole history before it. Replayed under a policy, something that it used
is missed if the policy's view would have lacked it: an exact string, the result of a call that is made again,
a file that is read again, words that the user says again. Proposals are tried one after the other on one half
of the sessions and kept if they help there; their effect is reported for the other half.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices
from proxy.core.economics.bill import NOTHING, Bill
from proxy.core.economics.simulate import replay
from proxy.core.extraction.reading import Extracted
from proxy.core.lazy import lazy
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.planning.situation import Count
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Retention, RetentionClass
from proxy.core.proof.evidence import Signal
from proxy.core.proof.regret import Regret, called_again, said_again

_LEAST_CUT = 5
"""Fewest cut results of a tool for proposing a change for it."""
_MOST_TOOLS = 4
"""Most tools for which the same kind of change is tried."""
_FEWER = 0.98
"""Ratio of missed messages below which clearly less is missed."""
_MORE = 1.05
"""Most tokens sent, relative to before, for a change that misses less."""
_LESS = 0.995
"""Ratio of tokens sent below which fewer are sent."""
_WEIGHTS = ((0.5, 0.2, 0.3), (0.2, 0.2, 0.6), (0.2, 0.5, 0.3), (0.6, 0.1, 0.3))
"""Weights of recency, role and content that are tried."""
_ROLES = (("tool", 0.8), ("tool", 0.2), ("assistant", 0.8), ("assistant", 0.2))


class Need(NamedTuple):
    """An exact string that an answer used, with the positions of the earlier messages that have it."""

    value: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Recording:
    """A recorded session."""

    id: str
    chain: Chain
    head_tokens: int
    """Counted tokens of its head: tools and leading system messages."""
    head: bytes
    """Its head as it is written, whose strings are never missed, since it is always sent."""

    @property
    def is_learned_from(self) -> bool:
        """Whether it is in the half to learn from; depends on its id only, so every run splits alike."""
        return hashlib.sha256(self.id.encode(errors="surrogatepass")).digest()[0] % 2 == 0

    @lazy
    def needs(self) -> Mapping[int, list[Need]]:
        """By an answer's position, the exact strings that it used from the messages before it."""
        chain, found = self.chain, dict[int, list[Need]]()
        read = Extracted()
        read.go_on(chain.messages, chain.raws, chain.addresses(chain.content), chain.content)
        seen: dict[str, list[int]] = {}
        for position, reading in enumerate(read.readings):
            values = {fact.value for _, facts in reading.facts for fact in facts}
            if chain.messages[position].role == "assistant":
                found[position] = [
                    Need(each, tuple(seen[each]))
                    for each in sorted(values)
                    if each in seen and each.encode(errors="replace") not in self.head
                ]
            for each in values:
                seen.setdefault(each, []).append(position)
        return found

    def tool_of(self, position: int) -> str:
        """The tool whose result is at a position; empty if it is no tool's result."""
        call_ids = self.chain.messages[position].result_of
        return next(filter(None, (self.chain.tool(call_id, position) for call_id in call_ids)), "")


@dataclass(frozen=True)
class Played:
    """The outcome of replaying sessions under a policy."""

    turns: int = 0
    sent: int = 0
    full: int = 0
    bill: Bill = NOTHING
    missed: Counter[Signal] = field(default_factory=Counter[Signal])
    """Numbers of messages that were asked for again while they were cut, by signal."""
    cut: Counter[str] = field(default_factory=Counter[str])
    """Numbers of tool results that were cut, by tool."""
    asked_for: Counter[str] = field(default_factory=Counter[str])
    """Numbers of those results that were asked for again, by tool."""

    def __add__(self, other: "Played") -> "Played":
        return Played(**{name: own + getattr(other, name) for name, own in vars(self).items()})

    def misses_less_than(self, other: "Played") -> bool:
        """Whether clearly less is missed, regardless of the tokens sent."""
        return self.missed.total() < _FEWER * other.missed.total()

    def is_better_than(self, other: "Played") -> bool:
        """Whether less is missed for hardly more tokens, or fewer tokens are sent and no more is missed."""
        if self.misses_less_than(other):
            return self.sent <= _MORE * other.sent
        return self.missed.total() <= other.missed.total() and self.sent <= _LESS * other.sent


def play(
    recording: Recording, policy: Policy, budget: Budget, count: Count, prices: Prices, writer: Prices
) -> Played:
    """Replay a session under a policy, and count what its answers and users miss."""
    chain, missed = recording.chain, Counter[Signal]()
    cut, asked_for = set[int](), set[int]()
    turns, sent, full, bill, before, end = 0, 0, 0, NOTHING, EMPTY, 0
    for turn in replay(chain, policy, budget, count, prices=prices):
        turns, sent, full = turns + 1, sent + turn.sent.tokens, full + turn.full.tokens
        bill += turn.bill(prices, writer)
        plan = turn.plan
        cut |= plan.edited
        users = [place for place in range(end, turn.messages) if chain.messages[place].role == "user"]
        found = said_again(users, chain, before)
        if plan != EMPTY and turn.messages < len(chain):
            found += called_again(chain.content(turn.messages), chain, plan, turn.messages)
            found += _used(recording.needs.get(turn.messages, []), plan)
        for each in found:
            if each.is_cut:
                missed[each.signal] += 1
                asked_for.add(each.position)
        before, end = plan, turn.messages + 1
    tools = [
        Counter(tool for place in each if (tool := recording.tool_of(place))) for each in (cut, asked_for)
    ]
    return Played(turns, sent, full, bill, missed, *tools)


def _used(needs: Sequence[Need], plan: Plan) -> Iterator[Regret]:
    """Yield a regret for each need that neither the view's messages nor its notes and edits have."""
    for value, positions in needs:
        written = value.encode(errors="replace")
        put_in = (*(gap.note for gap in plan.gaps), *(edit.raw for edit in plan.replacements))
        if not any(map(plan.shows, positions)) and not any(written in each for each in put_in):
            yield Regret(Signal.USED, positions[-1], is_cut=True)


# --- changes of a policy that may help ---


Change = Callable[[Policy], Policy]


def proposals(policy: Policy, played: Played) -> Iterator[tuple[str, Change]]:
    """Yield changes worth trying after an outcome of ``policy``, each with a description."""
    ruled = {rule.match.tool for rule in policy.retention}
    tools = [tool for tool, number in played.cut.most_common() if number >= _LEAST_CUT and tool not in ruled]
    shares = {tool: played.asked_for[tool] / played.cut[tool] for tool in tools}
    for tool in [tool for tool in tools if not shares[tool]][:_MOST_TOOLS]:
        yield f"results of {tool} are cut first", partial(_with_rule, tool, "disposable")
    needed = sorted((tool for tool in tools if shares[tool]), key=lambda tool: -shares[tool])
    for tool in needed[:_MOST_TOOLS]:
        yield f"results of {tool} are kept", partial(_with_rule, tool, "critical")
    before = policy.importance
    for recency, role, content in _WEIGHTS:
        weights = {"recency": recency, "role": role, "content": content}
        # What the policy has already stays as earlier changes have left it.
        new = {name: weight for name, weight in weights.items() if weight != getattr(before, name)}
        yield f"importance by {recency:g}, {role:g}, {content:g}", partial(_with_weights, new)
    for role, weight in _ROLES:
        new = {} if before.roles.get(role) == weight else {"roles": {**before.roles, role: weight}}
        yield f"messages of role {role} weigh {weight:g}", partial(_with_weights, new)


def _with_rule(tool: str, retention: RetentionClass, policy: Policy) -> Policy:
    only_this = "".join(f"[{each}]" if each in "*?[" else each for each in tool)
    rule = Retention.model_validate({"match": {"role": "tool", "tool": only_this}, "class": retention})
    return policy.model_copy(update={"retention": (rule, *policy.retention)})


def _with_weights(weights: Mapping[str, object], policy: Policy) -> Policy:
    return policy.model_copy(update={"importance": policy.importance.model_copy(update=weights)})
