"""The prices of a model's tokens, and the rules of its provider's prompt cache.

The numbers are looked up (:mod:`proxy.adapters.prices`) or stated in a policy's ``[economy]``. They are used
by :mod:`proxy.core.economics.economy` and :mod:`proxy.core.economics.simulate`.
"""

from typing import Self

import msgspec
from msgspec.structs import replace

from proxy.core.policy.sections import Economy

MILLION = 1_000_000


class Prices(msgspec.Struct, frozen=True):
    """Prices in dollars per million tokens, and the rules of the prompt cache.

    The defaults are for a model of which nothing is known. They assume a cache, because local servers keep
    prefixes too, and cached tokens cost them hardly any time.
    """

    fresh: float = 1.0
    cached: float = 0.1
    """Price of prompt tokens that the provider has cached."""
    written: float = 1.0
    """Price of fresh prompt tokens that are written to the cache; some providers charge more for these."""
    output: float = 4.0
    ttl: float = 600.0
    """Seconds after which an unused cache entry is certainly gone."""
    least: int = 1_024
    """Tokens of the shortest prefix that is cached."""
    step: int = 128
    """Prefixes are cached in multiples of this many tokens."""
    is_known: bool = False
    """Whether the prices are the model's own, not defaults."""
    tiers: tuple[tuple[int, Self], ...] = ()
    """The prices of requests whose prompts have more than so many tokens, in ascending order.

    They apply to all tokens of such a request, and have no tiers of their own.
    """

    @property
    def read_share(self) -> float:
        """Price of a cached token divided by that of a fresh one."""
        return self.cached / self.fresh

    @property
    def write_share(self) -> float:
        """Price of a token written to the cache divided by that of a fresh one."""
        return self.written / self.fresh

    def at(self, tokens: float) -> Self:
        """Return the prices of a request whose prompt has so many tokens."""
        return next((prices for start, prices in reversed(self.tiers) if tokens > start), self)

    def under(self, rules: Economy) -> Self:
        """Return these prices with what a policy states about the cache."""
        ttl = self.ttl if rules.cache_ttl == "auto" else rules.cache_ttl
        cached = self.cached if rules.cached_price == "auto" else rules.cached_price * self.fresh
        tiers = tuple((start, prices.under(rules)) for start, prices in self.tiers)
        return replace(self, ttl=ttl, cached=cached, tiers=tiers)

    def cached_prefix(self, shared: int) -> int:
        """Number of ``shared`` leading tokens that the provider has cached."""
        return shared // self.step * self.step if shared >= self.least else 0


UNKNOWN_PRICES = Prices()


class Prompt(msgspec.Struct, frozen=True):
    """The prompt of one request, or of several, as it is billed. Tokens are the model's, with the head."""

    tokens: int
    cached: int
    written: int | None = None
    """Tokens that are billed as written to the cache; None: all that were not cached."""
    requests: int = 1
    """Number of requests; the price of each is that of one of average length."""

    def dollars(self, prices: Prices, output: int = 0) -> float:
        """Cost of the prompt in dollars, and of ``output`` tokens that answer it."""
        prices = prices.at(self.tokens / max(self.requests, 1))
        written = self.tokens - self.cached if self.written is None else self.written
        fresh = self.tokens - self.cached - written
        read = fresh * prices.fresh + written * prices.written + self.cached * prices.cached
        return (read + output * prices.output) / MILLION
