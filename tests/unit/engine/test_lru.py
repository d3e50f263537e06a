"""A mapping that forgets what was not used for longest."""

from __future__ import annotations

from proxy.engine.lru import Lru


def kept(entries: Lru[str, str], keys: str) -> str:
    return "".join(key for key in keys if entries.get(key) is not None)


def test_what_was_not_used_for_longest_goes_first() -> None:
    entries: Lru[str, str] = Lru(2)
    entries.put("a", "1")
    entries.put("b", "2")
    entries.get("a")
    entries.put("c", "3")
    assert kept(entries, "abc") == "ac"


def test_where_entries_have_a_weight_all_together_are_bounded() -> None:
    entries: Lru[str, str] = Lru(5, len)
    for key, value in (("a", "11"), ("b", "22"), ("a", "1"), ("c", "333")):
        entries.put(key, value)
    assert kept(entries, "abc") == "ac"
    entries.drop("c")
    entries.put("d", "4444")
    assert kept(entries, "acd") == "ad"


def test_an_entry_that_is_heavier_than_all_may_be_is_not_kept() -> None:
    entries: Lru[str, str] = Lru(3, len)
    entries.put("a", "4444")
    assert entries.get("a") is None


def test_what_is_dropped_where_it_is_meant_makes_room() -> None:
    entries: Lru[str, str] = Lru(4, len)
    entries.put("a", "22")
    entries.put("b", "22")
    entries.drop_where(lambda key, _: key == "a")
    entries.put("c", "22")
    assert kept(entries, "abc") == "bc"
