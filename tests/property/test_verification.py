"""A summary of the source's own sentences always passes; one that plants something exact never does."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.summaries.extractive import extractive_summary
from proxy.core.summaries.source import Piece, source_of
from proxy.core.summaries.verification import UNFOUNDED, fault_in, unfounded
from proxy.core.text.words import sentences_in
from tests.support.conversations import (
    Sent,
    assistant,
    calling,
    chain_from,
    count,
    result,
    user,
    valid_conversations,
)

RULES = (
    "Never deploy on Fridays.",
    "Always answer in English, please.",
    "Do not spend more than $1,500 on it.",
    "Bitte niemals die Datenbank in /var/lib/data löschen!",
    "El límite es de 3.500,50 euros; no lo superes nunca.",
    "Il ne faut jamais toucher au fichier config/prod.yaml.",
    "金曜日にはデプロイしないでください。",
    "绝对不要删除 orders_2024 这张表。",
    "The ticket is ORD-12345 (see https://example.com/t/12345?x=1).",
    "Mail anna.smith@example.com at 14:30 on 2026-03-05.",
)
REPORTS = (
    "I ran `pytest -k login`: 3 of 17 failed in 12.37 s.",
    "Commit a1b2c3d4e5 fixed getUserData in src/app/main.py, version 2.10.4.",
    "Deployed to staging-3; about 12k users were moved.",
    "Fertig: 1.234 Zeilen in 5 Dateien geändert.",
    '{"id": "res_9x8y", "total": 1234.5, "ok": true}',
    "KeyError at line 42: 'user_id' is missing\\nTraceback ends.",
)
_said = st.lists(st.sampled_from(RULES), min_size=1, max_size=4).map(" ".join)
_reported = st.lists(st.sampled_from(REPORTS), min_size=1, max_size=3).map("\n".join)


@st.composite
def talks(draw: st.DrawFn) -> list[Sent]:
    found: list[Sent] = []
    for number in range(draw(st.integers(1, 5))):
        found.append(user(draw(_said)))
        if draw(st.booleans()):
            arguments = f'{{"path": "src/f{number}.py"}}'
            found += [calling(f"c{number}", arguments=arguments), result(f"c{number}", draw(_reported))]
        found.append(assistant(draw(_reported)))
    return found


def source_in(messages: list[Sent]) -> Piece:
    chain = chain_from(messages)
    situation = Situation(chain, EMPTY, Policy(), Budget(10_000, 1.0, 0), count)
    return source_of(situation, (0, len(chain)), 10_000).piece


@given(talks(), st.randoms(use_true_random=False))
def test_the_sources_own_sentences_pass_in_any_order(talk: list[Sent], chance: random.Random) -> None:
    piece = source_in(talk)
    sentences = [each for block in piece.blocks for each in sentences_in(block.text)]
    chosen = chance.sample(sentences, min(len(sentences), 6))
    assert fault_in("\n".join(chosen), piece.evidence()) is None
    assert fault_in(" ".join(f"**{each}**" for each in chosen), piece.evidence()) is None


@given(valid_conversations(most=3))
def test_any_text_passes_as_its_own_summary(messages: list[Sent]) -> None:
    piece = source_in(messages)
    for block in piece.blocks[:3]:
        assert fault_in(block.text, piece.evidence()) is None


@given(talks(), st.integers(20, 10_000))
def test_a_digest_fits_quotes_and_passes(talk: list[Sent], room: int) -> None:
    piece = source_in(talk)
    text = extractive_summary(piece.by_role, room, count)
    assert count(text) <= room
    quoted = [line.split(': "', 1)[1][:-1] for line in text.splitlines()]
    told = " ".join(piece.text.replace('"', " ").split())
    assert all(" ".join(each.removesuffix("…").split()) in told for each in quoted)
    assert list(unfounded(text, piece.evidence())) == []


_fresh = st.integers(7_000_000, 9_999_999)
PLANTS = (
    "It cost ${n}.",
    "Order {n} was shipped.",
    "The file is src/{w}/main.py.",
    "The id is {w}-{n}.",
    "See https://example.com/{w}/{n}.",
    "Mail went to {w}@example.com.",
    "There were {n} of them in /srv/{w}.",
    "{w}_{w}() raised it.",
    "共有{n}个。",
    "Das waren {n} Euro.",
)


@given(talks(), st.sampled_from(PLANTS), _fresh, st.sampled_from(["qzx", "vbnm", "plok"]), st.integers(0, 3))
def test_what_is_planted_among_honest_sentences_never_passes(
    talk: list[Sent], plant: str, number: int, word: str, place: int
) -> None:
    piece = source_in(talk)
    honest = [each for block in piece.blocks for each in sentences_in(block.text)][:4]
    honest.insert(place, plant.format(n=number, w=word))
    assert fault_in("\n".join(honest), piece.evidence()) == UNFOUNDED


NUMBERS = "Order 48213 cost $9,176.54, in src/v71926/main.py, as res_6x8y52 said on 2041-12-30."


@given(talks(), st.integers(0, 100))
def test_one_wrong_digit_never_passes(talk: list[Sent], place: int) -> None:
    piece = source_in([*talk, user(NUMBERS)])
    digits = [at for at, each in enumerate(NUMBERS) if each.isdigit() and not 78 <= at <= 87]
    at = digits[place % len(digits)]
    wrong = NUMBERS[:at] + str((int(NUMBERS[at]) + 5) % 10) + NUMBERS[at + 1 :]
    assert fault_in(NUMBERS, piece.evidence()) is None
    assert list(unfounded(wrong, piece.evidence()))
