"""Whatever is said in whichever order: what is learned is the same on every worker, and nothing is lost."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.conversation.notes import memory_note
from proxy.core.memory.briefing import opening_briefing
from proxy.core.memory.items import ProposedItem, VerifiedItem
from proxy.core.memory.merging import ItemIndex, Merging, contradicts, normal
from proxy.core.memory.records import EventKind, Item, Trust
from proxy.core.memory.redaction import redacted
from proxy.core.memory.utterances import Utterance
from tests.support.conversations import count, texts
from tests.support.memories import NOW

SENTENCES = (
    "Ana lives in Oslo.",
    "Ana lives in Bergen.",
    "ana lives in oslo",
    "Ana has two boats.",
    "Ana has three boats.",
    "Ana is allergic to nuts.",
    "Ana is not allergic to nuts.",
    "Bob lives in Oslo.",
    "The deadline is 3 May.",
    "The deadline is 5 May.",
)
sayings = st.lists(st.tuples(st.sampled_from(SENTENCES), st.booleans()), max_size=12)


def believed(text: str, place: int, *, is_user: bool) -> VerifiedItem:
    trust = Trust.USER if is_user else Trust.ASSISTANT
    line = Utterance(NOW + place, trust, "ana", text, f"m{place}".encode())
    return VerifiedItem(ProposedItem(text), trust, is_standing=False, lines=(line,))


def learned(said: list[tuple[str, bool]]) -> dict[str, Item]:
    """What is known after one session has said all of it, each by itself."""
    items: dict[str, Item] = {}
    for place, (text, is_user) in enumerate(said):
        found = [believed(text, place, is_user=is_user)]
        changes = Merging(ItemIndex(items.values()), "s", b"s", NOW + place).merge(found)
        items |= changes.items
        assert {event.item for event in changes.events} <= changes.items.keys()
    return items


@given(sayings)
def test_what_was_said_is_known_or_superseded_by_what_is_known(said: list[tuple[str, bool]]) -> None:
    items = learned(said)
    standing = [item for item in items.values() if not item.superseded_by]
    assert {normal(text) for text, _ in said} == {normal(item.text) for item in items.values()}
    assert len({normal(item.text) for item in standing}) == len(standing)
    for one in standing:
        assert not any(contradicts(one.text, other.text) for other in standing if other is not one)
    for item in items.values():
        newer = items.get(item.superseded_by)
        assert newer is None or newer.trust is Trust.USER or item.trust is newer.trust


@given(sayings)
def test_one_reading_of_all_of_it_comes_to_the_same_as_many(said: list[tuple[str, bool]]) -> None:
    found = [believed(text, place, is_user=is_user) for place, (text, is_user) in enumerate(said)]
    changes = Merging(ItemIndex([]), "s", b"s", NOW).merge(found)
    many = learned(said)
    assert {name: item.superseded_by for name, item in changes.items.items()} == {
        name: item.superseded_by for name, item in many.items()
    }
    born = [event.item for event in changes.events if event.kind is EventKind.CREATE]
    assert sorted(born) == sorted(changes.items)


@given(sayings)
@example([("Ana lives in Bergen.", False), ("Ana lives in Bergen.", True), ("Ana lives in Oslo.", True)])
@example(
    [("Ana lives in Bergen.", True)] * 2 + [("Ana lives in Oslo.", True), ("Ana lives in Bergen.", True)]
)
def test_reading_it_again_changes_nothing(said: list[tuple[str, bool]]) -> None:
    found = [believed(text, place, is_user=is_user) for place, (text, is_user) in enumerate(said)]
    first = Merging(ItemIndex([]), "s", b"s", NOW).merge(found)
    again = Merging(ItemIndex(first.items.values()), "s", b"s", NOW).merge(found)
    assert (again.items, again.events) == ({}, [])


@given(st.lists(texts, max_size=4), sayings, st.integers(0, 400))
def test_what_is_told_fits_its_room(parts: list[str], said: list[tuple[str, bool]], room: int) -> None:
    found = opening_briefing(parts, [*learned(said).values()], room, "en", count)
    assert not found.text or count(memory_note(found.text, "en")) <= room
    assert not any(item.superseded_by for item in found.items)


@given(
    st.lists(st.one_of(texts, st.sampled_from(["password: x7", "sk-1234567890abcdef", "4111111111111111"])))
)
def test_what_is_blotted_out_stays_so(parts: list[str]) -> None:
    once = redacted(" ".join(parts))
    assert redacted(once) == once
    assert not any(secret in once for secret in ("x7", "sk-1234567890abcdef", "4111111111111111"))
