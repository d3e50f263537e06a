"""What every TokenCounter keeps, and what tiktoken's keeps besides."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public  # pyright: ignore[reportMissingTypeStubs]

from proxy.adapters import tokens as adapter
from proxy.adapters.tokens import TiktokenCounter, VocabularyError, o200k_base, pieces, ranks_of
from proxy.ports import TokenCounter

COUNTERS: list[Callable[[], TokenCounter]] = [TiktokenCounter]

ODD = [
    "\ud800",
    "a\udfffb" * 50,
    "\ud83d\ude00",
    "\0",
    "nul\0in the middle",
    "שלום עולם",
    "مرحبا بالعالم",
    "zero\u200bwidth\u200d\ufeff",
    "👩‍👩‍👧‍👦 \U0001d518\U0001d52b",
    "line\u2028separator\u2029",
    "\r\n\r\n",
    " ",
]

# Text of every kind of character that the encoding tells apart.
alphabet = st.sampled_from(list("aZé漢ע\u0301 \n\r\t_.,'/9٣😀\u3000\u2028\0"))
texts = st.text(alphabet, max_size=400)
any_text = st.text(st.characters(), max_size=200)  # lone surrogates included


@pytest.fixture(scope="module", params=COUNTERS)
def counter(request: pytest.FixtureRequest) -> TokenCounter:
    return request.param()


async def test_it_can_be_made_ready_more_than_once(counter: TokenCounter) -> None:
    await counter.ready()
    await counter.ready()


def test_an_empty_text_has_no_tokens(counter: TokenCounter) -> None:
    assert counter.count("") == 0


@pytest.mark.parametrize("text", ODD)
def test_odd_characters_count_and_never_raise(counter: TokenCounter, text: str) -> None:
    assert counter.count(text) > 0


@given(text=any_text)
def test_a_text_has_at_least_one_token_and_at_most_one_a_byte(counter: TokenCounter, text: str) -> None:
    assert bool(text) <= counter.count(text) <= len(text.encode(errors="surrogatepass"))


@pytest.mark.parametrize("special", ["<|endoftext|>", "<|endofprompt|>", "<|im_start|>"])
def test_a_special_token_is_ordinary_text(counter: TokenCounter, special: str) -> None:
    assert counter.count(special) > 1
    assert counter.count(f"before {special} after") > counter.count("before  after")


@given(left=texts, right=texts)
def test_counts_are_additive_but_for_the_seam(counter: TokenCounter, left: str, right: str) -> None:
    together, apart = counter.count(left + right), counter.count(left) + counter.count(right)
    assert abs(together - apart) <= 4 + apart // 50


@given(text=texts)
def test_the_same_text_counts_the_same(counter: TokenCounter, text: str) -> None:
    assert counter.count(text) == counter.count(text)


@given(several=st.lists(any_text, max_size=8))
async def test_counting_all_is_counting_each(counter: TokenCounter, several: list[str]) -> None:
    assert await counter.count_all(several) == [counter.count(text) for text in several]


async def test_large_texts_together_count_as_each_does(counter: TokenCounter) -> None:
    large = ["many words " * 9_000, "", "\ud800" * 100, "ünïcode " * 9_000]
    assert await counter.count_all(large) == [counter.count(text) for text in large]


@pytest.mark.parametrize("character", [" ", "\t", "\u3000", "a", "漢", ".", "\0", "\n", "😀"])
def test_a_million_of_one_character_count_and_never_raise(counter: TokenCounter, character: str) -> None:
    assert 1_000 <= counter.count(character * 1_000_000) <= 4_000_000


# -- tiktoken's own --------------------------------------------------------------------------------


def whole(text: str) -> int:
    return len(o200k_base().encode(text, disallowed_special=()))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("hello world", 2),
        ("tiktoken is great!", 6),
        ("お誕生日おめでとう", 8),
        ("2 + 2 = 4", 7),
        ("<|endoftext|>", 7),
    ],
)
def test_known_texts_count_what_o200k_counts(text: str, tokens: int) -> None:
    assert TiktokenCounter().count(text) == tokens == whole(text)


def test_ordinary_text_below_a_piece_is_counted_exactly() -> None:
    text = Path(__file__).read_text(encoding="utf-8") * 12
    assert len(text) > 65_000
    assert TiktokenCounter().count(text[:65_000]) == whole(text[:65_000])


def test_ordinary_text_of_many_pieces_is_counted_exactly() -> None:
    text = Path(__file__).read_text(encoding="utf-8") * 20
    assert len(list(pieces(text))) > 2
    assert TiktokenCounter().count(text) == whole(text)


def test_chinese_prose_without_a_space_is_counted_to_within_a_percent() -> None:
    text = "敏捷的棕色狐狸跳过了懒狗然后它在树下睡着了。" * 8_000
    assert len(list(pieces(text))) > 2
    assert abs(TiktokenCounter().count(text) - whole(text)) <= whole(text) // 100


@given(st.lists(st.text(st.sampled_from(list("abZé漢.,'/_9\n\t")), min_size=1, max_size=12), max_size=80))
@settings(max_examples=300)
def test_cutting_between_words_changes_no_count(words: list[str]) -> None:
    text = " ".join(words)
    cut = list(pieces(text, size=64, run=40))
    assert sum(whole(piece) for piece in cut) == whole(text)


@given(texts, st.integers(1, 50), st.integers(1, 50))
def test_pieces_are_the_text_and_bounded(text: str, size: int, run: int) -> None:
    cut = list(pieces(text, size=size, run=run))
    assert "".join(cut) == text
    assert all(0 < len(piece) <= max(size, run) for piece in cut)


@given(st.sampled_from("a.😀\n漢_ "), st.integers(0, 500), st.integers(0, 60))
def test_no_piece_holds_a_run_of_twice_the_limit(kind: str, length: int, before: int) -> None:
    for piece in pieces("9" * before + kind * length, size=1_000, run=32):
        assert piece.count(kind) < 64


async def test_large_work_leaves_the_event_loop_and_small_work_does_not() -> None:
    seen: list[str] = []

    class Watched(TiktokenCounter):
        def _count_all(self, texts: Sequence[str]) -> list[int]:
            seen.append(threading.current_thread().name)
            return super()._count_all(texts)

    counter = Watched()
    await counter.count_all(["small"])
    await counter.count_all(["large " * 10_000])
    assert seen[0] == threading.current_thread().name
    assert seen[1].startswith("tokens")


def test_the_vocabulary_is_read_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the vocabulary ships with the package")

    monkeypatch.setattr(socket, "socket", refuse)
    assert o200k_base.__wrapped__().n_vocab == 200_019


def test_the_encoding_is_tiktokens_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_download(*_: object, **__: object) -> dict[bytes, int]:
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", no_download)
    published = openai_public.o200k_base()
    ours = o200k_base()
    assert ours._pat_str == published["pat_str"]  # pyright: ignore[reportPrivateUsage]
    assert ours._special_tokens == published["special_tokens"]  # pyright: ignore[reportPrivateUsage]


def test_a_damaged_vocabulary_fails_loudly() -> None:
    with pytest.raises(VocabularyError, match="reinstall"):
        ranks_of(gzip.compress(b"IQ== 0\n"))


def test_the_vocabulary_names_its_licence() -> None:
    assert adapter.__file__
    assert "MIT License" in (Path(adapter.__file__).parent / "LICENSE").read_text()
