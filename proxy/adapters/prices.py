"""What `genai-prices` knows about models, from the snapshot that ships with it.

Its updater is never started. Names come from clients, so nothing here grows with them: the package's own
lookup remembers every name that it ever missed, and is gone around.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_prices.types import Provider

_LONGEST_NAME = 256  # characters


def load() -> None:
    """Read the snapshot now (0.2 to 0.4 s, mostly the import): in a thread, before the first request."""
    _providers()


def context_window(model: str) -> int | None:
    """Tokens of the model's context window, or None where it is not known.

    A provider's prefix ("openai/gpt-4o", "openrouter/openai/gpt-4o") chooses the provider if it is one.
    """
    return _context_window(model.lower()) if len(model) <= _LONGEST_NAME else None


@lru_cache(maxsize=1024)
def _context_window(model: str) -> int | None:
    windows = (_window(provider, name) for name, provider in _candidates(model))
    return next(filter(None, windows), None)


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


def _window(provider: Provider, model: str) -> int | None:
    found = provider.find_model(model, all_providers=_providers())
    return found.context_window if found else None


@cache
def _providers() -> list[Provider]:
    # Imported when first needed: it takes longer than all else that a short command imports.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    return get_snapshot().providers
