"""Context windows and prices of models, from the data that ships with the package `genai-prices`.

Its updater is never started. The package's own lookup is bypassed, because it stores every name that it did
not find: names come from clients, and nothing here may grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from proxy.core.budget.prices import UNKNOWN_PRICES, Prices

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

_LONGEST_NAME = 256  # characters
_PERIOD = 1_800
"""Seconds for which prices stay: those that depend on the date or the time of day change on the half hour."""
_VARIANTS = frozenset({"batch", "beta", "exacto", "extended", "floor", "nitro", "online", "thinking"})
"""Tags by which OpenRouter runs the same model otherwise."""
_KEPT_FOR = {"*claude*": 300.0, "*deepseek*": 6 * 3_600.0}
"""Seconds after which an idle prefix has certainly left the provider's prompt cache, by model name pattern.

Anthropic states five minutes, DeepSeek "a few hours", OpenAI five to ten minutes; for all others, ten minutes
are assumed.
"""


def context_window(model: str) -> int | None:
    """Return the size of the model's context window in tokens; None if it is not known.

    A prefix that names a provider ("openai/gpt-4o", "openrouter/openai/gpt-4o") selects that provider.
    """
    return _known(model)[0]


def prices_of(model: str) -> Prices:
    """Return the present prices of the model's tokens; the defaults if it is not known, or costs nothing."""
    return _known(model)[1]


def _known(model: str) -> tuple[int | None, Prices]:
    if len(model) > _LONGEST_NAME:
        return None, UNKNOWN_PRICES
    return _looked_up(model.lower(), int(datetime.now(UTC).timestamp() // _PERIOD))


@lru_cache(maxsize=1024)
def _looked_up(model: str, period: int) -> tuple[int | None, Prices]:
    """Return the first context window found among the providers of the model, and the prices of the first.

    What that one lists without a price is free there, whatever another asks for it. Prices are those of the
    period's begin, so that all workers have the same whenever they first look.
    """
    known: list[ModelInfo] = []
    for name, provider in _candidates(model):
        # Local servers give a model's sizes as tags (deepseek-r1:8b), and OpenRouter its free copies; that is
        # not what the provider of the bare name sells. So a tag must be listed too, unless it is a version or
        # variant.
        base, _, tag = name.partition(":")
        found = provider.find_model(name, all_providers=load())
        is_other = tag and tag not in _VARIANTS and not tag.partition(":")[0].isdigit()
        if found is not None and not (is_other and found.is_match(base)):
            known.append(found)
    window = next((info.context_window for info in known if info.context_window), None)
    if known:
        listed = known[0].get_prices(datetime.fromtimestamp(period * _PERIOD, UTC))
        if _amount(listed.input_mtok, 0):
            lives = (ttl for name, ttl in _KEPT_FOR.items() if fnmatchcase(model, name))
            return window, _prices(listed, next(lives, UNKNOWN_PRICES.ttl))
    return window, UNKNOWN_PRICES


def _prices(listed: ModelPrice, ttl: float) -> Prices:
    """Return the listed prices, by the length of the prompt."""
    amounts = (listed.input_mtok, listed.cache_read_mtok, listed.cache_write_mtok, listed.output_mtok)
    tiered = [amount for amount in amounts if amount is not None and not isinstance(amount, Decimal)]

    def longer_than(tokens: int) -> Prices:
        fresh, *others = (_amount(amount, tokens) for amount in amounts)
        cached, written, output = (each or fresh for each in others)  # without a price: no discount
        return Prices(fresh=fresh, cached=cached, written=written, output=output, ttl=ttl, is_known=True)

    starts = sorted({tier.start for amount in tiered for tier in amount.tiers})
    return replace(longer_than(0), tiers=tuple((start, longer_than(start)) for start in starts))


def _amount(price: Decimal | TieredPrices | None, longer_than: int) -> float:
    """Return the price for prompts of more than so many tokens, in dollars per million tokens."""
    if price is None or isinstance(price, Decimal):
        return float(price or 0)
    reached = (tier.price for tier in reversed(price.tiers) if tier.start <= longer_than)
    return float(next(reached, price.base))


def _candidates(model: str) -> Iterator[tuple[str, Provider]]:
    """Yield model names and the providers to look them up at, the most specific first."""
    providers = load()
    prefix, _, rest = model.partition("/")
    if rest and (named := next((provider for provider in providers if provider.id == prefix), None)):
        yield rest, named
    bare = model.rpartition("/")[2]
    if bare.startswith("ft:"):  # ft:gpt-4o-2024-08-06:organisation::id; the second part is the base model
        bare = bare.split(":")[1]
    for provider in providers:
        if provider.model_match is not None and provider.model_match.is_match(bare):
            yield bare, provider
    # OpenAI's own pattern misses some of its names (chatgpt-4o-latest), and the API here is OpenAI's.
    yield from ((bare, provider) for provider in providers if provider.id == "openai")


@cache
def load() -> list[Provider]:
    """Load the snapshot (0.2 to 0.4 s, mostly the import). Call it in a thread, before the first request."""
    # Imported when first needed: it takes longer than all other imports of a short command together.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    return get_snapshot().providers
