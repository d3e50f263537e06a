"""What `genai-prices` knows about models, windows and prices, from the snapshot that ships with it.

Its updater is never started. Names come from clients, so nothing here grows with them: the package's own
lookup remembers every name that it ever missed, and is gone around.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from proxy.core.budget.prices import UNKNOWN_PRICES, Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider, TieredPrices

_LONGEST_NAME = 256  # characters
_KEPT_FOR = {"*claude*": 300.0, "*deepseek*": 6 * 3_600.0}
"""Seconds after which providers have certainly forgotten an idle prefix, by their models' names.

Anthropic says five minutes, DeepSeek "a few hours", OpenAI five to ten minutes; for all others ten stand.
"""


def load() -> None:
    """Read the snapshot now (0.2 to 0.4 s, mostly the import): in a thread, before the first request."""
    _providers()


def context_window(model: str) -> int | None:
    """Tokens of the model's context window, or None where it is not known.

    A provider's prefix ("openai/gpt-4o", "openrouter/openai/gpt-4o") chooses the provider if it is one.
    """
    return _known(model)[0]


def prices_of(model: str) -> Prices:
    """What the model's tokens cost; the defaults where it is not known, or costs nothing."""
    return _known(model)[1]


def _known(model: str) -> tuple[int | None, Prices]:
    return _looked_up(model.lower()) if len(model) <= _LONGEST_NAME else (None, UNKNOWN_PRICES)


@lru_cache(maxsize=1024)
def _looked_up(model: str) -> tuple[int | None, Prices]:
    """The first window, and the first prices, of those who know the model."""
    found = [provider.find_model(name, all_providers=_providers()) for name, provider in _candidates(model)]
    windows = (info.context_window for info in found if info and info.context_window)
    priced = (prices for info in found if info and (prices := _priced(info, model)))
    return next(windows, None), next(priced, UNKNOWN_PRICES)


def _priced(info: ModelInfo, model: str) -> Prices | None:
    """A model that has no price for cached tokens gets no discount: its provider keeps nothing."""
    listed = info.get_prices(datetime.now(UTC))
    fresh = _amount(listed.input_mtok)
    if not fresh:
        return None
    return Prices(
        fresh=fresh,
        cached=_amount(listed.cache_read_mtok) or fresh,
        written=_amount(listed.cache_write_mtok) or fresh,
        output=_amount(listed.output_mtok) or fresh,
        ttl=next((ttl for name, ttl in _KEPT_FOR.items() if fnmatchcase(model, name)), UNKNOWN_PRICES.ttl),
        is_known=True,
    )


def _amount(price: Decimal | TieredPrices | None) -> float:
    """Dollars for a million tokens; of a price by tiers the first."""
    if price is None:
        return 0.0
    return float(price if isinstance(price, Decimal) else price.base)


def _candidates(model: str) -> Iterator[tuple[str, Provider]]:
    """Whom to ask for which name, the most telling first."""
    providers = _providers()
    prefix, _, rest = model.partition("/")
    if rest and (named := next((provider for provider in providers if provider.id == prefix), None)):
        yield rest, named
    bare = model.rpartition("/")[2]
    if bare.startswith("ft:"):  # ft:gpt-4o-2024-08-06:organisation::id, tuned from its second part
        bare = bare.split(":")[1]
    for provider in providers:
        if provider.model_match is not None and provider.model_match.is_match(bare):
            yield bare, provider
    # Some names escape the rule by which a provider knows its own (chatgpt-4o-latest). We speak OpenAI's API.
    yield from ((bare, provider) for provider in providers if provider.id == "openai")


@cache
def _providers() -> list[Provider]:
    # Imported when first needed: it takes longer than all else that a short command imports.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    return get_snapshot().providers
