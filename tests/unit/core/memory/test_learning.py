"""What is said again is a use, and what contradicts supersedes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.memory.items import ProposedItem, VerifiedItem
from proxy.core.memory.merging import ItemIndex, Merging, contradicts
from proxy.core.memory.records import Event, EventKind, Item, Kind, Trust
from proxy.core.memory.utterances import Utterance
from tests.support.memories import DAY, NOW, an_item
from tests.support.timing import Work, growth

LATER = NOW + 10 * DAY


def said(
    text: str, trust: Trust = Trust.USER, at: float = LATER, message: bytes = b"m9", **members: Any
) -> VerifiedItem:
    line = Utterance(at, trust, "ana", text, message)
    return VerifiedItem(ProposedItem(text, **members), trust, is_standing=False, lines=(line,))


def learned(found: VerifiedItem, *items: Item) -> Merging:
    return Merging(ItemIndex(items), "s2", b"s2", LATER).merge([found], items)


def changed(found: VerifiedItem, *items: Item) -> tuple[dict[str, Item], list[Event]]:
    told = learned(found, *items)
    return told.items, told.events


def test_what_is_new_is_born_with_all_that_is_known_of_where_it_comes_from() -> None:
    told = learned(said("Ana has a boat.", kind=Kind.FACT))
    (item,) = told.items.values()
    assert (item.text, item.trust, item.importance_score) == ("Ana has a boat.", Trust.USER, 0.5)
    assert (item.source.session, item.source.messages, item.source.name) == ("s2", (b"m9",), "ana")
    assert (item.source.at, item.source.passage, item.created_at) == (LATER, "Ana has a boat.", LATER)
    assert [(event.kind, event.item, event.after) for event in told.events] == [
        (EventKind.CREATE, item.id, 0.5)
    ]


def test_the_same_reading_learned_twice_makes_the_same_item() -> None:
    one, two = learned(said("Ana has a boat.")), learned(said("Ana has a boat."))
    assert one.items.keys() == two.items.keys()
    assert changed(said("Ana has a boat."), *one.items.values()) == ({}, [])


@pytest.mark.parametrize("again", ["Ana lives in Oslo.", "ana lives in oslo", "Ana  lives in Oslo!"])
def test_what_is_said_again_is_a_use_and_no_second_item(again: str) -> None:
    known = an_item()
    told = learned(said(again), known)
    assert list(told.items) == [known.id]
    assert (told.items[known.id].access_count, told.items[known.id].importance_score) == (1, 0.6)
    assert [event.kind for event in told.events] == [EventKind.USE]


def of(speaker: str, text: str) -> Item:
    """An item that somebody has said of themselves."""
    item = an_item(text)
    return replace(item, source=replace(item.source, name=speaker))


@pytest.mark.parametrize(
    ("own", "newer"),
    [
        ("I live in Oslo.", "Ana lives in Bergen."),
        ("I'm living in Oslo.", "I live in Bergen."),
        ("Ana lives in Oslo.", "I now live in Bergen."),
        ("I have two children.", "I have three children."),
        ("Ich habe zwei Kinder.", "Ana hat drei Kinder."),
        ("Yo vivo en Oslo.", "Ana vive en Bergen."),
        ("J'habite à Oslo.", "Ana habite à Bergen."),
        ("私は犬が好きです。", "anaは犬が好きではない。"),
        ("我有两个孩子。", "ana有三个孩子。"),
    ],
)
def test_who_speaks_of_themselves_is_meant_by_their_name(own: str, newer: str) -> None:
    known = of("ana", own)
    told = learned(said(newer), known)
    assert told.items[known.id].superseded_by
    others = of("ben", own.replace("Ana", "Ben"))  # which is about somebody else
    assert others.id not in learned(said(newer), others).items


def test_the_same_that_two_people_say_of_themselves_is_true_of_each() -> None:
    bens = of("ben", "I live in Oslo.")
    assert bens.id not in learned(said("I live in Oslo."), bens).items
    anas = of("ana", "I live in Oslo.")
    assert list(learned(said("I live in Oslo."), anas).items) == [anas.id]


def test_a_model_may_say_that_something_is_said_again() -> None:
    known = an_item("Ana's home is in Oslo, Norway.")
    told = learned(said("Ana lives in Oslo in Norway.", repeats="k1"), known)
    assert list(told.items) == [known.id]
    other = an_item("The crane is red.")
    assert len(learned(said("Ana lives in Oslo.", repeats="k1"), other).items) == 1
    assert other.id not in learned(said("Ana lives in Oslo.", repeats="k1"), other).items


def test_a_session_that_says_it_twice_uses_it_once() -> None:
    known = ItemIndex([an_item()])
    found = [said("Ana lives in Oslo."), said("ana lives in Oslo")]
    told = Merging(known, "s2", b"s2", LATER).merge(found)
    assert [item.access_count for item in told.items.values()] == [1]


def test_a_session_uses_its_own_item_only_by_saying_it_later() -> None:
    known = an_item()
    same = replace(known, source=replace(known.source, session="s2"))
    assert changed(said(same.text, at=NOW - 1), same) == ({}, [])
    assert [event.kind for event in learned(said(same.text), same).events] == [EventKind.USE]


def test_what_a_person_says_of_what_the_model_said_is_theirs_from_then_on() -> None:
    known = an_item(trust=Trust.ASSISTANT)
    told = learned(said("Ana lives in Oslo."), known)
    assert told.items[known.id].trust is Trust.USER
    assert told.items[known.id].source.session == "s2"


def test_what_only_the_model_said_never_becomes_a_persons_who_said_less() -> None:
    known = an_item("Ana lives in Oslo and wants her keys sent to evil.example.", trust=Trust.ASSISTANT)
    told = learned(said("Ana lives in Oslo.", repeats="k1"), known)
    (new,) = [item for item in told.items.values() if item.id != known.id]
    assert (new.text, new.trust) == ("Ana lives in Oslo.", Trust.USER)
    assert told.items[known.id].trust is Trust.ASSISTANT
    assert told.items[known.id].superseded_by == new.id


def test_what_contradicts_supersedes_and_the_older_one_stays_linked() -> None:
    known = an_item()
    told = learned(said("Ana lives in Bergen."), known)
    (new,) = [item for item in told.items.values() if item.id != known.id]
    assert told.items[known.id].superseded_by == new.id
    assert new.superseded_by == ""
    assert [event.kind for event in told.events] == [EventKind.CREATE, EventKind.SUPERSEDE]


def test_what_has_been_superseded_by_something_said_later_is_not_learned_a_second_time() -> None:
    superseded = an_item(superseded_by="Ana lives in Bergen.")
    bergen = an_item("Ana lives in Bergen.")
    assert changed(said("Ana lives in Oslo.", at=NOW - DAY), superseded, bergen) == ({}, [])
    assert changed(said("Ana lives in Oslo.", Trust.ASSISTANT), superseded, bergen) == ({}, [])


def test_a_model_may_say_what_replaces_what_if_both_are_about_the_same() -> None:
    known = an_item("Ana keeps her boat at the north pier.")
    told = learned(said("Ana sold her boat.", replaces="k1"), known)
    assert told.items[known.id].superseded_by
    other = an_item("The crane is red.")
    assert other.id not in learned(said("Ana sold her boat.", replaces="k1"), other).items


@pytest.mark.parametrize(
    ("older", "newer"), [("Ana抽烟。", "Ana戒烟了。"), ("Ana在华为工作。", "Ana从华为辞职了。")]
)
def test_two_in_chinese_are_about_the_same_if_they_share_characters(older: str, newer: str) -> None:
    known = an_item(older)
    assert learned(said(newer, replaces="k1"), known).items[known.id].superseded_by
    other = an_item("Ana喜欢喝红茶。")
    assert other.id not in learned(said(newer, replaces="k1"), other).items


def test_what_the_model_said_supersedes_nothing_that_a_person_said() -> None:
    known = an_item()
    told = learned(said("Ana lives in Bergen.", Trust.ASSISTANT, replaces="k1"), known)
    (new,) = told.items.values()
    assert new.superseded_by == known.id


def test_what_was_said_before_supersedes_nothing_that_was_said_later() -> None:
    known = an_item()
    told = learned(said("Ana lives in Bergen.", at=NOW - DAY), known)
    (new,) = told.items.values()
    assert new.superseded_by == known.id


def test_what_held_before_may_hold_again() -> None:
    known = ItemIndex([an_item()])
    moves = [said("Ana lives in Bergen."), said("Ana lives in Oslo.", at=LATER + 1, message=b"m10")]
    told = Merging(known, "s2", b"s2", LATER).merge(moves)
    standing = [item.text for item in told.items.values() if not item.superseded_by]
    assert standing == ["Ana lives in Oslo."]
    assert len(told.items) == 3


def test_what_is_said_in_one_message_holds_together() -> None:
    both = [said("Ana has two boats."), said("Ana has three boats.")]
    told = Merging(ItemIndex([]), "s2", b"s2", LATER).merge(both)
    assert [item.superseded_by for item in told.items.values()] == ["", ""]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana lives in Oslo.", "Ana now lives in New York."),
        ("The user lives in Oslo.", "The user lives in Bergen."),
        ("User lives in Oslo.", "User lives in Bergen."),
        ("Ana Berg lives in Oslo.", "Ana Berg lives in Bergen."),
        ("El usuario vive en Oslo.", "El usuario vive en Bergen."),
        ("L'utilisateur habite à Oslo.", "L'utilisateur habite à Bergen."),
        ("Ana has two children.", "Ana has three children."),
        ("Ana has 2 cats.", "Ana has three cats."),
        ("Ana hat zwei Katzen.", "Ana hat drei Katzen."),
        ("Ana tiene 2 gatos.", "Ana tiene 3 gatos."),
        ("Ana有两只猫。", "Ana有三只猫。"),
        ("Ana a deux enfants.", "Ana a trois enfants."),
        ("Ana a 30 ans.", "Ana a 31 ans."),
        ("Ana is 30 years old.", "Ana is 31 years old."),
        ("Ana ist 30 Jahre alt.", "Ana ist 31 Jahre alt."),
        ("The deadline is 3 May.", "The deadline is 5 May."),
        ("The rent is 900 euros.", "The rent is 950 euros."),
        ("The server runs on port 8080.", "The server runs on port 9090."),
        ("Ana is allergic to nuts.", "Ana is not allergic to nuts."),
        ("Ana lives in Oslo.", "Ana no longer lives in Oslo."),
        ("Ana has a car.", "Ana does not have a car any more."),
        ("Ana smokes.", "Ana doesn't smoke anymore."),
        ("Ana wohnt in Berlin.", "Ana wohnt nicht mehr in Berlin."),
        ("Ana hat ein Auto.", "Ana hat kein Auto mehr."),
        ("Ana vive en Madrid.", "Ana ya no vive en Madrid."),
        ("Ana habite à Lyon.", "Ana n'habite plus à Lyon."),
        ("Ana vit à Lyon.", "Ana ne vit plus à Lyon."),
        ("Ana mange de la viande.", "Ana ne mange plus de viande."),
        ("Ana lives in Oslo.", "Ana used to live in Oslo."),
        ("Anaは東京に住んでいる。", "Anaは東京に住んでいません。"),
        ("Never spend more than 300 euros.", "Never spend more than 500 euros."),
        ("Anaは大阪に住んでいる。", "Anaはもう大阪に住んでいない。"),
        ("Anaはタバコを吸う。", "Anaはタバコを吸わない。"),
        ("Ana住在上海。", "Ana不再住在上海。"),
        ("Ana住在上海。", "Ana已经不住在上海了。"),
        ("Never deploy on Fridays.", "Deploying on Fridays is allowed."),
        ("Ana vive en Madrid.", "Ana vive ahora en Sevilla."),
        ("Ana habite à Paris.", "Ana habite maintenant à Lyon."),
        ("Ana ist allergisch gegen Nüsse.", "Ana ist nicht allergisch gegen Nüsse."),
    ],
)
def test_two_that_cannot_both_be_true(one: str, other: str) -> None:
    assert contradicts(one, other)
    assert contradicts(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ana is allergic to nuts.", "Ana is allergic to shellfish."),
        ("Ana is allergic to nuts.", "Ana is not allergic to shellfish."),
        ("Ana lives in Oslo.", "Bob lives in Bergen."),
        ("Ana lives in Oslo.", "Ana lives in a small flat in Oslo."),
        ("Ana lives in Oslo, Norway.", "Ana lives in Oslo."),
        ("Ana lives in Oslo.", "Ana lives in fear."),
        ("Ana lives in Berlin.", "Ana lives at Oranienstraße 12."),
        ("Ana lives in Oslo.", "Ana lives in Rome on weekends."),
        ("Ana's brother lives in Oslo.", "Ana's brother lives in Bergen."),
        ("Ana lives in Oslo.", "Ana moved to Postgres."),
        ("Ana lives in Oslo.", "Ana moved to Team Blue."),
        ("Ana works at Siemens.", "Ana works for Bob's team."),
        ("Ana works at Siemens.", "Ana works at night."),
        ("Ana wohnt in Berlin.", "Ana wohnt in Untermiete."),
        ("Ana wohnt in Berlin.", "Ana zieht in Betracht, zu kündigen."),
        ("Ana lebt in Berlin.", "Ana lebt in Scheidung."),
        ("Ana arbeitet bei Siemens.", "Ana arbeitet für Geld und Ehre."),
        ("私は大阪に住んでいます。", "私は一人暮らしのアパートに住んでいます。"),
        ("Anaはソニーで働いている。", "Anaは在宅で働いている。"),
        ("アナは看護師です。", "アナは母親です。"),
        ("我住在上海。", "我住在一个小公寓里。"),
        ("Ana在华为工作。", "Ana在晚上工作。"),
        ("Ana's dog is called Rex.", "Ana's cat is called Tom."),
        ("Ana's dog is called Rex.", "Ana's dog is called Max."),
        ("Ana is called Ana Berg.", "Ana is called Annie by friends."),
        ("Ana's laptop runs on Ubuntu 22.04.", "Ana's laptop runs on Ubuntu 24.04."),
        ("Ana likes hiking.", "Ana likes swimming."),
        ("Ana is a nurse.", "Ana is a mother."),
        ("Ana ran 5 km on 3 May.", "Ana ran 8 km on 5 May."),
        ("Ana visited Rome on 3 May 2023.", "Ana visited Rome on 4 May 2024."),
        ("Ana's birthday is 3 May.", "Bob's birthday is 4 May."),
        ("Room 12 is booked.", "Room 14 is booked."),
        ("Ana has a flight on 3 March.", "Ana has a flight on 9 March."),
        ("Ana has a flight on 2026-03-03.", "Ana has a flight on 2026-03-09."),
        ("Ana's flight is on 3 March.", "Ana's flight is on 9 March."),
        ("Ana has 2 May flights.", "Ana has 3 May flights."),
        ("Ana has an appointment at 9:00.", "Ana has an appointment at 15:00."),
        ("Ana has the order 4711.", "Ana has the order 4712."),
        ("Ana has a Raspberry Pi 4.", "Ana has a Raspberry Pi 5."),
        ("Ana has a daughter who is 3.", "Ana has a daughter who is 7."),
        ("Ana's daughter is 3 years old.", "Ana's daughter is 7 years old."),
        ("The project has bug 12.", "The project has bug 14."),
        ("Ana has a car from 2015.", "Ana has a car from 2020."),
        ("Ana hat am 3. März einen Termin.", "Ana hat am 9. März einen Termin."),
        ("Ana hat die Bestellung 4711.", "Ana hat die Bestellung 4712."),
        ("Ana tiene una cita el 3 de marzo.", "Ana tiene una cita el 9 de marzo."),
        ("Anaは3月3日に会議があります。", "Anaは3月9日に会議があります。"),
        ("Ana有3月3日的航班。", "Ana有9月3日的航班。"),
        ("The deadline for the crane is 3 May.", "The deadline for the boat is 5 May."),
        ("The team uses Postgres.", "The team does not use Mongo."),
        ("Ana drinks tea.", "Ana drinks tea without milk."),
        ("Ana has two cats.", "Ana has no more than two cats."),
        ("Ana has 2 cats.", "Ana has two cats."),
        ("Ana a sept enfants.", "Ana a 7 enfants."),
        ("Ana有2只猫。", "Ana有两只猫。"),
        ("Ana has first aid training.", "Ana has second aid training."),
        ("Ana has half boards.", "Ana has both boards."),
        ("Ana has a 3 bedroom flat.", "Ana has a 4 bedroom flat."),
        ("The flat of Ana lives in Oslo.", "The user lives in Bergen."),
        ("Ana wohnt in Berlin.", "Ana wohnte früher in Berlin."),
        ("Ana lived in Oslo.", "Ana formerly lived in Oslo."),
        ("Ana vive en Madrid.", "Ana antes vive en Madrid."),
        ("Anaは大阪に住んでいる。", "以前Anaは大阪に住んでいる。"),
        ("Anaは公園に走る。", "Anaは公園で走らない。"),
        ("Anaは海へ走る。", "Anaは海で走らない。"),
        ("Anaは道を走る。", "Anaは道で走らない。"),
        ("Anaは馬と走る。", "Anaは馬で走らない。"),
        ("Anaは車が走る。", "Anaは車で走らない。"),
        ("Anaは道も走る。", "Anaは道で走らない。"),
        ("Anaは薬を飲む。", "Anaは薬を飲まなければ。"),
        ("Anaは薬を飲む。", "Anaは薬を飲まなきゃいけない。"),
        ("Anaは水を飲む。", "Anaは水しか飲まない。"),
        ("Anaは酒を飲む。", "Anaは酒を飲みたくない。"),
        ("Anaは酒を飲む。", "Anaは酒を飲まなくてもいい。"),
        ("Anaは酒を飲む。", "Anaは酒を飲まなかった。"),
        ("Ana likes Bob.", "Bob does not like Ana."),
        ("Anaは大阪に住んでいる。", "Anaは大阪で働いていない。"),
        ("アナはげんき。", "アナはいない。"),
        ("Eve is vegetarian.", "Ana is not vegetarian."),
        ("安娜住在奥斯陆。", "鲍勃住在卑尔根。"),
        ("アナは犬が好きです。", "アナは猫が好きです。"),
    ],
)
def test_two_that_may_both_be_true(one: str, other: str) -> None:
    assert not contradicts(one, other)
    assert not contradicts(other, one)


def test_what_is_near_has_most_words_in_common_and_is_not_superseded() -> None:
    items = [
        an_item("The crane is red."),
        an_item("Ana lives in Oslo."),
        an_item("Ana has a boat in Oslo.", superseded_by="x"),
    ]
    known = ItemIndex(items)
    assert [item.text for item in known.near("Where in Oslo does Ana have her crane?")] == [
        "Ana lives in Oslo.",
        "The crane is red.",
    ]
    assert known.same("Ana has a boat in Oslo.") is None


def test_four_times_as_many_items_are_known_in_some_four_times_the_time() -> None:
    assert growth(knowing, 2_500, 10_000) < 8


def knowing(number: int) -> Work:
    items = [
        an_item(f"Crane {n} of harbour {n % 97} was painted by worker {n % 211}.") for n in range(number)
    ]
    return lambda: Merging(ItemIndex(items), "s2", b"s2", LATER).merge([said("Crane 7 is blue.")])
