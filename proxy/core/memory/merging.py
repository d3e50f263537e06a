"""Merge new items into the known ones: a repetition counts as a use, a contradiction supersedes.

In doubt both items are kept: somebody can be allergic to nuts and to shellfish, and have two flights. Two
items contradict each other where the model says that one replaces the other and they share enough words, or
where it is certain: another number of the same things, another value of something that has one value at a
time, a denial. It is never certain of two things that somebody says in the same message. Of the two items the
one said later stays in force, unless it has less trust than the other. The other one is kept as superseded,
with a link to the one in force.
"""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from msgspec.structs import replace

from proxy.core.extraction.constraints import Constraint, in_force
from proxy.core.extraction.reading import Sentence
from proxy.core.extraction.subjects import subject_of
from proxy.core.memory.items import VerifiedItem, short_id
from proxy.core.memory.lifecycle import BORN, superseded, used
from proxy.core.memory.records import Event, EventKind, Item, Trust, event_of
from proxy.core.memory.statements import is_denied, undenied
from proxy.core.text.lexicon import remembering
from proxy.core.text.lexicon.rules import ARTICLE
from proxy.core.text.lexicon.words import HAN, KATAKANA, UNSPACED
from proxy.core.text.numbers import all_numbers
from proxy.core.text.words import share, words_of

_MOST_NEAR = 20
"""At most so many known items are shown to the model with the transcript."""
_COMPARED = 50
"""A new item is compared with at most so many known ones: those that share most words with it."""
_ABOUT = 0.34
"""Least share of an item's words that must also be in the item that the model says it replaces or repeats."""


class ItemIndex:
    """An index of a scope's items: by their words, and of those that are superseded by what.

    Only items that are not superseded are found as the same or as near.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self.all: dict[str, Item] = {}
        """All items of the scope by id, superseded or not."""
        self._same: dict[str, str] = {}
        self._naming: dict[str, list[str]] = {}
        self._newer: dict[str, set[str]] = {}
        """By sentence, the ids of the items that superseded an item of this sentence."""
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        """Add an item, or replace it by its new state."""
        is_indexed = self._living(item.id) is not None
        self.all[item.id] = item
        if item.superseded_by:
            self._newer.setdefault(normal(stated(item)), set()).add(item.superseded_by)
        elif not is_indexed:
            self._same[normal(stated(item))] = item.id
            for word in words_of(stated(item)):
                self._naming.setdefault(word, []).append(item.id)

    def same(self, text: str) -> Item | None:
        """Return the item that says this in the same words; ``text`` comes from :func:`stated`."""
        return self._living(self._same.get(normal(text), ""))

    def is_outdated(self, item: Item) -> bool:
        """Whether the same sentence is known, and something that counts more than ``item`` superseded it."""
        newer = (self.all.get(name) for name in self._newer.get(normal(stated(item)), ()))
        return any(_weight(each) > _weight(item) for each in newer if each is not None)

    def near(self, text: str, most: int = _MOST_NEAR) -> list[Item]:
        """Return the ``most`` items that share most words with a text, those that share more first."""
        shared = Counter(name for word in words_of(text) for name in self._naming.get(word, ()))
        items = [item for name in shared if (item := self._living(name)) is not None]
        return sorted(items, key=lambda item: (-shared[item.id], -item.created_at, item.id))[:most]

    def _living(self, name: str) -> Item | None:
        """Return the item of this id, unless something has superseded it."""
        item = self.all.get(name)
        return None if item is None or item.superseded_by else item


@dataclass
class Merging:
    """Merges what was learned in a session into the known items, and collects the changes.

    Merging the same items again, because the store's reply was lost, changes nothing.
    """

    known: ItemIndex
    session: str
    digest: bytes
    """Digest of the session's name, to count uses once a session."""
    now: float
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    """New items, and the new states of items that were used or superseded, by id."""
    events: list[Event] = field(default_factory=list[Event])

    def merge(self, found: Iterable[VerifiedItem], shown: Sequence[Item] = ()) -> Self:
        """Merge verified items; ``shown`` are the known ones that the model was shown."""
        ids = {short_id(place): item.id for place, item in enumerate(shown)}
        for each in found:
            self._take(each, ids)
        return self

    def _take(self, believed: VerifiedItem, shown: Mapping[str, str]) -> None:
        """Count a use if the item is known; otherwise create it and compare it with the known ones.

        ``shown`` has the ids of known items by the short ids that the model was shown.
        """
        proposal, source = believed.proposal, believed.source(self.session)
        seal = b"\0".join([self.session.encode(), *source.messages, proposal.text.encode()])
        item = Item(
            id=hashlib.sha256(seal).hexdigest()[:16],
            text=proposal.text,
            kind=proposal.kind,
            trust=believed.trust,
            source=source,
            is_standing=believed.is_standing,
            importance_score=BORN,
            last_accessed_at=self.now,
            decay_applied_at=self.now,
            created_at=self.now,
        )
        text = stated(item)
        near = self.known.near(text, _COMPARED)
        again, repeated = self.known.same(text), _meant(shown.get(proposal.repeats), text, near)
        if again is None and (repeated is None or believed.trust in (Trust.ASSISTANT, repeated.trust)):
            again = repeated  # else a person has said less than the model had, or other than that
        if item.id in self.known.all or (again is None and self.known.is_outdated(item)):
            return
        if again is not None:
            # Its own session uses an item where it says it later, not where this reading is merged again.
            is_later = again.source.session != self.session or item.source.at > again.source.at
            after, event = used(again, self.digest, self.now, "said again") if is_later else (again, None)
            if believed.trust is Trust.USER and again.trust is not Trust.USER:
                after = replace(after, trust=Trust.USER, source=source)
            after = replace(after, is_standing=after.is_standing or believed.is_standing)
            if after != again:
                self._keep(after, event)
            return
        details = f"{item.kind.value}, said by the {item.trust.value}"
        self._keep(item, event_of(item, EventKind.CREATE, self.now, after=BORN, details=details))
        meant = _meant(shown.get(proposal.replaces), text, near)
        for older in near:
            is_apart = older.source.messages[-1:] != item.source.messages[-1:]
            if older is meant or older is repeated or (is_apart and contradicts(text, stated(older))):
                loser, winner = sorted((older, item), key=_weight)
                self._keep(*superseded(self.items.get(loser.id, loser), winner.id, self.now))

    def _keep(self, item: Item, event: Event | None) -> None:
        self.items[item.id] = item
        self.events += [event] if event is not None else []
        self.known.add(item)


def _meant(name: str | None, text: str, near: Sequence[Item]) -> Item | None:
    """Return the known item of the id that the model means, if the two share enough words."""
    found = next((item for item in near if item.id == name), None)
    is_about = found is not None and share(_parts_of(text), _parts_of(found.text)) >= _ABOUT
    return found if is_about else None


def _parts_of(text: str) -> frozenset[str]:
    """Return the words of a sentence; of scripts without spaces the characters, since few pairs recur."""
    return frozenset(part for word in words_of(text) for part in (word if _UNSPACED.match(word) else [word]))


def _weight(item: Item) -> tuple[bool, float]:
    """What decides which of two items supersedes the other: first trust, then when it was said."""
    return item.trust is Trust.USER, item.source.at


# --- whether two sentences say the same, or cannot both be true ---

_TOKEN = re.compile(rf"\d[\d.,:/-]*\d|\d|[^\W\d_{UNSPACED}]+|[{UNSPACED}]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNIT = re.compile(rf"\d[\d.,:/-]*\d|\d|[{KATAKANA}]+|[{HAN}{remembering.PARTICLES}]|[^\W\d_{UNSPACED}]+")
_ENDING = re.compile(r"(?<=\bha)ve$|(?:es|e|s)$")
_ENUMERATED = frozenset({"date", "day", "time", "quantity", "name"})
"""Kinds of values that several things of one kind differ in."""


def stated(item: Item) -> str:
    """Return an item's sentence in the third person: a leading "I" is replaced by the speaker's name."""
    speaker = item.source.name
    found = remembering.FIRST_PERSON.match(item.text) if speaker else None
    if found is None:
        return item.text
    rest = item.text[found.end() :]
    return f"{speaker} {rest}" if found[0].endswith(("'", "\u2019")) else f"{speaker}{rest}"


def normal(text: str) -> str:
    """Normalise a sentence for comparison: drop case and punctuation, unify white space."""
    return " ".join(_TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


def contradicts(one: str, other: str) -> bool:
    """Whether two sentences certainly cannot both be true at the same time."""
    # They may say how many of the same things somebody has, and differ in nothing else.
    (rest, count), (others, number) = _counted(one), _counted(other)
    if rest and rest == others and not count & number:
        return True
    # Or they name different places where the same person lives.
    home, other_home = remembering.LIVES.fullmatch(one), remembering.LIVES.fullmatch(other)
    if home and other_home and normal(home["who"]) == normal(other_home["who"]):
        what, where = words_of(home["where"]), words_of(other_home["where"])
        return not (what <= where or where <= what)
    # Or one of them denies what the other says, in the same words.
    if is_denied(one) is not is_denied(other) and not remembering.NOT_DENIED.search(one + other):
        told, denied = _in_order(one), _in_order(other)
        if told == denied and len(told) > 1:
            return True
    return _replaces(one, other) or _replaces(other, one)


def _counted(text: str) -> tuple[tuple[str, str] | None, frozenset[str]]:
    """Return who is said to have things of what kind, and how many: the values that this may mean."""
    found = next(filter(None, (pattern.match(normal(text)) for pattern in remembering.COUNTED)), None)
    return ((found["who"], found["what"]), all_numbers(found["count"])) if found else (None, frozenset())


def _in_order(text: str) -> list[str]:
    """Return what a sentence says or denies: its words in their order, without endings of English verbs.

    Of hiragana only particles count, since a negation changes the ending of a verb: 住んでいる, 住んでいない.
    """
    plain = undenied(text) if is_denied(text) else text
    words = _UNIT.findall(unicodedata.normalize("NFKC", plain).casefold())
    return [_ENDING.sub("", word) for word in words if word not in remembering.ARTICLES]


def _replaces(newer: str, older: str) -> bool:
    """Whether ``newer`` withdraws ``older``, or sets another value of the same thing."""
    subject, before = subject_of(newer), subject_of(older)
    if not (subject.words <= before.words or before.words <= subject.words):
        return False
    # "The port" is one thing, and so is anybody's deadline. Ana's flight or daughter may be one of several.
    differing = subject.differing(before)
    is_one = ARTICLE.match(newer) and ARTICLE.match(older) and not (subject.about or before.about)
    has_one = subject.attributes & subject.head & before.head
    if differing & _ENUMERATED and not (is_one or has_one or (subject.limits and before.limits)):
        return False
    rules = [Constraint(place, Sentence(text, 1)) for place, text in enumerate((older, newer))]
    return bool(in_force(rules)[1])
