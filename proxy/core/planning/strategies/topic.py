"""Cut what is about something else first: clusters of exchanges, the farthest from now before the others."""

from collections.abc import Iterable, Sequence

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import exchanges_of
from proxy.core.planning.situation import FREE, Situation
from proxy.core.planning.strategies.base import ByImportance
from proxy.core.text.similarity import Likeness, Similarity, Vectors, tfidf

NOW = 2
"""The newest exchanges, which say what the conversation is about now."""
ALIKE = 0.1
"""Likeness from which an exchange goes on with a topic (by TF-IDF, unrelated exchanges are below 0.05)."""
_REMEMBERED = 4
"""The newest exchanges of a topic, with which the next one is compared."""
_CHARACTERS = 4_000
"""Of each message, what is read to know its topic."""


class Topic(ByImportance):
    """By tokens, as importance is: at *trim* only other topics; from *compact* on today's own as well."""

    def __init__(self, similarity: Similarity = tfidf) -> None:
        self._similarity = similarity

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the farthest topic first, each from its oldest exchange on."""
        exchanges = exchanges_of(situation.chain.begun, situation.units, situation.standing)
        alike = self._similarity([_text(situation, exchange) for exchange in exchanges])
        newest = range(max(len(exchanges) - NOW, 0), len(exchanges))
        topics = sorted(
            _topics(len(exchanges), alike),
            key=lambda topic: (_nearness(topic, newest, alike), topic[-1]),
        )
        if stage is Stage.TRIM:
            topics = [topic for topic in topics if topic[-1] not in newest]
        return [
            index
            for topic in topics
            for place in topic
            for index in sorted(exchanges[place], key=situation.is_user)
            if situation.protection[index] == FREE
        ]


def _text(situation: Situation, exchange: Sequence[int]) -> str:
    units = (situation.units[index] for index in exchange)
    places = (place for unit in units for place in range(unit.start, unit.end))
    return "\n".join(situation.content(place).text[:_CHARACTERS] for place in places)


def _topics(count: int, alike: Likeness) -> list[list[int]]:
    """Exchanges by topic: each goes on with the topic that it is most like, or begins one.

    Where likeness follows from shared words, it is compared with topics alone that share enough of them.
    """
    topics: list[list[int]] = []
    by_term: dict[str, set[int]] = {}
    for place in range(count):
        numbers: Iterable[int] = range(len(topics))
        if isinstance(alike, Vectors):
            sharing = (by_term.get(term, ()) for term in alike.telling(place, ALIKE))
            numbers = sorted({number for each in sharing for number in each})
        likest, found = ALIKE, None
        for number in numbers:
            likeness = max(alike(place, member) for member in topics[number][-_REMEMBERED:])
            if likeness >= likest:
                likest, found = likeness, number
        if found is None:
            found = len(topics)
            topics.append([])
        topics[found].append(place)
        for term in alike.terms(place) if isinstance(alike, Vectors) else ():
            by_term.setdefault(term, set()).add(found)
    return topics


def _nearness(topic: Sequence[int], newest: Sequence[int], alike: Likeness) -> float:
    """How near a topic is to now: the mean of its exchanges' likeness to the newest ones."""
    return sum(max(alike(place, new) for new in newest) for place in topic) / len(topic)
