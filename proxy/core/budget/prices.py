"""What a model's tokens cost, and how its provider keeps the beginnings of prompts.

Numbers that others look up (:mod:`proxy.adapters.prices`) or state (a policy's ``[economy]``). What follows
from them is :mod:`proxy.core.economics.economy`'s and :mod:`proxy.core.economics.simulate`'s business.
"""

from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.policy.sections import Economy

MILLION = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """Dollars for a million tokens, and the rules of the prompt cache.

    The defaults stand for a model of which nothing is known. A local server keeps prefixes too: what it has
    kept costs hardly any time.
    """

    fresh: float = 1.0
    cached: float = 0.1
    """A prompt token that the provider has kept."""
    written: float = 1.0
    """A fresh prompt token, where the provider keeps it; some ask more for this."""
    output: float = 4.0
    ttl: float = 600.0
    """Seconds after which what is not used again is certainly gone."""
    least: int = 1_024
    """Tokens of the shortest prefix that is kept."""
    step: int = 128
    """Tokens by which a prefix is kept."""
    is_known: bool = False
    """Whether the dollars are the model's own."""

    @property
    def read_share(self) -> float:
        """Price of a cached token over that of a fresh one."""
        return self.cached / self.fresh

    @property
    def write_share(self) -> float:
        """Price of a token that is written to the cache over that of a fresh one."""
        return self.written / self.fresh

    def under(self, rules: Economy) -> Self:
        """With what a policy states about the cache."""
        ttl = self.ttl if rules.cache_ttl == "auto" else rules.cache_ttl
        cached = self.cached if rules.cached_price == "auto" else rules.cached_price * self.fresh
        return replace(self, ttl=ttl, cached=cached)

    def cached_prefix(self, shared: int) -> int:
        """How many of ``shared`` leading tokens the provider has kept."""
        return shared // self.step * self.step if shared >= self.least else 0


UNKNOWN_PRICES = Prices()


class Prompt(msgspec.Struct, frozen=True):
    """One request, as it is billed. Tokens are the model's, head included."""

    tokens: int
    cached: int
    written: int | None = None
    """Tokens that are billed as written to the cache; None: all that were not in it."""

    def dollars(self, prices: Prices) -> float:
        """What it costs."""
        written = self.tokens - self.cached if self.written is None else self.written
        fresh = self.tokens - self.cached - written
        return (fresh * prices.fresh + written * prices.written + self.cached * prices.cached) / MILLION
