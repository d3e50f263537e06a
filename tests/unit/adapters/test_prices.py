"""Context windows from the snapshot that ships with genai-prices."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot

from proxy.adapters import prices
from proxy.core.budget.prices import Prompt


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o", 128_000),
        ("gpt-4o-2024-08-06", 128_000),
        ("chatgpt-4o-latest", 128_000),
        ("gpt-5", 400_000),
        ("o3", 200_000),
        ("claude-sonnet-4-5", 200_000),
    ],
)
def test_a_known_model_has_its_window(model: str, window: int) -> None:
    assert prices.context_window(model) == window


@pytest.mark.parametrize("prefix", ["openai/", "azure/", "openrouter/openai/", "somebody-s-gateway/"])
def test_a_providers_prefix_does_not_hide_the_model(prefix: str) -> None:
    assert prices.context_window(prefix + "gpt-4o") == 128_000


def test_a_fine_tuned_model_has_the_window_of_its_base() -> None:
    assert prices.context_window("ft:gpt-4o-2024-08-06:acme::id") == 128_000


def test_case_does_not_matter() -> None:
    assert prices.context_window("GPT-5") == 400_000


UNKNOWN = ["", "/", "openai/", "smollm2", "no-such-model", "gpt-4o\0", "\ud800", "g" * 300]


@pytest.mark.parametrize("model", UNKNOWN, ids=ascii)
def test_an_unknown_model_has_no_window(model: str) -> None:
    assert prices.context_window(model) is None


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the snapshot is offline")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    prices.load()
    assert prices.context_window("mistral/offline-by-design") is None
    assert prices.context_window("gpt-4.1-mini") == 1_000_000


def test_names_from_clients_leave_nothing_behind_but_a_bounded_cache() -> None:
    for number in range(2_000):
        prices.context_window(f"invented-{number}")
    assert prices._looked_up.cache_info().currsize <= 1024  # pyright: ignore[reportPrivateUsage]
    assert not get_snapshot()._provider_misses  # pyright: ignore[reportPrivateUsage]


# --- what tokens cost ---


@pytest.mark.parametrize(
    ("model", "cached", "written", "ttl"),
    [
        ("gpt-4o", 0.5, 1.0, 600.0),
        ("o3", 0.25, 1.0, 600.0),
        ("gpt-5", 0.1, 1.0, 600.0),
        ("azure/gpt-5-mini", 0.1, 1.0, 600.0),
        ("claude-sonnet-4-5", 0.1, 1.25, 300.0),
        ("openrouter/anthropic/claude-sonnet-4-5", 0.1, 1.25, 300.0),
        ("deepseek-chat", 0.26, 1.0, 21_600.0),
    ],
)
def test_a_known_model_has_the_prices_and_the_cache_of_its_provider(
    model: str, cached: float, written: float, ttl: float
) -> None:
    found = prices.prices_of(model)
    assert found.is_known
    assert found.read_share == pytest.approx(cached, abs=0.01)
    assert found.write_share == pytest.approx(written)
    assert found.ttl == ttl
    assert found.output > found.fresh > 0


def test_a_model_that_is_listed_without_a_cached_price_has_no_discount() -> None:
    assert prices.prices_of("gpt-4").read_share == 1.0


@pytest.mark.parametrize("model", UNKNOWN, ids=ascii)
def test_an_unknown_model_is_taken_for_one_whose_cached_tokens_cost_a_tenth(model: str) -> None:
    found = prices.prices_of(model)
    assert not found.is_known
    assert found.read_share == pytest.approx(0.1)


@dataclass
class Calendar:
    """A clock that stands."""

    time: datetime

    def now(self, _: tzinfo) -> datetime:
        return self.time

    fromtimestamp = datetime.fromtimestamp


@pytest.mark.parametrize(
    "model", ["deepseek/deepseek-chat", "deepseek/deepseek-v4-pro", "google/gemini-4-argon"]
)
def test_a_price_is_at_each_hour_what_the_list_says_for_it(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, _, name = model.partition("/")
    calendar = Calendar(datetime(2026, 11, 30, tzinfo=UTC))
    monkeypatch.setattr(prices, "datetime", calendar)
    for _ in range(2 * 48):
        used = Usage(input_tokens=1_000_000, output_tokens=1_000)
        begin, end = calendar.time, calendar.time + timedelta(minutes=29)
        listed = calc_price(used, name, provider_id=provider, genai_request_timestamp=end).total_price
        for now in (begin, end):
            calendar.time = now
            found = Prompt(1_000_000, 0, 0).dollars(prices.prices_of(model), 1_000)
            assert found == pytest.approx(float(listed))
        calendar.time = begin + timedelta(minutes=30)


@pytest.mark.parametrize("prefix", ["", "openrouter/"])
def test_a_free_copy_of_a_model_has_not_the_price_of_the_model(prefix: str) -> None:
    listed = [model.id for provider in prices.load() for model in provider.models]
    free = [prefix + name for name in listed if name.endswith(":free")]
    assert len(free) > 20
    assert not [name for name in free if prices.prices_of(name).is_known]


@pytest.mark.parametrize(
    ("of_the_provider", "elsewhere"),
    [
        ("deepseek-r1", "deepseek-r1:8b"),
        ("deepseek-r1:nitro", "deepseek-r1:latest"),
        ("deepseek/deepseek-r1:online", "ollama/deepseek-r1:70b-llama-distill-q4_K_M"),
        ("deepseek-ai/deepseek-r1", "deepseek-ai/deepseek-r1:novita"),
        ("claude-3-7-sonnet:thinking", "claude-3-7-sonnet:local"),
    ],
)
def test_a_model_that_another_server_runs_under_a_tag_has_neither_price_nor_window_of_the_provider(
    of_the_provider: str, elsewhere: str
) -> None:
    assert prices.prices_of(of_the_provider).is_known
    assert prices.context_window(of_the_provider)
    assert not prices.prices_of(elsewhere).is_known
    assert prices.context_window(elsewhere) is None


@pytest.mark.parametrize(
    "model",
    ["aws/amazon.nova-lite-v1:0", "cerebras:gpt-oss-120b", "ft:gpt-4o:acme::id", "deepseek-chat:beta"],
)
def test_a_tag_that_is_a_version_a_variant_or_part_of_a_listed_name_hides_no_price(model: str) -> None:
    assert prices.prices_of(model).is_known


@pytest.mark.parametrize("model", ["github-copilot/gpt-4o", "openrouter/gemini-2.5-pro-exp-03-25"])
def test_what_is_free_where_it_is_asked_for_has_no_price_of_another_provider(model: str) -> None:
    assert prices.prices_of(model.partition("/")[2]).is_known
    assert not prices.prices_of(model).is_known


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5.4"),
        ("google", "gemini-2.5-pro"),
        ("anthropic", "claude-sonnet-4-5"),
        ("x-ai", "grok-4.20"),
        ("openrouter", "qwen/qwen3.7-flash"),
        ("openrouter", "google/gemini-3.1-pro-preview"),
    ],
)
@pytest.mark.parametrize("tokens", [1_000, 32_001, 199_999, 200_000, 200_001, 272_000, 272_001, 400_000])
def test_a_request_costs_what_the_list_says_for_the_length_of_its_prompt(
    provider: str, model: str, tokens: int
) -> None:
    used = Usage(input_tokens=tokens, cache_read_tokens=900, output_tokens=1_000)
    listed = calc_price(used, model, provider_id=provider).total_price
    found = prices.prices_of(f"{provider}/{model}")
    assert Prompt(tokens, 900, 0).dollars(found, 1_000) == pytest.approx(float(listed))
