"""Writing the ledger of a plan: which facts of the messages that are cut are carried on, and in which words.

A pure function of the chain, what is cut and the room: the same epoch has the same ledger on every worker
(law 3). It is made anew from the originals each time, so nothing in it drifts, and what the view still shows
is not told twice. Tool text never becomes a constraint: whose sentence it was is known from the role.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from proxy.core.ledger.bullets import Bullets, may_share
from proxy.core.ledger.facts import Fact
from proxy.core.ledger.packing import Packing
from proxy.core.ledger.ranking import Mentions
from proxy.core.ledger.reading import Reading
from proxy.core.ledger.rules import Rule
from proxy.core.messages import HEAD_ROLES
from proxy.core.plan import Plan
from proxy.core.situation import Situation

_RULES_SHARE = 0.8
"""Of a ledger that is no larger than identifiers alone may make it: what constraints may take before them."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The ledger's text in its two parts."""

    constraints: tuple[str, ...] = ()
    """Lines of sentences, word for word."""
    identifiers: str = ""
    """Lines of exact things."""
    left_out: bool = False
    """Whether there was no room for a constraint."""

    def __bool__(self) -> bool:
        return bool(self.constraints or self.identifiers)


def facts_of(situation: Situation, plan: Plan, room: int, details: int, told: str = "") -> Facts:
    """The ledger of a chain under ``plan``, in ``room`` counted tokens; ``details`` bounds identifiers.

    ``told`` is what else the same note says: an identifier is not told twice.
    """
    rules = situation.policy.ledger
    if room <= 0 or not plan.gaps:
        return Facts()
    source = _Source(situation, plan)
    found, stale = source.constraints()
    kept = source.kept_text("user", *HEAD_ROLES)
    found = [rule for rule in found if rule.sentence.text not in kept] if rules.constraints else []
    facts = _written(source, found, stale, room, details, told)
    if facts.left_out and may_share(rule.sentence.text for rule in found):
        facts = _written(source, found, stale, room, details, told, shares=True)
    return facts


def _written(
    source: "_Source",
    found: Sequence[Rule],
    stale: Collection[str],
    room: int,
    details: int,
    told: str,
    *,
    shares: bool = False,
) -> Facts:
    rules, count = source.situation.policy.ledger, source.situation.count
    bullets = Bullets(count, shares=shares)
    firm = (rule.sentence.text for rule in found if rule.sentence.strength > 1)
    is_split = rules.identifiers and room <= details
    left = room - bullets.fill(firm, int(room * _RULES_SHARE) if is_split else room)
    identifiers = ""
    if rules.identifiers:
        shown = [source.kept_text(), *source.summaries(), *source.quoted(), *bullets.chosen, told]
        packing = Packing(min(left, details), count, "\n".join(shown))
        packing.fill(source.identifiers(stale))
        identifiers = packing.text
        left -= count(identifiers) if identifiers else 0
    bullets.fill((rule.sentence.text for rule in found), left)
    order = [rule.sentence.text for rule in sorted(found, key=lambda rule: rule.position)]
    return Facts(bullets.lines(order), identifiers, left_out=len(bullets.chosen) < len(found))


class _Source:
    """The chain's messages, read."""

    def __init__(self, situation: Situation, plan: Plan) -> None:
        self.situation = situation
        self._plan = plan
        self._absent = {edit.position for edit in plan.replacements}
        self._absent.update(place for gap in plan.gaps for place in range(gap.start, gap.end))
        self._readings = situation.readings

    def kept_text(self, *roles: str) -> str:
        """What messages of the view say, those of ``roles`` or all, clipped ones among them."""
        messages = self.situation.chain.messages
        texts = [
            self.situation.content(place).countable()
            for place, message in enumerate(messages)
            if place not in self._absent and (not roles or message.role in roles)
        ]
        clipped = [
            edit.raw.decode(errors="replace")
            for edit in self._plan.replacements
            if not roles or messages[edit.position].role in roles
        ]
        return "\n".join([*texts, *clipped])

    def summaries(self) -> list[str]:
        """What notes say of what is cut. A rule there is told again: nobody vouches for a summary."""
        return [anchor.text for anchor in self._plan.anchors]

    def quoted(self) -> list[str]:
        """Requests that notes quote as handled. A rule among them is told again: it is not over."""
        return [text for gap in self._plan.gaps for text in gap.quotes]

    def constraints(self) -> tuple[list[Rule], frozenset[str]]:
        """Sentences that bind and are out of sight, the firmest first; and values that hold no more."""
        standing, replaced = self.situation.constraints
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
