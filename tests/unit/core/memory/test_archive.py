"""Which items are put away, and what stays of them."""

import pytest

from proxy.core.memory.lifecycle import (
    ArchiveCandidate,
    archive_candidates,
    archived,
    ask_for_compression,
    compression_of,
    compression_rate,
    expired,
    reborn,
    rescored,
    used,
)
from proxy.core.memory.records import Archived, ArchiveReason, EventKind, Source
from proxy.core.policy.sections import Memory
from tests.support.memories import DAY, NOW, an_item

LOW, CROWDED, MANUAL = ArchiveReason.LOW_IMPORTANCE, ArchiveReason.CAPACITY_LIMIT, ArchiveReason.MANUAL
LONG = (
    "The harbour crane was inspected by Ana Berg on 3 May, who found a worn cable and had it replaced. " * 3
)
SHORT = "Ana Berg inspected the harbour crane on 3 May and had a worn cable replaced."


def record_of(days: float | None, summary: str | None = None) -> Archived:
    rules = Memory(retention="never" if days is None else days * DAY)
    return archived(ArchiveCandidate(an_item(LONG), LOW), "scope", NOW, rules, summary)[0]


def test_what_has_faded_is_put_away_the_weakest_first_and_at_most_a_hundred_a_run() -> None:
    items = [an_item(f"item {n:03}", importance_score=0.29 - n / 1_000) for n in range(150)]
    found = archive_candidates(items, Memory())
    assert [each.item.id for each in found] == [f"item {n:03}" for n in range(149, 49, -1)]
    assert {each.reason for each in found} == {LOW}


def test_what_is_worth_as_much_as_low_stays() -> None:
    assert archive_candidates([an_item(importance_score=0.3, is_standing=True)], Memory()) == []


@pytest.mark.parametrize(("count", "put_away"), [(89, 0), (90, 10), (100, 10), (140, 40)])
def test_from_nine_tenths_of_the_capacity_on_a_tenth_of_it_is_put_away_or_all_that_is_over_it(
    count: int, put_away: int
) -> None:
    items = [an_item(f"item {n:03}", importance_score=0.5 + n / 1_000) for n in range(count)]
    found = archive_candidates(items, Memory(capacity=100))
    assert [(each.item.id, each.reason) for each in found] == [
        (f"item {n:03}", CROWDED) for n in range(put_away)
    ]


def test_what_is_over_the_capacity_is_put_away_whole_and_waits_for_no_model() -> None:
    found = archive_candidates([an_item(LONG, id=f"{n:02}") for n in range(103)], Memory(capacity=100))
    assert [each.needs_model for each in found] == [False] * 3 + [True] * 7
    faded = [an_item(LONG, id=f"{n:02}", importance_score=0.1) for n in range(103)]
    assert [each.needs_model for each in archive_candidates(faded, Memory(capacity=100))][:4] == [
        *[False] * 3,
        True,
    ]


def test_what_stays_true_goes_last() -> None:
    standing = [an_item(f"standing {n}", importance_score=0.3, is_standing=True) for n in range(8)]
    others = [an_item(f"other {n}", importance_score=0.9) for n in range(2)]
    found = archive_candidates([*standing, *others], Memory(capacity=10))
    assert [each.item.id for each in found] == ["other 0"]
    overtaken = [an_item("overtaken", is_standing=True, superseded_by="other", importance_score=0.8)]
    found = archive_candidates([*standing, *others, *overtaken], Memory(capacity=10))
    assert [each.item.id for each in found] == ["overtaken"]


def test_what_has_faded_makes_the_room_that_is_needed() -> None:
    faded = [an_item(f"faded {n}", importance_score=0.1) for n in range(5)]
    others = [an_item(f"other {n}") for n in range(89)]
    assert [each.reason for each in archive_candidates([*faded, *others], Memory(capacity=100))] == [LOW] * 5


def test_the_record_tells_what_was_saved_and_until_when_it_is_kept() -> None:
    item = an_item(LONG, importance_score=0.2)
    record, events = archived(ArchiveCandidate(item, LOW), "scope", NOW, Memory(), SHORT)
    assert (record.original_memory_id, record.scope, record.created_at) == (item.id, "scope", NOW)
    assert (record.original_content, record.compressed_summary) == (LONG, SHORT)
    assert (record.original_size_bytes, record.compressed_size_bytes) == (len(LONG), len(SHORT))
    assert record.compression_ratio == pytest.approx((len(LONG) - len(SHORT)) / len(LONG))
    assert (record.compression_method, record.final_importance_score) == ("model", 0.2)
    assert record.retention_until == NOW + 90 * DAY
    assert record.original_embedding is None
    assert [event.kind for event in events] == [EventKind.COMPRESS, EventKind.ARCHIVE]
    assert events[1].details == "low_importance"


def test_what_is_short_is_put_away_as_it_is_and_not_counted_in_the_rate() -> None:
    short = ArchiveCandidate(an_item(), MANUAL)
    assert not short.needs_model
    record, _ = archived(short, "scope", NOW, Memory(retention="never"))
    assert (record.compression_method, record.compressed_summary) == ("none", "Ana lives in Oslo.")
    assert compression_rate([record]) == 0
    half = record_of(1, LONG[: len(LONG) // 2])
    assert compression_rate([record, half]) == pytest.approx(0.5, abs=0.01)


def test_the_passage_is_compressed_with_the_text() -> None:
    source = Source(session="s1", messages=(b"m",), role="user", at=NOW, passage="x" * 300)
    told = ArchiveCandidate(an_item("Ana told of x.", source=source), LOW)
    assert told.content == f"Ana told of x.\n{'x' * 300}"
    assert told.needs_model


def test_what_is_kept_for_ever_does_not_expire() -> None:
    archive = {"brief": record_of(90), "for ever": record_of(None)}
    assert expired(archive, NOW + 90 * DAY - 1, 10) == ([], [])
    names, events = expired(archive, NOW + 90 * DAY, 10)
    assert names == ["brief"]
    assert [event.kind for event in events] == [EventKind.DELETE]
    assert expired(archive, NOW + 3650 * DAY, 10)[0] == ["brief"]


def test_an_archive_that_is_kept_for_ever_keeps_the_strongest_that_there_is_room_for() -> None:
    rules, scores = Memory(retention="never"), {"weak": 0.1, "strong": 0.29, "weaker": 0.05}
    items = [an_item(name, importance_score=score) for name, score in scores.items()]
    archive = {item.id: archived(ArchiveCandidate(item, LOW), "scope", NOW, rules)[0] for item in items}
    names, events = expired(archive, NOW, 1)
    assert names == ["weaker", "weak"]
    assert [(event.item, event.details) for event in events] == [
        ("weaker", "no room in the archive"),
        ("weak", "no room in the archive"),
    ]
    assert expired(archive, NOW, 3) == ([], [])


def test_a_policy_may_say_that_nothing_is_deleted() -> None:
    assert Memory.model_validate({"retention": "never"}).retention == "never"
    assert Memory.model_validate({"retention": "90d"}).retention == 90 * DAY


def test_a_record_gives_its_item_back_as_new() -> None:
    item, event = reborn(record_of(None, SHORT).item, NOW + DAY)
    assert (item.text, item.importance_score, item.created_at) == (LONG, 0.5, NOW + DAY)
    assert event.kind is EventKind.RESTORE


def test_the_question_carries_the_record_as_data_and_asks_in_its_language() -> None:
    ask = ask_for_compression("Der Kran wurde für das Boot und die Brücke geprüft.", 0.3)
    assert "in German" in ask.task
    assert "Der Kran wurde" in ask.text
    assert ask.text.startswith("<record ")


def test_a_compression_is_taken_where_it_says_the_same_in_less() -> None:
    assert compression_of(f" {SHORT}\n", LONG) == SHORT


def test_of_a_longer_answer_the_first_two_sentences_are_taken() -> None:
    assert compression_of(f"{SHORT} Ana Berg found it. It is May. It is well.", LONG) == (
        f"{SHORT} Ana Berg found it."
    )


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Ana Berg inspected 17 cranes.",
        "x" * 900,
        "I cannot help with that 1,234.",
        "アニューサアラシュアラシュアラシュ",
        "Somebody bakes bread upstairs.",
    ],
)
def test_where_a_compression_says_something_else_the_items_own_sentence_stands(answer: str) -> None:
    source = Source(session="s1", messages=(b"m",), role="user", at=NOW, passage=LONG)
    told = ArchiveCandidate(an_item("Ana inspected the crane.", source=source), LOW)
    summary = compression_of(answer, told.content)
    assert summary == "Ana inspected the crane."
    record, _ = archived(told, "scope", NOW, Memory(), summary)
    assert record.compression_method == "text"
    assert compression_rate([record]) == 0
    whole = ArchiveCandidate(an_item("x" * 300), LOW)
    record, _ = archived(whole, "scope", NOW, Memory(), compression_of(answer, whole.content))
    assert (record.compression_method, record.compression_ratio) == ("none", 0)


def test_a_year_ends_within_its_capacity_with_what_is_used_and_what_stays_true_alive() -> None:
    rules = Memory(capacity=400)
    items = {item.id: item for item in (an_item("used"), an_item("standing", is_standing=True))}
    archive: dict[str, Archived] = {}
    sizes = list[int]()
    for day in range(365):
        now = NOW + day * DAY
        born = (an_item(f"{day} {n}", created_at=now, last_accessed_at=now) for n in range(10))
        items |= {item.id: item for item in born}
        if day % 2 == 0:
            items["used"], _ = used(items["used"], str(day).encode(), now)
        items = {item.id: rescored(item, now, rules.low)[0] for item in items.values()}
        for each in archive_candidates(items.values(), rules):
            del items[each.item.id]
            record, _ = archived(each, "scope", now, rules)
            archive[record.id] = record
        for name in expired(archive, now, rules.capacity)[0]:
            del archive[name]
        sizes.append(len(items) + len(archive))
    assert len(items) <= 0.9 * rules.capacity + 10
    assert {"used", "standing"} <= items.keys()
    assert max(sizes[-100:]) <= 1.05 * max(sizes[130:265])
