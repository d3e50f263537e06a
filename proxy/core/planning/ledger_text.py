"""Write the ledger of a plan: choose which facts of the cut messages it carries, and word them.

The ledger is a pure function of the chain, the cuts and the room, so the same epoch has the same ledger on
every worker (law 3). It is written from the originals each time, so nothing drifts, and it does not repeat
what the view still shows. Tool text never becomes a constraint: the role says whose sentence it was.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from math import log2
from typing import get_args

from proxy.core.conversation.messages import HEAD_ROLES, TOOL_ROLES
from proxy.core.extraction.constraints import Constraint
from proxy.core.extraction.facts import Fact
from proxy.core.extraction.reading import BINDS, Voice, untitled
from proxy.core.lazy import lazy
from proxy.core.planning.ledger_odds import AGE, LEAST_LOG_ODDS, RESULTS, Mentions
from proxy.core.planning.ledger_packing import (
    Bullets,
    Packing,
    SubstringIndex,
    label_of,
    may_share,
    values_in,
)
from proxy.core.planning.plan import Plan
from proxy.core.planning.situation import Situation
from proxy.core.text.words import shape_of

_CONSTRAINTS_SHARE = 0.8
"""Share that constraints may take first in a ledger no larger than identifiers alone may make it."""
_STATED_SHARE = 0.25
"""Share of the details' room that sentences may take which only say how things are."""
_COUNTERS = 4
"""Number of values of one label, each in a different tool result, from which on they count as counters."""
_PASSING = 3
"""Least number of them for each value of the label that recurred or that somebody other than a tool said."""
_MEASURES = frozenset({"number", "amount", "date", "time"})
"""Kinds of values that measure or count, and name nothing."""
_MOST_RESULTS = 0.5
"""Share of the tool results with such a label from which on values that name something are dropped too."""
_ALONE: dict[Voice, frozenset[Voice]] = {voice: frozenset({voice}) for voice in get_args(Voice)}


@dataclass(frozen=True, slots=True)
class Facts:
    """The ledger's text in its two parts."""

    constraints: tuple[str, ...] = ()
    """Lines of sentences, word for word."""
    identifiers: str = ""
    """Lines of exact values."""
    left_out: bool = False
    """Whether there was no room for a constraint."""

    def __bool__(self) -> bool:
        return bool(self.constraints or self.identifiers)


def facts_of(source: "Source", room: int, details: int, beside: str = "") -> Facts:
    """Return the ledger of a plan in ``room`` counted tokens, at most ``details`` of them for identifiers.

    ``beside``: other text of the same note, whose identifiers are not repeated.
    """
    if room <= 0 or not source.plan.gaps:
        return Facts()
    facts = _written(source, room, details, beside)
    if facts.left_out and may_share(rule.sentence.text for rule in source.constraints):
        facts = _written(source, room, details, beside, shares=True)
    return facts


def _written(source: "Source", room: int, details: int, beside: str, *, shares: bool = False) -> Facts:
    rules, count = source.situation.policy.ledger, source.situation.count
    found = source.constraints
    bullets = Bullets(count, shares=shares)
    firm = [rule.sentence.text for rule in found if rule.sentence.strength >= BINDS]
    is_split = rules.identifiers and room <= details
    left = room - bullets.fill(firm, int(room * _CONSTRAINTS_SHARE) if is_split else room)
    identifiers = ""
    if rules.identifiers:
        in_note = SubstringIndex("\n".join([*bullets.chosen, beside]))
        packing = Packing(min(left, details), count, source.in_view, in_note, source.in_ledgers)
        packing.fill(source.identifiers())
        identifiers = packing.text
        left -= count(identifiers) if identifiers else 0
    left -= bullets.fill(firm, left)
    left_out = len(bullets.chosen) < len({*firm})
    stated = (rule.sentence.text for rule in found[len(firm) :])
    bullets.fill(stated, min(left, int(details * _STATED_SHARE)))
    order = [rule.sentence.text for rule in sorted(found, key=lambda rule: rule.position)]
    return Facts(bullets.lines(order), identifiers, left_out)


class Source:
    """What a plan cuts, read only once even if its ledger is written several times."""

    def __init__(self, situation: Situation, plan: Plan) -> None:
        self.situation = situation
        self.plan = plan
        self._readings = situation.readings
        self._ranked: list[Mentions] = []

    def _kept_texts(self, *roles: str) -> list[str]:
        """The texts of the view's messages with these ``roles`` (or all), including clipped ones."""
        situation, edited = self.situation, {edit.position for edit in self.plan.replacements}
        texts = [
            piece.countable()
            for run in self.plan.uncut(len(situation.chain))
            for place in run
            if place not in edited
            for piece in (situation.content(place).pieces() if roles else (situation.content(place),))
            if not roles or piece.role in roles
        ]
        clipped = [
            edit.raw.decode(errors="replace")
            for edit in self.plan.replacements
            if not roles or situation.role(edit.position) in roles
        ]
        return [*texts, *clipped]

    @lazy
    def in_view(self) -> Container[str]:
        """The text of the view, including that of notes; identifiers in it are not repeated.

        Rules are repeated even if a summary has them, because summaries are not reliable, or if a note quotes
        them as requests that were answered, because a rule stays in force.
        """
        said = [anchor.text for anchor in self.plan.anchors]
        said += [text for gap in self.plan.gaps for text in gap.quotes]
        text = "\n".join([*self._kept_texts(), *said, self.plan.ledger])
        shown = self.situation.view_index
        if text not in shown:
            shown.clear()
            shown[text] = SubstringIndex(text)
        return shown[text]

    @lazy
    def in_ledgers(self) -> Container[tuple[str, str]]:
        """The values of standing notes, each with its label, which may be the directory of its files."""
        return values_in(self.plan.ledger)

    @lazy
    def constraints(self) -> list[Constraint]:
        """Binding sentences that the view does not show, the strongest first."""
        if not self.situation.policy.ledger.constraints:
            return []
        standing, _ = self.situation.constraints
        wanted = sorted(
            (rule for rule in standing if not self.plan.shows(rule.position)),
            key=lambda rule: (-rule.sentence.strength, -rule.position),
        )
        kept = "\n".join([*self._kept_texts("user", *HEAD_ROLES), self.plan.ledger]) if wanted else ""
        return [rule for rule in wanted if rule.sentence.text not in kept]

    def identifiers(self) -> Iterator[Mentions]:
        """Yield the mentions of exact values in cut messages, the likeliest to be needed first.

        They are in a heap because only a few of many are needed: sorting all is one long step that would
        block other threads.
        """
        yield from self._ranked
        while self._scored:
            *_, mentions = heappop(self._scored)
            self._ranked.append(mentions)
            yield self._ranked[-1]

    @lazy
    def _scored(self) -> list[tuple[float, int, str, Mentions]]:
        stale, length = self._stale(), len(self._readings)
        scored = [
            (-(odds + AGE * log2(1 + length - each.last)), -each.last, value, each)
            for value, each in self._mentions().items()
            if value not in stale and (odds := each.log_odds) >= LEAST_LOG_ODDS
        ]
        heapify(scored)
        return scored

    def is_outdated(self, ledger: str) -> bool:
        """Whether a ledger has a rule that a newer one replaced, or a value that is out of date."""
        _, replaced = self.situation.constraints
        if any(untitled(old.sentence.text) in ledger for old, _ in replaced):
            return True
        newest, said, still = self._newest(), values_in(ledger), set[str]()
        older: dict[str, Fact] = {}
        for reading in self._readings:
            for _, facts in reading.facts:
                for fact in facts:
                    if fact.thing and fact.value not in newest[fact.thing]:
                        older[fact.value] = fact
                    else:
                        still.add(fact.value)
        is_replaced = any((label_of(older[value]), value) in said for value in older.keys() - still)
        return is_replaced or any(value in ledger for value in self._stale())

    def _stale(self) -> set[str]:
        """Values that are out of date: newer rules replaced theirs, and nothing has mentioned them since."""
        readings, (_, replaced) = self._readings, self.situation.constraints
        until: dict[str, int] = {}
        for old, newer in replaced:
            for _, facts in readings[old.position].facts:
                for value in (fact.value for fact in facts):
                    if value in old.sentence.text and value not in newer.sentence.text:
                        until[value] = max(newer.position, until.get(value, 0))
        first = min(until.values(), default=len(readings))
        for place, reading in enumerate(readings[first:], first):
            for _, facts in reading.facts:
                for value in until.keys() & {fact.value for fact in facts}:
                    if until[value] <= place:
                        del until[value]
        return {*until}

    def _mentions(self) -> dict[str, Mentions]:
        """All mentions in cut or edited messages, by value, without values that newer ones replaced."""
        readings, newest = self._readings, self._newest()
        found: dict[str, Mentions] = {}
        for place in sorted(self.plan.edited):
            crowd = readings[place].crowd
            for voice, facts in readings[place].facts:
                for fact in facts:
                    value = fact.value
                    if fact.thing and value not in newest[fact.thing]:
                        continue
                    earlier = found.get(value)
                    if earlier is None:
                        found[value] = Mentions(fact, place, place, crowd, _ALONE[voice])
                        continue
                    if fact.key and not earlier.fact.key:
                        earlier.fact = fact
                    if earlier.last != place:
                        earlier.returned, earlier.last = True, place
                    if crowd < earlier.crowd:  # noqa: PLR1730 - there are many mentions, and a call is slow
                        earlier.crowd = crowd
                    if voice not in earlier.voices:
                        earlier.voices |= _ALONE[voice]
        return self._without_lookalikes(self._without_counters(found))

    def _newest(self) -> dict[str, set[str]]:
        """By thing, its newest values."""
        last: dict[str, int] = {}
        for place, reading in enumerate(self._readings):
            for _, facts in reading.facts:
                last.update(dict.fromkeys([fact.thing for fact in facts], place))
        newest: dict[str, set[str]] = {thing: set() for thing in last}
        for place in {*last.values()}:
            for _, facts in self._readings[place].facts:
                for fact in facts:
                    if last[fact.thing] == place:
                        newest[fact.thing].add(fact.value)
        return newest

    def _without_counters(self, found: dict[str, Mentions]) -> dict[str, Mentions]:
        """Drop values that differ in each tool result, such as process ids, times and counts.

        Such a value is kept if it recurred, or if somebody other than a tool said it.
        """
        passing: dict[str, list[Mentions]] = {}
        returned: Counter[str] = Counter()
        for each in found.values():
            fact, is_passing = each.fact, each.voices == RESULTS and not each.returned
            if is_passing and (fact.key or fact.kind in _MEASURES):
                passing.setdefault(fact.key.casefold() or fact.kind, []).append(each)
            elif fact.key:
                returned[fact.key.casefold()] += 1
        least = max(_COUNTERS, int(_MOST_RESULTS * self._results))
        for label, values in passing.items():
            if _is_single(values) and len(values) >= max(_COUNTERS, _PASSING * returned[label]):
                for each in values:
                    fact = each.fact
                    is_measure = fact.kind in _MEASURES or fact.value.isdigit()
                    if is_measure or (fact.kind != "text" and len(values) >= least):
                        found.pop(fact.value)
        return found

    def _without_lookalikes(self, found: dict[str, Mentions]) -> dict[str, Mentions]:
        """Drop unlabelled values that most tool results have one of, equal except for their digits."""
        alike: dict[str, list[Mentions]] = {}
        for value, each in found.items():
            if not (each.fact.key or each.returned) and each.voices == RESULTS:
                alike.setdefault(shape_of(value), []).append(each)
        for values in alike.values():
            if len(values) >= max(_COUNTERS, int(_MOST_RESULTS * self._results)) and _is_single(values):
                for each in values:
                    del found[each.fact.value]
        return found

    @lazy
    def _results(self) -> int:
        """Number of tool results that are cut."""
        role, gaps = self.situation.role, self.plan.gaps
        return sum(role(place) in TOOL_ROLES for gap in gaps for place in range(gap.start, gap.end))


def _is_single(mentions: Sequence[Mentions]) -> bool:
    """Whether each value is in a different message; a listing has several in one."""
    return len({each.last for each in mentions}) == len(mentions)
