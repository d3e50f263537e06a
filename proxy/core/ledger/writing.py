"""Writing the ledger of a plan: which facts of the messages that are cut are carried on, and in which words.

A pure function of the chain, what is cut and the room: the same epoch has the same ledger on every worker
(law 3). It is made anew from the originals each time, so nothing in it drifts, and what the view still shows
is not told twice. Tool text never becomes a constraint: whose sentence it was is known from the role.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.core.ledger.facts import Fact
from proxy.core.ledger.packing import Packing
from proxy.core.ledger.ranking import Mentions
from proxy.core.ledger.reading import Reading, Readings, things_of
from proxy.core.ledger.rules import Rule, in_force
from proxy.core.plan import Plan
from proxy.core.situation import Count, Situation

_READINGS = Readings()
_BULLET = 2
"""Counted tokens that a sentence takes beside its own."""
_RULES_SHARE = 0.8
"""Of the ledger: what constraints may take before identifiers have had their turn."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The ledger's text in its two parts."""

    constraints: tuple[str, ...] = ()
    """Sentences, word for word."""
    identifiers: str = ""
    """Lines of exact things."""

    def __bool__(self) -> bool:
        return bool(self.constraints or self.identifiers)


def facts_of(situation: Situation, plan: Plan, room: int) -> Facts:
    """The ledger of a chain under ``plan``, within ``room`` counted tokens."""
    rules = situation.policy.ledger
    if room <= 0 or not plan.gaps:
        return Facts()
    source = _Source(situation, plan)
    standing = source.standing_text()
    found, stale = source.constraints()
    found = [rule for rule in found if rule.sentence.text not in standing] if rules.constraints else []
    wanted = [rule.sentence.text for rule in found]
    firm = [rule.sentence.text for rule in found if rule.sentence.strength > 1]
    first = _fitting(firm, int(room * _RULES_SHARE) if rules.identifiers else room, situation.count)
    left = room - _size(first, situation.count)
    identifiers = ""
    if rules.identifiers:
        packing = Packing(left, situation.count, "\n".join([standing, *source.quoted(), *first]))
        packing.fill(source.identifiers(stale))
        identifiers = packing.text
        left -= situation.count(identifiers) if identifiers else 0
    chosen = {*first, *_fitting([text for text in wanted if text not in first], left, situation.count)}
    told = sorted(found, key=lambda rule: rule.position)
    return Facts(tuple(rule.sentence.text for rule in told if rule.sentence.text in chosen), identifiers)


def _fitting(sentences: Iterable[str], room: int, count: Count) -> list[str]:
    chosen: list[str] = []
    for text in sentences:
        size = count(text) + _BULLET
        if size <= room:
            room -= size
            chosen.append(text)
    return chosen


def _size(sentences: Iterable[str], count: Count) -> int:
    return sum(count(text) + _BULLET for text in sentences)


class _Source:
    """The chain's messages, read."""

    def __init__(self, situation: Situation, plan: Plan) -> None:
        self._situation = situation
        self._plan = plan
        messages = situation.chain.messages
        clipped = {edit.position for edit in plan.replacements}
        self._absent = {place for place in range(len(messages)) if plan.covers(place)} | clipped
        contents = {place: situation.content(place) for place in range(len(messages))}
        things = things_of(contents)
        self._readings = [
            _READINGS.of(raw, contents[place], things.get(place, ""))
            if situation.classes.may_be_quoted(place)
            else Reading(())
            for place, raw in enumerate(situation.chain.raws)
        ]

    def standing_text(self) -> str:
        """What the view says without the ledger."""
        chain, replaced = self._situation.chain, {edit.position: edit.raw for edit in self._plan.replacements}
        texts = [
            self._situation.content(place).countable()
            for place in range(len(chain))
            if place not in self._absent
        ]
        summaries = [anchor.text for gap in self._plan.gaps for anchor in gap.anchors]
        clipped = [raw.decode(errors="replace") for raw in replaced.values()]
        return "\n".join([*texts, *clipped, *summaries])

    def quoted(self) -> list[str]:
        """Requests that notes quote as handled. A rule among them is told again: it is not over."""
        return [text for gap in self._plan.gaps for text in gap.quotes]

    def constraints(self) -> tuple[list[Rule], frozenset[str]]:
        """Sentences that bind and are out of sight, the firmest first; and values that hold no more."""
        rules = [
            Rule(place, sentence)
            for place, reading in enumerate(self._readings)
            for sentence in reading.sentences
        ]
        standing, replaced = in_force(rules)
        wanted = sorted(
            (rule for rule in standing if rule.position in self._absent),
            key=lambda rule: (-rule.sentence.strength, -rule.position),
        )
        stale = {
            fact.value
            for old, newer in replaced
            for _, fact in self._readings[old.position].facts
            if fact.value in old.sentence.text
            and fact.value not in newer.sentence.text
            and not self._is_said_after(fact.value, newer.position)
        }
        return wanted, frozenset(stale)

    def _is_said_after(self, value: str, position: int) -> bool:
        later = self._readings[position:]
        return any(fact.value == value for reading in later for _, fact in reading.facts)

    def identifiers(self, stale: Collection[str]) -> list[tuple[Fact, bool]]:
        """Exact things that are out of sight, the likeliest to be needed first."""
        length = len(self._readings)
        mentions = self._mentions()
        scored = [
            (each.odds(length), each.last, each.fact, each.is_listed)
            for each in mentions.values()
            if each.fact.value not in stale
        ]
        scored.sort(key=lambda entry: (-entry[0], -entry[1], entry[2].value))
        return [(fact, is_listed) for _, _, fact, is_listed in scored]

    def _mentions(self) -> dict[str, Mentions]:
        """Every mention in what is absent, by value, without values that newer ones replaced."""
        newest = _newest(self._readings)
        found: dict[str, Mentions] = {}
        for place, reading in enumerate(self._readings):
            if place not in self._absent:
                continue
            crowd = len(reading.facts)
            for voice, fact in reading.facts:
                if fact.thing and fact.value not in newest[fact.thing]:
                    continue
                known = found.get(fact.value)
                if known is None:
                    known = found[fact.value] = Mentions(fact, place, crowd, {voice})
                elif fact.key and not known.fact.key:
                    known.fact = fact
                known.last, known.crowd = place, min(known.crowd, crowd)
                known.voices.add(voice)
                known.used += voice == "argument"
        return found


def _newest(readings: Iterable[Reading]) -> dict[str, set[str]]:
    """The newest values of each thing of which something is told."""
    newest: dict[str, tuple[int, set[str]]] = {}
    for place, reading in enumerate(readings):
        for _, fact in reading.facts:
            if not fact.thing:
                continue
            known = newest.get(fact.thing)
            if known is None or known[0] != place:
                newest[fact.thing] = (place, {fact.value})
            else:
                known[1].add(fact.value)
    return {thing: values for thing, (_, values) in newest.items()}
