"""What every Search keeps: found by words, best first, and by nothing that is not asked about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.adapters import search as sqlite_search
from proxy.adapters.search import SqliteSearch
from proxy.cache import CacheMemory
from proxy.errors import SearchUnavailable
from proxy.ports import Passage, Search

SEARCHES: list[Callable[[], Search]] = [SqliteSearch]


@pytest.fixture(params=SEARCHES)
async def search(request: pytest.FixtureRequest) -> AsyncIterator[Search]:
    async with aclosing(request.param()) as made:
        yield made


def passages(*texts: str, read: list[str] | None = None) -> list[Passage]:
    """Passages that are known by their text; `read` takes down which of them were read."""

    def reader(text: str) -> Callable[[], str]:
        def reading() -> str:
            if read is not None:
                read.append(text)
            return text

        return reading

    return [Passage(text.encode(errors="surrogatepass"), reader(text)) for text in texts]


async def found(search: Search, texts: Sequence[str], *terms: str, shelf: str = "shelf") -> list[str]:
    indexes = await search.search(shelf, passages(*texts), " ".join(terms), 10)
    return [texts[index] for index in indexes]


async def test_what_says_more_of_the_terms_comes_first(search: Search) -> None:
    texts = ["a red car", "a red fast car by the sea", "a green boat", "tea"]
    assert await found(search, texts, "boat", "green") == ["a green boat"]
    assert await found(search, texts, "red", "fast") == ["a red fast car by the sea", "a red car"]


async def test_a_rare_word_counts_for_more_than_a_common_one(search: Search) -> None:
    texts = ["red cat", "red dog", "red cow", "blue heron", "blue hen", "grey fox"]
    assert (await found(search, texts, "red", "heron"))[0] == "blue heron"


@pytest.mark.parametrize("term", ["BRIDGES", "bridge", "bridged"])
async def test_case_and_endings_do_not_matter(search: Search, term: str) -> None:
    assert await found(search, ["the bridge of stone", "tea"], term) == ["the bridge of stone"]


async def test_accents_do_not_matter(search: Search) -> None:
    assert await found(search, ["die Brücke", "tea"], "brucke") == ["die Brücke"]


async def test_an_identifier_counts_for_more_where_it_stands_whole(search: Search) -> None:
    texts = ["001 of 2023, inv", "INV-2023-001", "tea"]
    assert await found(search, texts, "INV-2023-001") == ["INV-2023-001", "001 of 2023, inv"]


async def test_scripts_without_spaces_are_searched_by_pairs_of_characters(search: Search) -> None:
    assert await found(search, ["東京タワーは高い", "京の東"], "東京") == ["東京タワーは高い"]


async def test_no_more_are_given_than_were_asked_for(search: Search) -> None:
    texts = passages(*(f"red {number}" for number in range(9)))
    assert len(await search.search("shelf", texts, "red", 4)) == 4


@pytest.mark.parametrize("query", ["", "unheard", '"', "* OR blue", "NEAR(blue boat)", "NOT tea", "\ud800"])
async def test_nothing_is_found_where_nothing_of_the_question_is_said(search: Search, query: str) -> None:
    assert await search.search("shelf", passages("a red car"), query, 5) == []


async def test_no_passages_are_no_hits(search: Search) -> None:
    assert await search.search("shelf", [], "red", 5) == []


@pytest.mark.parametrize("text", ["red \ud800 car", "nul\0 red", "", "👩‍👩‍👧‍👦 red"])
async def test_odd_texts_can_be_searched(search: Search, text: str) -> None:
    hits = await search.search("shelf", passages(text), "red", 5)
    assert hits == ([0] if "red" in text else [])


async def test_what_was_searched_before_is_not_read_again(search: Search) -> None:
    read: list[str] = []
    await search.search("shelf", passages("a red car", "tea", read=read), "red", 5)
    await search.search("shelf", passages("a red car", "tea", "a red hen", read=read), "red", 5)
    assert read == ["a red car", "tea", "a red hen"]


async def test_shelves_know_nothing_of_each_other(search: Search) -> None:
    await found(search, ["a red car"], "red", shelf="one")
    assert await found(search, ["a blue car"], "red", shelf="two") == []


async def test_searches_of_one_shelf_at_the_same_time_do_not_mix(search: Search) -> None:
    branches = [[f"the {word} car", "tea"] for word in ("red", "blue", "green", "grey")]
    asked = [found(search, texts, texts[0].split()[1]) for texts in branches for _ in range(5)]
    answers = await asyncio.gather(*asked)
    assert answers == [[texts[0]] for texts in branches for _ in range(5)]


words = st.sampled_from("red blue car boat bridge stone river sea hen fox".split())
texts_of_words = st.lists(st.lists(words, min_size=1, max_size=6).map(" ".join), max_size=8, unique=True)


questions = st.lists(words, min_size=1, max_size=3).map(" ".join)


@given(states=st.lists(texts_of_words, min_size=2, max_size=6), query=questions)
@settings(max_examples=100)
def test_the_answer_rests_on_these_passages_alone(states: list[list[str]], query: str) -> None:
    async def all_of_them() -> None:
        for make in SEARCHES:
            async with aclosing(make()) as used:
                for texts in states:
                    again = await used.search("shelf", passages(*texts), query, 5)
                    async with aclosing(make()) as fresh:
                        assert again == await fresh.search("shelf", passages(*texts), query, 5)

    asyncio.run(all_of_them())


# --- SQLite's


async def test_a_shelf_that_was_not_used_for_longest_is_forgotten() -> None:
    read: list[str] = []
    async with aclosing(SqliteSearch(CacheMemory(300_000, part=1))) as search:  # of two indexes
        for shelf in ("one", "two", "one", "three", "one", "two"):
            await search.search(shelf, passages(f"red {shelf}", read=read), "red", 5)
    assert read == ["red one", "red two", "red three", "red two"]


async def test_where_passages_change_again_and_again_those_that_stay_are_not_read_again() -> None:
    read: list[str] = []
    async with aclosing(SqliteSearch()) as search:
        for changed in ("a red car", "a red hen", "a red fox", "a red cow"):
            hits = await search.search("shelf", passages("tea", "milk", changed, read=read), "red", 5)
            assert hits == [2]
    assert read == ["tea", "milk", "a red car", "tea", "milk", "a red hen", "a red fox", "a red cow"]


async def test_a_passage_that_cannot_be_read_leaves_the_others_as_they_were() -> None:
    def reading() -> str:
        raise RuntimeError("it is gone")

    async with aclosing(SqliteSearch()) as search:
        assert await search.search("shelf", passages("a red car"), "red", 5) == [0]
        with pytest.raises(RuntimeError, match="gone"):
            await search.search("shelf", [*passages("a red hen"), Passage(b"odd", reading)], "red", 5)
        assert await search.search("shelf", passages("a red car", "a red hen"), "hen", 5) == [1]


async def test_of_too_many_passages_the_newest_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_search, "MOST_PASSAGES", 2)
    async with aclosing(SqliteSearch()) as search:
        assert await search.search("shelf", passages("red 1", "red 2", "red 3"), "1 2 3", 5) == [1, 2]


async def test_a_build_without_full_text_search_cannot_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_search, "_SCHEMA", "CREATE VIRTUAL TABLE passages USING fts0(words)")
    async with aclosing(SqliteSearch()) as search:
        with pytest.raises(SearchUnavailable):
            await search.search("shelf", passages("red"), "red", 5)
