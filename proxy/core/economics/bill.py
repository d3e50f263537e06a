"""Bills: tokens and cost of requests, and what doing nothing would have cost, as one record that adds up.

Replay, the store, metrics, commands and the admin API all use this record. Money is in whole nano-dollars, so
that sums agree exactly however they are grouped.

Doing nothing means the same turn with the whole conversation, answered with as many tokens. If nothing was
cut or recalled, that is what was sent. Otherwise its prompt is assumed to be cached as far as possible: while
the cache is warm, the part that the previous request with this head had, in the steps in which providers
cache prefixes. A whole conversation that exceeds the model's window would have failed, and costs nothing.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Self

import msgspec

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan, first_difference

Amounts = Mapping[str, int]
"""A bill by the names of its amounts: see :meth:`Bill.amounts`."""
NANO = 1_000_000_000
"""Nano-dollars per dollar."""
_FAILED = "failed:"
_MOST_TOKENS = 10**8
"""Upper bound of the tokens of one request; larger numbers are taken for nonsense."""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over requests. Tokens are as the model counts them; money is in nano-dollars."""

    requests: int = 0
    received: int = 0
    """Prompt tokens of the whole conversations."""
    sent: int = 0
    """Prompt tokens that were sent upstream."""
    cached: int = 0
    """Sent tokens that the provider read from its cache."""
    written: int = 0
    """Sent tokens that the provider billed as written to its cache."""
    output: int = 0
    answers: int = 0
    """Cost of the requests whose answers clients received."""
    hidden: int = 0
    """Cost of requests the client does not see: those whose tool calls the proxy answered itself."""
    summaries: int = 0
    memory: int = 0
    proof: int = 0
    """Cost of second answers, which show whether cuts change the first answer."""
    without: int = 0
    """What doing nothing would have cost, for requests that would not have failed."""
    beyond: int = 0
    """The part of ``answers`` for requests that would have failed without cuts."""
    shadow_cut: int = 0
    """Prompt tokens that cutting would have saved in shadow requests, which were sent whole."""
    shadow: int = 0
    """Money that this would have saved, without deducting the cost of summaries."""
    failing: int = 0
    """Requests whose whole conversation would not have fitted the model's window."""
    unpriced: int = 0
    """Requests, and calls of our own, whose price is unknown; they count as free here."""
    estimated: int = 0
    """Requests whose answer reported no usage, so that the proxy counted their tokens itself."""
    epochs: int = 0
    tool_calls: int = 0
    """Tool calls that the proxy answered itself."""
    failed: Mapping[str, int] = {}
    """Number of failed summaries by reason."""

    def __add__(self, other: "Bill") -> "Bill":
        return Bill.of(added(self.amounts(), other.amounts()))

    @classmethod
    def of(cls, amounts: Amounts) -> Self:
        """Return a bill from amounts by name; unknown names are ignored."""
        known, failed = dict[str, int](), dict[str, int]()
        for name, amount in amounts.items():
            if name in _NAMES:
                known[name] = amount
            elif name.startswith(_FAILED):
                failed[name.removeprefix(_FAILED)] = amount
        return cls(failed=failed, **known)

    def amounts(self) -> dict[str, int]:
        """All amounts that are not zero, by name; failed summaries are named ``failed:<reason>``."""
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
        """Everything that was paid, in nano-dollars."""
        return self.answers + self.hidden + self.summaries + self.memory + self.proof

    @property
    def saved(self) -> int:
        """How much more doing nothing would have cost, in nano-dollars.

        Requests that would have failed without cuts save nothing.
        """
        return self.without + self.beyond - self.spent

    @property
    def is_priced(self) -> bool:
        """Whether any price is known, or nothing lacks one."""
        return bool(self.spent or not self.unpriced)

    @classmethod
    def of_request(
        cls, sent: Prompt, output: int, whole: Prompt, prices: Prices | None, *, fits: bool = True
    ) -> Self:
        """Return the bill of one request and its answer; ``whole`` is what doing nothing would have sent.

        ``fits``: whether ``whole`` fits the model's window. Without prices it costs 0 and counts as unpriced.
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
    """Return a token count reported by an upstream, limited to a plausible range so that sums stay valid."""
    return min(max(tokens or 0, 0), _MOST_TOKENS)


def prompt_of(usage: Usage, requests: int = 1) -> Prompt:
    """Return the prompt that an upstream's usage describes, or those of several ``requests``."""
    tokens = bounded(usage.prompt_tokens)
    cached = min(bounded(usage.cached_tokens), tokens)
    return Prompt(tokens, cached, min(bounded(usage.written_tokens), tokens - cached), requests)


def money(prompt: Prompt, output: int, prices: Prices | None) -> int:
    """Return the cost of a prompt and its answer in nano-dollars; 0 if the prices are unknown."""
    if prices is None:
        return 0
    return round(prompt.dollars(prices, output) * NANO)


def cost_of(usage: Usage, prices: Prices | None, requests: int = 1) -> int:
    """Return the cost of a call, or of several ``requests``, by the usage that was reported."""
    return money(prompt_of(usage, requests), bounded(usage.completion_tokens), prices)


def total(bills: Iterable[Bill]) -> Bill:
    """Return the sum of bills."""
    return Bill.of(reduce(added, (bill.amounts() for bill in bills), {}))


def added(amounts: Amounts, others: Amounts) -> dict[str, int]:
    """Add up amounts by name."""
    sums = dict(amounts)
    for name, amount in others.items():
        sums[name] = sums.get(name, 0) + amount
    return sums


def kept_prompt(
    chain: Chain,
    before: Plan,
    plan: Plan,
    budget: Budget,
    prices: Prices,
    less: int = 0,
    sent: int | None = None,
) -> int:
    """Return how many of a prompt's tokens a warm cache holds: those of the prefix shared with the last one.

    ``before`` is the plan of the previous request, which lacked the chain's newest messages, and ``less``
    are counted tokens of the messages before these that are taken not to have been sent. ``sent``: how many
    of the chain's messages that request had, where it was not the one before the newest answer.
    """
    first = chain.sent_before if sent is None else sent
    if before is not plan and (changed := first_difference(before, plan)) is not None:
        first = min(first, changed)
    counted = budget.head + chain.tokens.between(0, first) - less
    for gap in plan.gaps:
        if gap.end <= first:
            counted += gap.tokens - chain.tokens.between(gap.start, gap.end)
    for each in plan.replacements:
        if each.position < first:
            counted += each.tokens - chain.tokens[each.position]
    return prices.cached_prefix(budget.real(counted))
