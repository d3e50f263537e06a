"""What requests took and cost, and what doing nothing would have cost: one record that is added up.

Replay, the store, metrics, commands and the admin API all tell this record. Money is in whole nano-dollars,
so that sums agree exactly however they are grouped.

Doing nothing is the same turn with the whole conversation, answered by as many tokens. Where nothing was cut
it is what was sent. Elsewhere its prompt is taken to be kept by the provider as far as that goes: the part
that the request before held, in the steps in which providers keep prefixes, while the cache is warm.
Where the whole would have been more than the model's window it would have failed, and costs nothing.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Self

import msgspec

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import MILLION, Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan

NANO = 1_000_000_000
"""Nano-dollars of a dollar."""
_FAILED = "failed:"
_MOST_TOKENS = 10**8
"""Of one request; there are none with more."""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What requests took and cost, in all. Tokens are the model's; money is in nano-dollars."""

    requests: int = 0
    received: int = 0
    """Prompt tokens of the whole conversations."""
    sent: int = 0
    """Prompt tokens that went out."""
    cached: int = 0
    """Those of them that came from the provider's cache."""
    written: int = 0
    """Those that the provider has billed as written to its cache."""
    output: int = 0
    answers: int = 0
    """Money for the requests that clients were answered with."""
    hidden: int = 0
    """For requests of one answer that the client does not see: calls were answered in between."""
    summaries: int = 0
    memory: int = 0
    proof: int = 0
    """For second answers, by which it is found out whether cuts change the first."""
    without: int = 0
    """What doing nothing would have cost, as far as it would have worked."""
    beyond: int = 0
    """Of the money for answers: for requests that would have failed without."""
    shadow_cut: int = 0
    """Prompt tokens that would not have been sent, of requests in shadow: these were sent whole."""
    shadow: int = 0
    """Money that would have been saved by that, without what summaries would have cost."""
    failing: int = 0
    """Requests whose whole conversation would not have fitted the model's window."""
    unpriced: int = 0
    """Requests, and calls of our own, of which nobody knows the price: they cost nothing here."""
    estimated: int = 0
    """Requests whose answer had no usage: their tokens are counted here."""
    epochs: int = 0
    tool_calls: int = 0
    """Calls of tools that the proxy has answered."""
    failed: Mapping[str, int] = {}
    """Summaries that could not be had, by the reason."""

    def __add__(self, other: "Bill") -> "Bill":
        return Bill.of(added(self.amounts(), other.amounts()))

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> Self:
        """A bill of its amounts by name; names that are not known here are left out."""
        known, failed = dict[str, int](), dict[str, int]()
        for name, amount in amounts.items():
            if name in _NAMES:
                known[name] = amount
            elif name.startswith(_FAILED):
                failed[name.removeprefix(_FAILED)] = amount
        return cls(failed=failed, **known)

    def amounts(self) -> dict[str, int]:
        """All that is not zero, by name: a summary's reason for failing stands behind a colon."""
        named = dict[str, int]()
        for name in _NAMES:
            if amount := getattr(self, name):
                named[name] = amount
        for reason, number in self.failed.items():
            if number:
                named[_FAILED + reason] = number
        return named

    @property
    def spent(self) -> int:
        """All that was paid, in nano-dollars."""
        return self.answers + self.hidden + self.summaries + self.memory + self.proof

    @property
    def saved(self) -> int:
        """What doing nothing would have cost more; what it could not have answered saves nothing."""
        return self.without + self.beyond - self.spent

    @property
    def is_priced(self) -> bool:
        """Whether the price of any of it is known."""
        return bool(self.spent or not self.unpriced)

    @classmethod
    def of_request(
        cls, sent: Prompt, output: int, whole: Prompt, prices: Prices | None, *, fits: bool = True
    ) -> Self:
        """The bill of one request and its answer; ``whole`` is what doing nothing would have sent.

        ``fits``: whether that would have worked. Without prices it costs nothing, and says so.
        """
        answer = money(sent, output, prices)
        return cls(
            requests=1,
            received=whole.tokens,
            sent=sent.tokens,
            cached=sent.cached,
            written=sent.written or 0,
            output=output,
            answers=answer,
            without=money(whole, output, prices) if fits else 0,
            beyond=0 if fits else answer,
            failing=0 if fits else 1,
            unpriced=1 if prices is None else 0,
        )


_NAMES = frozenset(Bill.__struct_fields__) - {"failed"}

NOTHING = Bill()


def bounded(tokens: int | None) -> int:
    """Tokens as an upstream tells them, which may be nonsense: no number of them stops adding up."""
    return min(max(tokens or 0, 0), _MOST_TOKENS)


def prompt_of(usage: Usage) -> Prompt:
    """A prompt as an upstream tells of it."""
    tokens = bounded(usage.prompt_tokens)
    cached = min(bounded(usage.cached_tokens), tokens)
    return Prompt(tokens, cached, min(bounded(usage.written_tokens), tokens - cached))


def money(prompt: Prompt, output: int, prices: Prices | None) -> int:
    """What one call costs, in nano-dollars; none where nobody knows its prices."""
    if prices is None:
        return 0
    return round((prompt.dollars(prices) + output * prices.output / MILLION) * NANO)


def total(bills: Iterable[Bill]) -> Bill:
    """The sum of bills."""
    return Bill.of(reduce(added, (bill.amounts() for bill in bills), {}))


def added(amounts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    """The sums of amounts by name."""
    sums = dict(amounts)
    for name, amount in others.items():
        sums[name] = sums.get(name, 0) + amount
    return sums


def kept_prompt(chain: Chain, before: Plan, plan: Plan, budget: Budget, prices: Prices) -> int:
    """The model's tokens of a prompt that a warm cache has: those with which the one before it began, too.

    ``before`` is the plan under which the chain went out last, without its newest messages.
    """
    first = chain.sent_before
    if before is not plan:
        notes = [{(gap.start, gap.end, gap.note) for gap in each.gaps} for each in (before, plan)]
        changed = [start for start, _, _ in notes[0] ^ notes[1]]
        changed += [each.position for each in {*before.replacements} ^ {*plan.replacements}]
        first = min([first, *changed])
    counted = budget.head + chain.tokens.between(0, first)
    for gap in plan.gaps:
        if gap.end <= first:
            counted += gap.tokens - chain.tokens.between(gap.start, gap.end)
    for each in plan.replacements:
        if each.position < first:
            counted += each.tokens - chain.tokens[each.position]
    return prices.cached_prefix(budget.real(counted))
